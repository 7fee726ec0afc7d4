//! Health and readiness checks, and the server of their pages and of traces.
//!
//! Paths and responses are those of controller-runtime: `/healthz` and `/readyz`, `/healthz/<check>` for one check,
//! `?verbose` for the list, `?exclude=<check>` to skip a check. The same server has [traces](crate::trace) at
//! `/debug/traces`.
//!
//! By default the server listens only on loopback (`--health-probe-bind-address=127.0.0.1:8081`). In a pod it listens
//! on the pod's address, where the kubelet probes it. Clients that reach that address learn only whether the checks
//! pass: the reasons of failed checks, and traces, are shown only to requests on a loopback connection with a loopback
//! `Host`. For these a manager also listens on loopback at the same port, which `kubectl port-forward` connects to.

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
