//! Shared code of the operators' tests: a [`TestEnv`] on virtual time, fault injection including crashes at any write,
//! and the conformance tests that every operator has to pass.
//!
//! [`Deployed`] is an operator in a pod, in real time, with only its own permissions.
//!
//! A test crate implements [`Subject`] for its resource and invokes [`conformance_tests!`]. Nothing here depends on a
//! particular operator.

pub mod conformance;
mod deployed;
mod env;
mod history;
mod manifests;
mod pods;
mod steps;
mod subject;
mod write_fault;

pub use deployed::{Deployed, metrics};
pub use env::{
    NAMESPACE, Object, Operator, Register, START, TestEnv, assert_only_watches, assert_quiet, eventually, minutes,
    within_a_minute,
};
pub use history::History;
pub use manifests::{Config, needed};
pub use steps::spoil_status;
pub use subject::{Invalid, Subject};
pub use write_fault::{FaultyOperator, WriteFault, with_a_fault_at_each_write};
