//! Tests of the simulator: on a small operator with a bug, on the fixed one, and on PodSet.

mod browser;
mod certificates;
mod conformance;
mod controllers;
mod determinism;
mod machine;
mod outside;
mod overlap;
mod podset;
mod process;
mod webhooks;
mod workspace;
