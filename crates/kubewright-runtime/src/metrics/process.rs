//! `process_*`: the metrics of this process.

use kubewright_apimachinery::process::{PROCESS_METRICS, ProcessMetric};
use prometheus::{
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::unlabelled;

/// A collector of the metrics of this process. It is empty on systems without `/proc`.
pub(super) struct ProcessCollector(Vec<Desc>);

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let desc = |metric: &ProcessMetric| unlabelled::desc(metric.name, metric.help);
        Ok(Self(PROCESS_METRICS.iter().map(desc).collect::<prometheus::Result<_>>()?))
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let family = |metric: &ProcessMetric| {
            Some(unlabelled::family(metric.name, metric.help, metric.is_counter, metric.value()?))
        };
        PROCESS_METRICS.iter().filter_map(family).collect()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn all_values_are_collected() {
        let families = ProcessCollector::new().unwrap().collect();
        assert_eq!(families.len(), PROCESS_METRICS.len());
        let threads = families.iter().find(|family| family.name() == "process_threads").unwrap();
        assert!(threads.get_metric()[0].get_gauge().get_value() >= 1.0);
    }
}
