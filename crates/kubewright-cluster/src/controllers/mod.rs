//! The built-in controllers.
//!
//! * [`garbage`]: the garbage collector
//! * [`deletion`]: of namespaces, and of custom kinds
//! * [`accounts`]: what every namespace has
//! * [`expiry`]: of events
//! * [`scheduler`]: pods are bound to the one node
//!
//! Each reads the feed, in [`batch`]es where it matters, and tries again what fails ([`retry`]).

pub(crate) mod accounts;
mod batch;
pub(crate) mod deletion;
pub(crate) mod expiry;
pub(crate) mod garbage;
mod retry;
pub(crate) mod scheduler;
