//! Requests to a Kubernetes API server with recorded answers.
//!
//! A corpus is a directory of files, one per kind. Each consists of JSON lines: a header with the kind's collection and
//! a valid object, followed by cases. A case is a request, described by its difference from the valid object, and the
//! answer of a real API server. `cargo xtask corpus record` generates and records the cases; tests of the embedded API
//! server send the same requests and compare the answers.
//!
//! A [`scenario`] is a sequence of requests of all verbs, whose answers are compared as a whole.
//!
//! Scenarios that are [`random`] are sent to two servers, whose answers are compared.
//!
//! [`generate`] derives cases from the types of the fields, and reads further ones from `cases/*.yaml`. [`exchange`]
//! sends them through a [`Transport`], which the command and the tests implement.

mod answer;
mod change;
pub mod compare;
mod corpus;
mod exchange;
pub mod generate;
mod normalize;
pub mod random;
pub mod scenario;
mod types;

pub use self::{
    answer::{Answer, Cause},
    change::Change,
    corpus::{Case, Corpus, Header, Verb},
    exchange::{NAMESPACE, RawAnswer, RawRequest, Transport, create_namespace, exchange, prepare},
};
