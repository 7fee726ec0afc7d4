//! The commands that make and change projects, as they are typed.

mod certmanager;
mod commands;
mod folder;
mod golden;
mod operators;
mod plugins;
mod refusals;
mod update;
