//! `tokio_*`: the metrics of the async runtime that tokio keeps anyway.

use prometheus::{
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tokio::runtime::{Handle, RuntimeMetrics};

use super::unlabelled;

/// A metric of a runtime.
struct TokioMetric {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    value: fn(&RuntimeMetrics) -> f64,
}

#[expect(clippy::cast_precision_loss, reason = "no runtime has 2^52 of anything")]
const METRICS: [TokioMetric; 5] = [
    TokioMetric {
        name: "tokio_workers",
        help: "Worker threads of the runtime.",
        is_counter: false,
        value: |runtime| runtime.num_workers() as f64,
    },
    TokioMetric {
        name: "tokio_alive_tasks",
        help: "Tasks that have not ended.",
        is_counter: false,
        value: |runtime| runtime.num_alive_tasks() as f64,
    },
    TokioMetric {
        name: "tokio_global_queue_depth",
        help: "Tasks that wait in the queue of all workers.",
        is_counter: false,
        value: |runtime| runtime.global_queue_depth() as f64,
    },
    TokioMetric {
        name: "tokio_worker_busy_seconds_total",
        help: "Time that the workers were busy, together.",
        is_counter: true,
        value: |runtime| {
            (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker).as_secs_f64()).sum()
        },
    },
    TokioMetric {
        name: "tokio_worker_parks_total",
        help: "How often a worker had nothing to do, together.",
        is_counter: true,
        value: |runtime| (0..runtime.num_workers()).map(|worker| runtime.worker_park_count(worker) as f64).sum(),
    },
];

/// A collector of the metrics of the runtime in which they are collected. It is empty outside of one.
pub(super) struct TokioCollector(Vec<Desc>);

impl TokioCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let desc = |metric: &TokioMetric| unlabelled::desc(metric.name, metric.help);
        Ok(Self(METRICS.iter().map(desc).collect::<prometheus::Result<_>>()?))
    }
}

impl Collector for TokioCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Ok(runtime) = Handle::try_current() else { return Vec::new() };
        let runtime = runtime.metrics();
        let family = |metric: &TokioMetric| {
            unlabelled::family(metric.name, metric.help, metric.is_counter, (metric.value)(&runtime))
        };
        METRICS.iter().map(family).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<(String, f64)> {
        let families = TokioCollector::new().expect("valid names").collect();
        let value = |family: &MetricFamily| {
            let metric = &family.get_metric()[0];
            let counter = metric.get_counter().get_value();
            (family.name().to_owned(), metric.get_gauge().get_value() + counter)
        };
        families.iter().map(value).collect()
    }

    #[test]
    fn the_runtime_in_which_they_are_collected_counts() {
        assert!(values().is_empty(), "there is none");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let found = runtime.block_on(async {
            let waiting = tokio::spawn(std::future::pending::<()>());
            let found = values();
            waiting.abort();
            found
        });
        assert_eq!(found.len(), METRICS.len());
        assert_eq!(found[..2], [("tokio_workers".to_owned(), 2.0), ("tokio_alive_tasks".to_owned(), 1.0)]);
    }
}
