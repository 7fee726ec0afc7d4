//! End-to-end tests of the `kubewright` command with stock kubectl and the operators in one manager.
//!
//! `cargo xtask test` installs kubectl if needed; 1.21 is the oldest version that renders the operators' manifests.

mod access;
mod child;
mod cluster;
mod command;
mod deploy;
mod dev;
mod envtest;
mod envtest_issuers;
mod explain;
mod image;
mod installer;
mod kubectl;
mod manifests;
mod merge;
mod olm;
mod operators;
#[allow(dead_code, reason = "the unit tests use all of it")]
#[path = "../../src/oci/registry/testing.rs"]
mod registry;
mod run;
mod simulate;
mod workflow;
mod workloads;
