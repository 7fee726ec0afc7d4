//! `controller_runtime_webhook_*`: the requests of the webhook server.

use std::time::Duration;

use kubewright_apimachinery::clock::SharedClock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{counter, counters, gauges, histograms};

/// Upper bounds in seconds, as in controller-runtime.
const LATENCY_SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0];

/// The metrics of a webhook server. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    clock: SharedClock,
    latency: HistogramVec,
    requests: IntCounterVec,
    in_flight: IntGaugeVec,
    panics: IntCounter,
    conversion_panics: IntCounter,
}

impl WebhookMetrics {
    /// Registers the families. Call it once for each registry.
    pub(crate) fn new(registry: &Registry, clock: SharedClock) -> Self {
        Self {
            clock,
            latency: histograms(
                registry,
                "controller_runtime_webhook_latency_seconds",
                "How long an admission request takes, by path.",
                &["webhook"],
                &LATENCY_SECONDS,
            ),
            requests: counters(
                registry,
                "controller_runtime_webhook_requests_total",
                "Admission requests, by path and HTTP code.",
                &["code", "webhook"],
            ),
            in_flight: gauges(
                registry,
                "controller_runtime_webhook_requests_in_flight",
                "Admission requests being answered now, by path.",
                &["webhook"],
            ),
            panics: counter(registry, "controller_runtime_webhook_panics_total", "Webhooks that panicked."),
            conversion_panics: counter(
                registry,
                "controller_runtime_conversion_webhook_panics_total",
                "Conversions that panicked.",
            ),
        }
    }

    /// Returns the metrics of one path. From then on all of them are exported, at first with the value zero.
    pub(crate) fn path(&self, path: &str) -> PathMetrics {
        for code in ["200", "500"] {
            self.requests.with_label_values(&[code, path]);
        }
        PathMetrics {
            clock: self.clock.clone(),
            path: path.into(),
            latency: self.latency.with_label_values(&[path]),
            requests: self.requests.clone(),
            in_flight: self.in_flight.with_label_values(&[path]),
            panics: self.panics.clone(),
            conversion_panics: self.conversion_panics.clone(),
        }
    }
}

/// The metrics of one path.
#[derive(Clone, Debug)]
pub(crate) struct PathMetrics {
    clock: SharedClock,
    path: String,
    latency: Histogram,
    requests: IntCounterVec,
    in_flight: IntGauge,
    panics: IntCounter,
    conversion_panics: IntCounter,
}

impl PathMetrics {
    /// Starts a request, which counts as in flight and is measured until the guard is dropped.
    #[must_use = "the request ends when the guard is dropped"]
    pub(crate) fn started(&self) -> InFlight {
        self.in_flight.inc();
        InFlight { start: self.clock.monotonic(), metrics: self.clone() }
    }

    /// Counts a response with this HTTP status.
    pub(crate) fn answered(&self, code: u16) {
        self.requests.with_label_values(&[code.to_string().as_str(), &self.path]).inc();
    }

    /// Counts a panic of the webhook.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a panic of a conversion.
    pub(crate) fn conversion_panicked(&self) {
        self.conversion_panics.inc();
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    metrics: PathMetrics,
    start: Duration,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        let took = self.metrics.clock.monotonic().saturating_sub(self.start);
        self.metrics.latency.observe(took.as_secs_f64());
    }
}
