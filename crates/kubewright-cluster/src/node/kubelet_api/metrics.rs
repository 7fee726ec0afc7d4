//! Metrics in Prometheus' text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use kubewright_apimachinery::status::Status;
use prometheus::{
    TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

/// Returns a metric without samples: a counter if its name says so, otherwise a gauge.
pub(super) fn family(name: &str, help: &str) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(if name.ends_with("_total") { MetricType::COUNTER } else { MetricType::GAUGE });
    family
}

/// Returns a histogram without samples.
pub(super) fn histogram(name: &str, help: &str) -> MetricFamily {
    let mut family = family(name, help);
    family.set_field_type(MetricType::HISTOGRAM);
    family
}

/// Adds the sample of a histogram: how many values there are up to each bound, and their number and sum.
pub(super) fn add_histogram(
    family: &mut MetricFamily,
    labels: &[(&str, &str)],
    classes: impl Iterator<Item = (f64, u64)>,
    (count, sum): (u64, f64),
) {
    let mut histogram = Histogram::default();
    let bucket = |(bound, count): (f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    histogram.set_bucket(classes.map(bucket).collect());
    histogram.set_sample_count(count);
    histogram.set_sample_sum(sum);
    let mut metric = labeled(labels);
    metric.set_histogram(histogram);
    family.mut_metric().push(metric);
}

fn labeled(labels: &[(&str, &str)]) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.iter().map(pair).collect());
    metric
}

/// Adds a sample. Its time is in milliseconds since 1970; 0 stands for none.
pub(super) fn add_sample(family: &mut MetricFamily, labels: &[(&str, &str)], value: f64, at: i64) {
    let mut metric = labeled(labels);
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
