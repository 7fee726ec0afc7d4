//! Metrics in Prometheus' text format and in OpenMetrics, under controller-runtime's names, so that dashboards made for
//! Go operators work.
//!
//! [`Metrics`] is passed explicitly and not global, so that two managers in one process, or two tests, don't share it.
//! Families that controller-runtime doesn't have begin with `kubewright_`.

mod certificate;
mod client;
mod controller;
mod exemplars;
pub(crate) mod open_metrics;
mod process;
mod queue;
mod shard;
mod tokio_runtime;
mod unlabelled;
mod webhook;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector, proto::MetricFamily,
};

/// The crate of the families in [`Metrics::registry`], in the version that it takes.
pub use prometheus;

use self::exemplars::Exemplars;
pub(crate) use self::{
    certificate::CertificateMetrics,
    shard::ShardMetrics,
    webhook::{PathMetrics, WebhookMetrics},
};
pub use self::{
    client::{ClientMetrics, ClientMetricsLayer},
    controller::{ActiveWorker, ControllerMetrics, ReconcileResult},
    open_metrics::OPEN_METRICS_CONTENT_TYPE,
    queue::{QueueMetrics, QueueState, WorkTimer},
};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// A set of metric families and their registry. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    clock: SharedClock,
    registry: Registry,
    controllers: controller::Families,
    exemplars: Exemplars,
    queues: queue::Families,
    requests: IntCounterVec,
    /// The histograms of requests, set when they are enabled.
    measured: Arc<OnceLock<client::Families>>,
    leader: IntGaugeVec,
    discarded_events: IntCounterVec,
    certificates: CertificateMetrics,
    /// The queues whose gauges are updated when the metrics are read.
    live_queues: Mutex<BTreeMap<String, QueueMetrics>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates all families, including those of `process_*`. `clock` measures durations.
    pub fn new(clock: SharedClock) -> Self {
        Self::with_registry(clock, Registry::new())
    }

    /// Like [`Metrics::new`], in a registry that may have families of the operator.
    ///
    /// # Panics
    /// If the registry has a family of one of these names, such as of another set.
    pub fn with_registry(clock: SharedClock, registry: Registry) -> Self {
        add(&registry, process::ProcessCollector::new().expect("constant names are valid"));
        add(&registry, tokio_runtime::TokioCollector::new().expect("constant names are valid"));
        let inner = Inner {
            clock,
            controllers: controller::Families::new(&registry),
            exemplars: Exemplars::default(),
            queues: queue::Families::new(&registry),
            requests: counters(
                &registry,
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "host", "method"],
            ),
            measured: Arc::default(),
            leader: gauges(
                &registry,
                "leader_election_master_status",
                "Whether this process leads (1) or stands by (0), by the name of the lease.",
                &["name"],
            ),
            discarded_events: counters(
                &registry,
                "kubewright_events_discarded_total",
                "Events that were not written, by why: the queue was full, the object had too many, the API refused.",
                &["reason"],
            ),
            certificates: CertificateMetrics::new(&registry),
            live_queues: Mutex::default(),
            registry,
        };
        Self(Arc::new(inner))
    }

    /// Returns the registry, for adding the operator's own families.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Returns the metrics of one controller. From then on all of them are exported, at first with the value zero.
    pub fn controller(&self, controller: &str, max_concurrent: usize) -> ControllerMetrics {
        self.0.controllers.controller(controller, max_concurrent, self.0.clock.clone(), &self.0.exemplars)
    }

    /// Returns the metrics of a controller's queue. From then on all of them are exported, at first with the value
    /// zero.
    pub fn queue(&self, controller: &str) -> QueueMetrics {
        let mut queues = self.0.live_queues.lock();
        let make = || self.0.queues.queue(controller, self.0.clock.clone());
        queues.entry(controller.into()).or_insert_with(make).clone()
    }

    /// Drops all series of a controller and its queue.
    pub(crate) fn forget(&self, controller: &str) {
        self.0.controllers.forget(controller);
        self.0.exemplars.forget(controller);
        if let Some(queue) = self.0.live_queues.lock().remove(controller) {
            self.0.queues.forget(&queue);
        }
    }

    /// Returns a layer that counts the requests of a client; see [`ClientMetricsLayer`].
    pub fn client_layer(&self, host: impl Into<String>) -> ClientMetricsLayer {
        let Inner { requests, measured, clock, .. } = self.0.as_ref();
        let (requests, measured, clock) = (requests.clone(), measured.clone(), clock.clone());
        ClientMetricsLayer { requests, measured, clock, host: host.into() }
    }

    /// Enables the histograms of requests that Kubernetes' components have: `rest_client_request_duration_seconds`,
    /// `rest_client_request_size_bytes` and `rest_client_response_size_bytes`, each by `host` and `verb`. They add
    /// about thirty series per verb.
    ///
    /// `rest_client_rate_limiter_duration_seconds` and `rest_client_request_retries_total` don't exist, since a
    /// manager's client has no rate limiter and doesn't retry.
    ///
    /// ```
    /// # use kubewright_runtime::{clock::SystemClock, manager::Manager, metrics::Metrics};
    /// # fn example(manager: Manager) -> Manager {
    /// manager.metrics(Metrics::new(SystemClock::shared()).measure_requests())
    /// # }
    /// ```
    pub fn measure_requests(self) -> Self {
        self.0.measured.get_or_init(|| client::Families::new(&self.0.registry));
        self
    }

    /// Sets whether this process holds the lease `name`.
    pub fn set_leader(&self, name: &str, leads: bool) {
        self.0.leader.with_label_values(&[name]).set(i64::from(leads));
    }

    pub(crate) fn certificates(&self) -> &CertificateMetrics {
        &self.0.certificates
    }

    /// Counts an event that was not written. `reason` is in `snake_case`.
    pub fn event_discarded(&self, reason: &str) {
        self.0.discarded_events.with_label_values(&[reason]).inc();
    }

    /// Returns all metrics in Prometheus' text format.
    ///
    /// # Errors
    /// If a family of the operator violates the format.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns all metrics in the format [OpenMetrics](OPEN_METRICS_CONTENT_TYPE), which `/metrics` sends to clients
    /// that accept it, such as Prometheus. From the first call on, each bucket of
    /// `controller_runtime_reconcile_time_seconds` has an exemplar: the latest reconcile with such a duration, by the
    /// `reconcile_id` of its logs and, with the cargo feature `opentelemetry`, the `trace_id` of its spans. A
    /// controller's exemplars take some 10 kB.
    ///
    /// Counters whose names don't end in `_total` have the type `unknown`, and bounds of buckets have a fraction
    /// (`le="1.0"`), as the format requires.
    pub fn encode_open_metrics(&self) -> String {
        open_metrics::encode(&self.gather(), &|family, metric| {
            if family.name() != controller::RECONCILE_TIME {
                return Vec::new();
            }
            let name = metric.get_label().iter().find(|label| label.name() == "controller");
            name.map(|name| self.0.exemplars.of(name.value())).unwrap_or_default()
        })
    }

    fn gather(&self) -> Vec<MetricFamily> {
        let queues: Vec<_> = self.0.live_queues.lock().values().cloned().collect();
        for queue in queues {
            queue.refresh();
        }
        self.0.registry.gather()
    }
}

