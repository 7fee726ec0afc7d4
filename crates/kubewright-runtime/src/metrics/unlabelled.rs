//! Metrics without labels, whose values are read when they are collected.

use prometheus::{
    core::Desc,
    proto::{Counter, Gauge, Metric, MetricFamily, MetricType},
};

/// Returns the description of a metric.
///
/// # Errors
/// If the name isn't valid.
pub(super) fn desc(name: &str, help: &str) -> prometheus::Result<Desc> {
    Desc::new(name.into(), help.into(), Vec::new(), Default::default())
}

/// Returns the family of a metric with its value: a counter or a gauge.
pub(super) fn family(name: &str, help: &str, is_counter: bool, value: f64) -> MetricFamily {
    let mut metric = Metric::default();
    let kind = if is_counter {
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
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(vec![metric]);
    family
}
