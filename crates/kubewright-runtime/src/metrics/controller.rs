//! `controller_runtime_*`: the results of a controller's reconciles.

use std::time::Duration;

use kubewright_apimachinery::clock::SharedClock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{
    counters,
    exemplars::{ControllerExemplars, Exemplar, ExemplarLabels, Exemplars},
    gauges, histograms,
};

/// The family of the durations of reconciles.
pub(super) const RECONCILE_TIME: &str = "controller_runtime_reconcile_time_seconds";

/// Upper bounds in seconds, as in controller-runtime.
static RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The result of a reconcile: the value of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Success; the key waits for a change.
    Success,
    /// An error, whether terminal or not, a panic or a timeout.
    Error,
    /// Success with a request for another run at once.
    Requeue,
    /// Success with a request for another run at a later time.
    RequeueAfter,
}

impl ReconcileResult {
    const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Requeue, Self::RequeueAfter];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

pub(super) struct Families {
    total: IntCounterVec,
    errors: IntCounterVec,
    terminal_errors: IntCounterVec,
    panics: IntCounterVec,
    timeouts: IntCounterVec,
    seconds: HistogramVec,
    max_concurrent: IntGaugeVec,
    active: IntGaugeVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let counters =
            |name: &str, help: &str| counters(registry, &format!("controller_runtime_{name}"), help, &["controller"]);
        let gauges =
            |name: &str, help: &str| gauges(registry, &format!("controller_runtime_{name}"), help, &["controller"]);
        Self {
            total: super::counters(
                registry,
                "controller_runtime_reconcile_total",
                "Reconciles of a controller, by result.",
                &["controller", "result"],
            ),
            errors: counters("reconcile_errors_total", "Reconciles of a controller that failed."),
            terminal_errors: counters(
                "terminal_reconcile_errors_total",
                "Reconciles of a controller that failed and are not retried.",
            ),
            panics: counters("reconcile_panics_total", "Reconciles of a controller that panicked."),
            timeouts: counters("reconcile_timeouts_total", "Reconciles of a controller that ran out of time."),
            seconds: histograms(
                registry,
                RECONCILE_TIME,
                "How long a reconcile takes.",
                &["controller"],
                &RECONCILE_SECONDS,
            ),
            max_concurrent: gauges("max_concurrent_reconciles", "The most reconciles that may run at once."),
            active: gauges("active_workers", "Reconciles that run now."),
        }
    }

    pub(super) fn controller(
        &self,
        controller: &str,
        max_concurrent: usize,
        clock: SharedClock,
        exemplars: &Exemplars,
    ) -> ControllerMetrics {
        let label = [controller];
        let totals = ReconcileResult::ALL.map(|result| self.total.with_label_values(&[controller, result.label()]));
        self.max_concurrent.with_label_values(&label).set(i64::try_from(max_concurrent).unwrap_or(i64::MAX));
        ControllerMetrics {
            clock,
            totals,
            errors: self.errors.with_label_values(&label),
            terminal_errors: self.terminal_errors.with_label_values(&label),
            panics: self.panics.with_label_values(&label),
            timeouts: self.timeouts.with_label_values(&label),
            seconds: self.seconds.with_label_values(&label),
            active: self.active.with_label_values(&label),
            exemplars: exemplars.controller(controller, &RECONCILE_SECONDS),
        }
    }
}

impl Families {
    /// Drops the series of a controller, unless there are none.
    pub(super) fn forget(&self, controller: &str) {
        let label = [controller];
        for result in ReconcileResult::ALL {
            let _ = self.total.remove_label_values(&[controller, result.label()]);
        }
        for family in [&self.errors, &self.terminal_errors, &self.panics, &self.timeouts] {
            let _ = family.remove_label_values(&label);
        }
        for family in [&self.max_concurrent, &self.active] {
            let _ = family.remove_label_values(&label);
        }
        let _ = self.seconds.remove_label_values(&label);
    }
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    clock: SharedClock,
    /// In the order of [`ReconcileResult::ALL`].
    totals: [IntCounter; 4],
    errors: IntCounter,
    terminal_errors: IntCounter,
    panics: IntCounter,
    timeouts: IntCounter,
    seconds: Histogram,
    active: IntGauge,
    exemplars: ControllerExemplars,
}

