//! What the operators' tests share, and nothing else uses: a [`World`] on virtual time, an operator whose requests may meet
//! faults and who may die at any write, and the rows of the project's table of faults that hold for every operator.
//!
//! [`Deployed`] is the operator as its users run it: in a pod, on real time, with its own rights alone.
//!
//! A test crate implements [`Subject`] for its resource and says [`rows!`]; the rows become its tests, by number. Nothing
//! here knows a particular operator.

mod deployed;
mod history;
mod manifests;
mod mishap;
mod pods;
pub mod rows;
mod subject;
mod world;

pub use deployed::{Deployed, metrics};
pub use history::History;
pub use manifests::{Config, needed};
pub use mishap::{Mishap, Unlucky, go_wrong_everywhere};
pub use subject::{Invalid, Subject};
pub use world::{NAMESPACE, Object, Operator, Register, START, World, assert_quiet, eventually, minutes, soon};