/// Registers a collector. Its name and labels are constants, so any test would detect a mistake.
fn add(registry: &Registry, collector: impl Collector + 'static) {
    registry.register(Box::new(collector)).expect("a metrics family is registered once");
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let family = IntCounter::new(name, help).expect("constant names are valid");
    add(registry, family.clone());
    family
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect("constant names are valid");
    add(registry, family.clone());
    family
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let family = IntGaugeVec::new(Opts::new(name, help), labels).expect("constant names are valid");
    add(registry, family.clone());
    family
}

fn histograms(registry: &Registry, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.into());
    let family = HistogramVec::new(options, labels).expect("constant names are valid");
    add(registry, family.clone());
    family
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;

    #[test]
    fn all_families_are_present_at_zero() {
        let metrics = Metrics::new(SystemClock::shared());
        let _controller = metrics.controller("podset", 3);
        let _queue = metrics.queue("podset");
        metrics.set_leader("podset.example.com", false);
        let text = metrics.encode().unwrap();
        for line in [
            "controller_runtime_active_workers{controller=\"podset\"} 0",
            "controller_runtime_max_concurrent_reconciles{controller=\"podset\"} 3",
            "controller_runtime_reconcile_errors_total{controller=\"podset\"} 0",
            "controller_runtime_reconcile_panics_total{controller=\"podset\"} 0",
            "controller_runtime_reconcile_timeouts_total{controller=\"podset\"} 0",
            "controller_runtime_reconcile_total{controller=\"podset\",result=\"error\"} 0",
            "controller_runtime_reconcile_total{controller=\"podset\",result=\"requeue\"} 0",
            "controller_runtime_reconcile_total{controller=\"podset\",result=\"requeue_after\"} 0",
            "controller_runtime_reconcile_total{controller=\"podset\",result=\"success\"} 0",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"podset\"} 0",
            "certwatcher_read_certificate_total 0",
            "certwatcher_read_certificate_errors_total 0",
            "leader_election_master_status{name=\"podset.example.com\"} 0",
            "workqueue_adds_total{controller=\"podset\",name=\"podset\"} 0",
            "workqueue_depth{controller=\"podset\",name=\"podset\",priority=\"0\"} 0",
            "workqueue_longest_running_processor_seconds{controller=\"podset\",name=\"podset\"} 0",
            "workqueue_queue_duration_seconds_count{controller=\"podset\",name=\"podset\"} 0",
            "workqueue_retries_total{controller=\"podset\",name=\"podset\"} 0",
            "workqueue_unfinished_work_seconds{controller=\"podset\",name=\"podset\"} 0",
            "workqueue_work_duration_seconds_count{controller=\"podset\",name=\"podset\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        #[cfg(target_os = "linux")]
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }

    #[test]
    fn two_sets_of_metrics_are_separate() {
        let (one, two) = (Metrics::new(SystemClock::shared()), Metrics::new(SystemClock::shared()));
        one.set_leader("x", true);
        assert!(!two.encode().unwrap().contains("leader_election_master_status{"));
    }
}
