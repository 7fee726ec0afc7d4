//! The built-in controllers.
//!
//! * [`garbage`]: the garbage collector
//! * [`deletion`]: of namespaces, and of custom kinds
//! * [`accounts`]: what every namespace has
//! * [`aggregation`]: cluster roles that are put together of others
//! * [`expiry`]: of events
//! * [`scheduler`]: pods are bound to the one node, if they may go there
//! * [`deployment`]: templates, and how their changes are rolled out
//! * [`endpoints`]: where the pods behind a service answer
//! * [`entrance`]: the service by which programs find the API server
//! * [`job`]: pods that are to end
//! * [`replicaset`]: as many pods of a template as are wanted
//!
//! Those of workloads decide, and leave the rest to one loop ([`reconcile`]); [`family`] says who owns whom.
//! Each reads the feed, in [`batch`]es where it matters, and tries again what fails ([`retry`]).

pub(crate) mod accounts;
pub(crate) mod aggregation;
pub(crate) mod batch;
pub(crate) mod deletion;
pub(crate) mod deployment;
pub(crate) mod endpoints;
pub(crate) mod entrance;
pub(crate) mod expiry;
mod family;
pub(crate) mod garbage;
pub(crate) mod job;
mod pod;
pub(crate) mod reconcile;
pub(crate) mod replicaset;
mod retry;
pub(crate) mod scheduler;
pub(crate) mod value;
