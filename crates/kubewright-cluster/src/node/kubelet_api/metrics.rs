//! Metrics in Prometheus' text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use kubewright_apimachinery::status::Status;
use prometheus::{
    TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

/// Returns a metric without samples: a counter if its name says so, otherwise a gauge.
pub(super) fn family(name: &str, help: &str) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(if name.ends_with("_total") { MetricType::COUNTER } else { MetricType::GAUGE });
    family
}

/// Adds a sample. Its time is in milliseconds since 1970; 0 stands for none.
pub(super) fn add_sample(family: &mut MetricFamily, labels: &[(&str, &str)], value: f64, at: i64) {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.iter().map(pair).collect());
    metric.set_timestamp_ms(at);
    if family.get_field_type() == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    family.mut_metric().push(metric);
}

/// Returns the text of metrics; those without samples are left out.
///
/// # Errors
/// If a metric has no name.
pub(super) fn write(mut families: Vec<MetricFamily>) -> Result<String, Status> {
    families.retain(|family| !family.get_metric().is_empty());
    let text = TextEncoder::new().encode_to_string(&families);
    text.map_err(|error| Status::internal(format!("failed to write the metrics of the node: {error}")))
}
