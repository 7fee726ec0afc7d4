//! The HTTP servers beside a controller: probes for the kubelet, metrics for Prometheus.
//!
//! Paths and answers are controller-runtime's: `/healthz` and `/readyz`, `/healthz/<check>` for one check, `?verbose` for
//! the list, `?exclude=<check>` to leave one out; `/metrics`. Beside the probes are `/debug/traces` ([`crate::trace`]).

mod address;
mod checks;
mod server;
mod traces;

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

pub use self::{
    address::{AddressError, BindAddress},
    checks::{CheckResult, Checks},
    server::{BindError, Server},
};
pub(crate) use self::{server::Manner, traces::traces_router};
use crate::metrics::{self, Metrics};

/// The checks that a manager serves.
#[derive(Clone, Debug)]
pub struct Probes {
    /// Whether the process works; the kubelet restarts it when not.
    pub healthz: Checks,
    /// Whether the process can do its work; it gets no traffic while not.
    pub readyz: Checks,
}

impl Default for Probes {
    fn default() -> Self {
        Self { healthz: Checks::new("healthz"), readyz: Checks::new("readyz") }
    }
}

impl Probes {
    /// The routes of both.
    pub fn router(&self) -> Router {
        self.healthz.router().merge(self.readyz.router())
    }
}

/// The route `/metrics`.
pub fn metrics_router(metrics: Metrics) -> Router {
    let answer = async move || match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    Router::new().route("/metrics", get(answer))
}
