//! The commands that create and change projects.

mod bundle;
mod certmanager;
mod commands;
mod delete;
mod folder;
mod golden;
mod operators;
mod plugins;
mod refusals;
mod scorecard;
mod update;
