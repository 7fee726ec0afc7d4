//! `process_*`: the metrics of this process.

use kubewright_apimachinery::process::{PROCESS_METRICS, ProcessMetric};
use prometheus::{
    core::{Collector, Desc},
    proto::{Counter, Gauge, Metric, MetricFamily, MetricType},
};

/// A collector of the metrics of this process. It is empty on systems without `/proc`.
pub(super) struct ProcessCollector(Vec<Desc>);

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let desc =
            |metric: &ProcessMetric| Desc::new(metric.name.into(), metric.help.into(), Vec::new(), Default::default());
        Ok(Self(PROCESS_METRICS.iter().map(desc).collect::<prometheus::Result<_>>()?))
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        PROCESS_METRICS.iter().filter_map(|metric| Some(family(metric, metric.value()?))).collect()
    }
}

fn family(process: &ProcessMetric, value: f64) -> MetricFamily {
    let mut metric = Metric::default();
    let kind = if process.is_counter {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
        MetricType::COUNTER
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
        MetricType::GAUGE
    };
    let mut family = MetricFamily::default();
    family.set_name(process.name.into());
    family.set_help(process.help.into());
    family.set_field_type(kind);
    family.set_metric(vec![metric]);
    family
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
