//! The embedded Kubernetes API server: a [`tower::Service`] over multi-version storage.
//!
//! A `kube::Client` can be built straight on the service, so a test needs no socket and can run on a paused clock;
//! a TLS listener is a thin shell for kubectl.

pub mod discovery;
pub mod registry;
