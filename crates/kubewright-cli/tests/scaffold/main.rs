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
#[allow(dead_code, reason = "the unit tests use all of it")]
#[path = "../../src/oci/registry/testing.rs"]
mod registry;
mod scorecard;
mod update;
