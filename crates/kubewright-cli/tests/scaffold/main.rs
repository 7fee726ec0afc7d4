//! The commands that make and change projects, as they are typed.

mod folder;
mod golden;
mod refusals;
