//! End to end: the `kubewright` command, stock kubectl, and the operators in one manager, as a user has them.
//!
//! `cargo xtask test` makes sure of kubectl, of which 1.21 is the oldest that renders the operators' manifests.

mod access;
mod cluster;
mod command;
mod deploy;
mod dev;
mod explain;
mod image;
mod installer;
mod kubectl;
mod manifests;
mod operators;
mod run;
mod workflow;
mod workloads;
