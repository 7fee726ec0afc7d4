//! OpenMetrics, the text format that has exemplars: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::exemplars::Exemplar;

/// The content type of OpenMetrics.
pub const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the exemplars of a histogram by its buckets, or nothing.
pub(super) type FindExemplars<'a> = dyn Fn(&MetricFamily, &Metric) -> Vec<Option<Exemplar>> + 'a;

/// Returns whether an `Accept` header prefers OpenMetrics to Prometheus' own text format, as Prometheus' does.
pub(crate) fn is_preferred(accept: &str) -> bool {
    let (mut open_metrics, mut others) = (0.0_f64, 0.0_f64);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters = || parts.clone().filter_map(|part| part.split_once('='));
        let parameter = |name: &str| parameters().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        let weight = parameter("q").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        let is_known = parameter("version").is_none_or(|version| ["1.0.0", "0.0.1"].contains(&version));
        match media_type.as_str() {
            "application/openmetrics-text" if is_known => open_metrics = open_metrics.max(weight),
            "text/plain" => others = others.max(weight),
            _ => {}
        }
    }
    open_metrics > 0.0 && open_metrics >= others
}

/// Returns the families as OpenMetrics.
pub(super) fn encode(families: &[MetricFamily], exemplars: &FindExemplars<'_>) -> String {
    let mut text = Text(String::new());
    for family in families.iter().filter(|family| !family.get_metric().is_empty()) {
        text.family(family, exemplars);
    }
    text.0.push_str("# EOF\n");
    text.0
}

/// The text so far. Writing to a string doesn't fail.
struct Text(String);

impl Text {
    fn family(&mut self, family: &MetricFamily, exemplars: &FindExemplars<'_>) {
        let name = family.name();
        // A counter's family has the name without the suffix of its samples. One without the suffix can't be a counter
        // here.
        let (name, kind) = match (family.get_field_type(), name.strip_suffix("_total")) {
            (MetricType::COUNTER, Some(short)) => (short, "counter"),
            (MetricType::COUNTER, None) | (MetricType::UNTYPED, _) => (name, "unknown"),
            (MetricType::GAUGE, _) => (name, "gauge"),
            (MetricType::HISTOGRAM, _) => (name, "histogram"),
            (MetricType::SUMMARY, _) => (name, "summary"),
        };
        self.line(format_args!("# HELP {name} {}", escaped(family.help())));
        self.line(format_args!("# TYPE {name} {kind}"));
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::COUNTER => self.sample(family.name(), "", metric, None, metric.get_counter().get_value()),
                MetricType::GAUGE => self.sample(name, "", metric, None, metric.get_gauge().get_value()),
                MetricType::HISTOGRAM => self.histogram(name, metric, &exemplars(family, metric)),
                MetricType::SUMMARY => self.summary(name, metric),
                // The crate has no metrics of this type.
                MetricType::UNTYPED => {}
            }
        }
    }

    fn histogram(&mut self, name: &str, metric: &Metric, exemplars: &[Option<Exemplar>]) {
        let histogram = metric.get_histogram();
        let (count, sum) = (histogram.get_sample_count(), histogram.get_sample_sum());
        let bounded = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound() < f64::INFINITY);
        let buckets = bounded.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        for (number, (bound, within)) in buckets.chain([(f64::INFINITY, count)]).enumerate() {
            self.name_and_labels(name, "_bucket", metric.get_label(), Some(("le", bound)));
            let _ = write!(self.0, " {within}");
            if let Some(exemplar) = exemplars.get(number).and_then(Option::as_ref) {
                self.exemplar(exemplar);
            }
            self.0.push('\n');
        }
        self.sample(name, "_sum", metric, None, sum);
        self.name_and_labels(name, "_count", metric.get_label(), None);
        self.line(format_args!(" {count}"));
    }

    fn summary(&mut self, name: &str, metric: &Metric) {
        let summary = metric.get_summary();
        for quantile in summary.get_quantile() {
            self.sample(name, "", metric, Some(("quantile", quantile.quantile())), quantile.value());
        }
        self.sample(name, "_sum", metric, None, summary.sample_sum());
        self.name_and_labels(name, "_count", metric.get_label(), None);
        self.line(format_args!(" {}", summary.sample_count()));
    }

    fn sample(&mut self, name: &str, suffix: &str, metric: &Metric, label: Option<(&str, f64)>, value: f64) {
        self.name_and_labels(name, suffix, metric.get_label(), label);
        self.line(format_args!(" {}", number(value)));
    }

    fn name_and_labels(&mut self, name: &str, suffix: &str, labels: &[LabelPair], label: Option<(&str, f64)>) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let labels = labels.iter().map(|pair| (pair.name(), pair.value().to_owned()));
        let labels = labels.chain(label.map(|(name, value)| (name, canonical(value)))).collect::<Vec<_>>();
        if !labels.is_empty() {
            self.labels(labels.iter().map(|(name, value)| (*name, value.as_str())));
        }
    }

    fn labels<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) {
        let pairs = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let _ = write!(self.0, "{{{}}}", pairs.collect::<Vec<_>>().join(","));
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        self.0.push_str(" # ");
        self.labels(exemplar.labels.iter().map(|(name, value)| (*name, value.as_str())));
        let (value, time) = (number(exemplar.value), exemplar.time.as_duration().as_secs_f64());
        let _ = write!(self.0, " {value} {time:.3}");
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{line}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value => value.to_string(),
    }
}

