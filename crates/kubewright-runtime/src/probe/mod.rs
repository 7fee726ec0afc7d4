//! Health and readiness checks, and the server of their pages and of traces.
//!
//! Paths and answers are those of controller-runtime: `/healthz` and `/readyz`, `/healthz/<check>` for one check,
//! `?verbose` for the list, `?exclude=<check>` to leave a check out. Beside them are [traces](crate::trace) at
//! `/debug/traces`.
//!
//! By default the server listens on loopback alone (`--health-probe-bind-address=127.0.0.1:8081`). In a pod it listens
//! on the pod's address, where the kubelet probes it. Anyone who reaches that address learns whether the checks pass,
//! and no more: the reasons of failed checks, and traces, are shown only to requests on a loopback connection with a
//! loopback `Host`. For these a manager listens at the same port of loopback as well, which `kubectl port-forward`
//! leads to.

mod checks;
mod traces;

use axum::Router;

pub use self::checks::{CheckResult, Checks};
pub(crate) use self::traces::{local_traces_router, traces_router};
pub use crate::http::{AddressError, BindAddress, BindError, Server};

/// The checks of a manager.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The liveness checks. The kubelet restarts the container when one fails.
    pub healthz: Checks,
    /// The readiness checks. The pod gets no traffic while one fails.
    pub readyz: Checks,
}

impl Default for Probes {
    fn default() -> Self {
        Self { healthz: Checks::new("healthz"), readyz: Checks::new("readyz") }
    }
}

impl Probes {
    /// Returns the routes of both sets of checks.
    pub fn router(&self) -> Router {
        self.healthz.router().merge(self.readyz.router())
    }
}