impl ControllerMetrics {
    /// Starts a reconcile, which counts as active and is measured until the guard is dropped.
    #[must_use = "the reconcile ends when the guard is dropped"]
    pub fn started(&self) -> ActiveWorker {
        self.started_as(Vec::new)
    }

    /// [`ControllerMetrics::started`] with what names the reconcile in an exemplar. It is asked only if exemplars are
    /// wanted.
    pub(crate) fn started_as(&self, labels: impl FnOnce() -> ExemplarLabels) -> ActiveWorker {
        self.active.inc();
        let labels = self.exemplars.labels(labels).filter(|labels| !labels.is_empty());
        ActiveWorker { metrics: self.clone(), start: self.clock.monotonic(), labels }
    }

    /// Counts the end of a reconcile. `Error` is counted in `reconcile_errors_total` too.
    pub fn finished(&self, result: ReconcileResult) {
        self.totals[result as usize].inc();
        if result == ReconcileResult::Error {
            self.errors.inc();
        }
    }

    /// Counts a terminal error, in addition to [`finished`](Self::finished).
    pub fn terminal_error(&self) {
        self.terminal_errors.inc();
    }

    /// Counts a panic, in addition to [`finished`](Self::finished).
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a timeout, in addition to [`finished`](Self::finished).
    pub fn timed_out(&self) {
        self.timeouts.inc();
    }
}

/// A reconcile in progress.
#[derive(Debug)]
pub struct ActiveWorker {
    metrics: ControllerMetrics,
    start: Duration,
    labels: Option<ExemplarLabels>,
}

impl Drop for ActiveWorker {
    fn drop(&mut self) {
        self.metrics.active.dec();
        let took = self.metrics.clock.monotonic().saturating_sub(self.start);
        self.metrics.seconds.observe(took.as_secs_f64());
        if let Some(labels) = self.labels.take() {
            let (value, time) = (took.as_secs_f64(), self.metrics.clock.now());
            self.metrics.exemplars.observe(Exemplar { labels, value, time });
        }
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::VirtualClock;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn counts_and_times_reconciles() {
        let metrics = Metrics::new(VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let controller = metrics.controller("at", 1);
        let worker = controller.started();
        assert!(metrics.encode().unwrap().contains("controller_runtime_active_workers{controller=\"at\"} 1"));
        tokio::time::advance(Duration::from_millis(1500)).await;
        drop(worker);
        controller.finished(ReconcileResult::Error);
        controller.terminal_error();
        controller.finished(ReconcileResult::RequeueAfter);
        let text = metrics.encode().unwrap();
        for line in [
            "controller_runtime_active_workers{controller=\"at\"} 0",
            "controller_runtime_reconcile_errors_total{controller=\"at\"} 1",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"at\"} 1",
            "controller_runtime_reconcile_total{controller=\"at\",result=\"error\"} 1",
            "controller_runtime_reconcile_total{controller=\"at\",result=\"requeue_after\"} 1",
            "controller_runtime_reconcile_total{controller=\"at\",result=\"success\"} 0",
            "controller_runtime_reconcile_time_seconds_sum{controller=\"at\"} 1.5",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"at\",le=\"1.25\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"at\",le=\"1.5\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    /// None before the first request for OpenMetrics, then the latest of each bucket.
    #[tokio::test(start_paused = true)]
    async fn exemplars_are_kept_after_the_first_request() {
        let metrics = Metrics::new(VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
        let controller = metrics.controller("at", 1);
        let run = async |id: &str, millis| {
            let worker = controller.started_as(|| vec![("reconcile_id", id.into())]);
            tokio::time::advance(Duration::from_millis(millis)).await;
            drop(worker);
        };
        run("unseen", 10).await;
        let exemplars = || {
            let text = metrics.encode_open_metrics();
            let lines = text.lines().filter(|line| line.contains(" # {"));
            lines.map(|line| line.split_once("le=").expect("a bucket").1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(exemplars(), [""; 0]);
        run("first", 10).await;
        run("second", 10).await;
        run("long", 100_000).await;
        drop(controller.started());
        let second = "\"0.01\"} 4 # {reconcile_id=\"second\"} 0.01 0.030";
        let long = "\"+Inf\"} 5 # {reconcile_id=\"long\"} 100 100.030";
        assert_eq!(exemplars(), [second, long]);
        metrics.forget("at");
        assert_eq!(exemplars(), [""; 0]);
    }
}