/// Returns a number as the value of a label, which has a fraction in any case: `1.0`.
fn canonical(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { number(value) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prometheus::{Histogram, HistogramOpts, IntCounter, IntGaugeVec, Opts, Registry};

    use super::*;

    #[test]
    fn families_are_written_with_exemplars() {
        let registry = Registry::new();
        let counter = IntCounter::new("cows_total", "How many \"cows\".").unwrap();
        let odd = IntCounter::new("pigs", "Pigs.").unwrap();
        let gauges = IntGaugeVec::new(Opts::new("sheep", "Sheep."), &["field"]).unwrap();
        let options = HistogramOpts::new("milking_seconds", "Milking.").buckets(vec![0.5, 1.0]);
        let histogram = Histogram::with_opts(options).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        registry.register(Box::new(odd)).unwrap();
        registry.register(Box::new(gauges.clone())).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        counter.inc_by(3);
        gauges.with_label_values(&["by the \\ \"river\"\n"]).set(-2);
        [0.25, 0.75, 4.0].into_iter().for_each(|seconds| histogram.observe(seconds));
        let exemplar = |value| {
            let time = Timestamp::from_millisecond(1_700_000_000_250).unwrap();
            Some(Exemplar { labels: vec![("reconcile_id", "a\"b".into()), ("trace_id", "c".into())], value, time })
        };
        let text = encode(&registry.gather(), &|family, _| match family.name() {
            "milking_seconds" => vec![None, exemplar(0.75), exemplar(4.0)],
            _ => Vec::new(),
        });
        let expected = r##"# HELP cows How many \"cows\".
# TYPE cows counter
cows_total 3
# HELP milking_seconds Milking.
# TYPE milking_seconds histogram
milking_seconds_bucket{le="0.5"} 1
milking_seconds_bucket{le="1.0"} 2 # {reconcile_id="a\"b",trace_id="c"} 0.75 1700000000.250
milking_seconds_bucket{le="+Inf"} 3 # {reconcile_id="a\"b",trace_id="c"} 4 1700000000.250
milking_seconds_sum 5
milking_seconds_count 3
# HELP pigs Pigs.
# TYPE pigs unknown
pigs 0
# HELP sheep Sheep.
# TYPE sheep gauge
sheep{field="by the \\ \"river\"\n"} -2
# EOF
"##;
        assert_eq!(text, expected);
    }

    #[test]
    fn the_format_is_negotiated() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [prometheus, "application/openmetrics-text", "text/plain, Application/OpenMetrics-Text; q=1"] {
            assert!(is_preferred(accept), "{accept}");
        }
        let refused = "application/openmetrics-text;version=2.0.0,text/plain";
        for accept in ["", "*/*", "text/plain", "application/openmetrics-text;q=0", refused] {
            assert!(!is_preferred(accept), "{accept}");
        }
        assert!(!is_preferred("application/openmetrics-text;q=0.4,text/plain;q=0.5"));
        assert!(!is_preferred("application/openmetrics-text;q=x"));
    }
}
