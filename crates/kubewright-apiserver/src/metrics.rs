//! The server's metrics, under kube-apiserver's names
//! (<https://kubernetes.io/docs/reference/instrumentation/metrics/>).
//!
//! Requests are counted by static labels and by the names of served resources, in a table of limited size. The table is
//! much smaller than the vectors of the `prometheus` crate, since a process may run hundreds of servers; the crate only
//! writes the text.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use kubewright_apimachinery::process::PROCESS_METRICS;
use parking_lot::Mutex;
use prometheus::{
    Encoder, TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::{
    flow_control::Limits,
    registry::Resource,
    version::{MAJOR, MINOR, VERSION},
};

/// The upper bounds of the buckets of request durations in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// The maximum number of different labels. Requests with further labels are counted without the resource.
const MAX_LABELS: usize = 4_000;
/// The value of `component`.
const COMPONENT: &str = "apiserver";

/// The resource and the verb of a request, and whatever else its labels consist of. A clone copies no names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// `None` for a non-resource request.
    pub(crate) resource: Option<Arc<Resource>>,
    pub(crate) verb: &'static str,
    /// The subresource; for a non-resource request, the path.
    pub(crate) subresource: &'static str,
    /// `resource`, `namespace`, `cluster`, or empty for a non-resource request.
    pub(crate) scope: &'static str,
    pub(crate) dry_run: bool,
}

impl Labels {
    /// Returns the labels with these names: the plural, the group and the version of the resource.
    fn key<'a>(&self, [resource, group, version]: [&'a str; 3]) -> Key<&'a str> {
        let Self { verb, subresource, scope, dry_run, .. } = *self;
        Key { resource, verb, subresource, group, version, scope, dry_run }
    }

    /// Returns the plural, the group and the version of the resource; empty for a non-resource request.
    fn names(&self) -> [&str; 3] {
        match &self.resource {
            Some(resource) => [&resource.plural, &resource.group, &resource.version],
            None => [""; 3],
        }
    }
}

/// The labels of requests that are counted together, by which they are sorted. The names are owned in the list, and
/// borrowed to look for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key<S> {
    // What differs most comes first, since each request is looked up.
    resource: S,
    verb: &'static str,
    subresource: &'static str,
    group: S,
    version: S,
    scope: &'static str,
    dry_run: bool,
}

impl Key<&str> {
    fn to_owned(self) -> Key<Box<str>> {
        let Self { resource, verb, subresource, group, version, scope, dry_run } = self;
        let [resource, group, version] = [resource, group, version].map(Into::into);
        Key { resource, verb, subresource, group, version, scope, dry_run }
    }
}

impl Key<Box<str>> {
    fn borrowed(&self) -> Key<&str> {
        let Self { verb, subresource, scope, dry_run, .. } = *self;
        Key { resource: &self.resource, verb, subresource, group: &self.group, version: &self.version, scope, dry_run }
    }

    fn pairs(&self) -> Vec<LabelPair> {
        // Kubernetes leaves the component out for these paths.
        let component = match self.subresource {
            "/healthz" | "/livez" | "/readyz" | "openapi/v2" | "openapi/v3" => "",
            _ => COMPONENT,
        };
        [
            ("component", component),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
        .map(|(name, value)| pair(name, value))
        .into()
    }

    /// Returns the labels of counters and durations. `dry_run` is missing for long-running requests.
    fn pairs_with_dry_run(&self) -> Vec<LabelPair> {
        let mut pairs = self.pairs();
        pairs.insert(1, pair("dry_run", if self.dry_run { "All" } else { "" }));
        pairs
    }
}

/// The requests with the same labels.
#[derive(Debug, Default)]
struct Requests {
    labels: Key<Box<str>>,
    /// The number of responses by code.
    codes: Vec<(u16, u64)>,
    /// The number of requests in each bucket, and above the last one.
    buckets: [u32; BUCKETS.len() + 1],
    seconds: f64,
    /// The number of long-running requests that have not ended.
    running: u32,
}

/// The metrics of one server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Sorted by their labels.
    requests: Mutex<Vec<Requests>>,
    /// The number of requests in progress that don't change anything, and of those that do.
    in_flight: [AtomicI64; 2],
}

/// Counts a request as in progress until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'m> {
    metrics: &'m Metrics,
    mutating: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight[usize::from(self.mutating)].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a long-running request as running until it is dropped.
#[derive(Debug)]
pub(crate) struct LongRunning {
    metrics: Arc<Metrics>,
    labels: Labels,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        self.metrics.with(&self.labels, |requests| requests.running = requests.running.saturating_sub(1));
    }
}

impl Metrics {
    /// Counts a request as in progress.
    pub(crate) fn begin(&self, mutating: bool) -> InFlight<'_> {
        self.in_flight[usize::from(mutating)].fetch_add(1, Ordering::Relaxed);
        InFlight { metrics: self, mutating }
    }

    /// Counts a long-running request as running.
    pub(crate) fn begin_long_running(self: &Arc<Self>, labels: Labels) -> LongRunning {
        self.with(&labels, |requests| requests.running += 1);
        LongRunning { metrics: self.clone(), labels }
    }

    /// Counts a response, and the time it took.
    pub(crate) fn record(&self, labels: &Labels, code: u16, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.with(labels, |requests| {
            match requests.codes.iter_mut().find(|(known, _)| *known == code) {
                Some((_, count)) => *count += 1,
                None => requests.codes.push((code, 1)),
            }
            requests.buckets[bucket] = requests.buckets[bucket].saturating_add(1);
            requests.seconds += seconds;
        });
    }

    fn with(&self, labels: &Labels, change: impl FnOnce(&mut Requests)) {
        let mut all = self.requests.lock();
        let find = |all: &[Requests], key: &Key<&str>| all.binary_search_by(|it| it.labels.borrowed().cmp(key));
        let mut key = labels.key(labels.names());
        let mut found = find(&all, &key);
        if found.is_err() && all.len() >= MAX_LABELS {
            key = labels.key([""; 3]);
            found = find(&all, &key);
        }
        let index = found.unwrap_or_else(|index| {
            all.insert(index, Requests { labels: key.to_owned(), ..Requests::default() });
            index
        });
        change(&mut all[index]);
    }

    /// Returns all metrics as text. `objects` is the number of stored objects by resource and group, `limits` are those
    /// of the priority levels.
    ///
    /// # Errors
    /// If a name is invalid, which a test excludes.
    pub(crate) fn text(
        &self,
        objects: &[((&str, &str), usize)],
        limits: &[(String, Limits)],
    ) -> prometheus::Result<Vec<u8>> {
        let mut families = self.families();
        families.extend(limit_families(limits));
        let full_name = |(resource, group): &(&str, &str)| match *group {
            "" => (*resource).to_owned(),
            group => format!("{resource}.{group}"),
        };
        let by_name = |(name, count): &(_, usize)| gauge(vec![pair("resource", &full_name(name))], *count as f64);
        let by_group = |((resource, group), count): &((&str, &str), usize)| {
            gauge(vec![pair("group", group), pair("resource", resource)], *count as f64)
        };
        families.push(family(
            "apiserver_storage_objects",
            "Number of stored objects split by kind. Deprecated: consider using apiserver_resource_objects instead.",
            MetricType::GAUGE,
            objects.iter().map(by_name).collect(),
        ));
        families.push(family(
            "apiserver_resource_objects",
            "Number of stored objects split by group and resource.",
            MetricType::GAUGE,
            objects.iter().map(by_group).collect(),
        ));
        families.push(family(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by major, minor, git version, compiler and platform from which \
             Kubernetes was built.",
            MetricType::GAUGE,
            vec![gauge(
                vec![
                    pair("compiler", "rustc"),
                    pair("git_version", VERSION),
                    pair("major", MAJOR),
                    pair("minor", MINOR),
                    pair("platform", &format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
                ],
                1.0,
            )],
        ));
        families.extend(PROCESS_METRICS.iter().filter_map(|metric| {
            let value = metric.value()?;
            let (kind, value) = match metric.is_counter {
                true => (MetricType::COUNTER, counter(Vec::new(), value)),
                false => (MetricType::GAUGE, gauge(Vec::new(), value)),
            };
            Some(family(metric.name, metric.help, kind, vec![value]))
        }));
        families.retain(|family| !family.get_metric().is_empty());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text)?;
        Ok(text)
    }

    /// Returns the metrics of requests.
    fn families(&self) -> Vec<MetricFamily> {
        let (mut totals, mut durations, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for requests in &*self.requests.lock() {
            let labels = &requests.labels;
            for (code, count) in &requests.codes {
                let mut pairs = labels.pairs_with_dry_run();
                pairs.insert(0, pair("code", &code.to_string()));
                totals.push(counter(pairs, *count as f64));
            }
            if !requests.codes.is_empty() {
                durations.push(histogram(labels.pairs_with_dry_run(), &requests.buckets, requests.seconds));
            }
            if requests.running > 0 || labels.verb == "WATCH" {
                running.push(gauge(labels.pairs(), f64::from(requests.running)));
            }
        }
        let in_flight = ["readOnly", "mutating"].into_iter().zip(&self.in_flight);
        let in_flight = in_flight
            .map(|(kind, count)| gauge(vec![pair("request_kind", kind)], count.load(Ordering::Relaxed) as f64))
            .collect();
        vec![
            family(
                "apiserver_current_inflight_requests",
                "Number of requests in progress of this apiserver, by kind of request.",
                MetricType::GAUGE,
                in_flight,
            ),
            family(
                "apiserver_longrunning_requests",
                "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
                 scope and component. Not all requests are tracked this way.",
                MetricType::GAUGE,
                running,
            ),
            family(
                "apiserver_request_duration_seconds",
                "Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
                 subresource, scope and component. The latency of a long-running request is the time until it began.",
                MetricType::HISTOGRAM,
                durations,
            ),
            family(
                "apiserver_request_total",
                "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, \
                 component, and HTTP response code.",
                MetricType::COUNTER,
                totals,
            ),
        ]
    }
}

/// Returns the metrics of the limits of priority levels.
fn limit_families(limits: &[(String, Limits)]) -> [MetricFamily; 3] {
    let limit = |name, help, value: fn(&Limits) -> f64| {
        let gauges = limits.iter().map(|(level, limits)| gauge(vec![pair("priority_level", level)], value(limits)));
        family(name, help, MetricType::GAUGE, gauges.collect())
    };
    [
        limit(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Number of requests that each priority level may execute at once if none borrows from another.",
            |limits| limits.nominal,
        ),
        limit(
            "apiserver_flowcontrol_lower_limit_seats",
            "Number of requests that each priority level may execute at once if the others borrow all that it lends.",
            |limits| limits.lower,
        ),
        limit(
            "apiserver_flowcontrol_upper_limit_seats",
            "Number of requests that each priority level may execute at once if it borrows all that it may.",
            |limits| limits.upper,
        ),
    ]
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}

fn labelled(pairs: Vec<LabelPair>) -> Metric {
    let mut metric = Metric::default();
    metric.set_label(pairs);
    metric
}

fn gauge(pairs: Vec<LabelPair>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = labelled(pairs);
    metric.set_gauge(gauge);
    metric
}

fn counter(pairs: Vec<LabelPair>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = labelled(pairs);
    metric.set_counter(counter);
    metric
}

fn histogram(pairs: Vec<LabelPair>, counts: &[u32], seconds: f64) -> Metric {
    let mut total = 0;
    let mut buckets = Vec::with_capacity(BUCKETS.len());
    for (bound, count) in BUCKETS.iter().zip(counts) {
        total += u64::from(*count);
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        buckets.push(bucket);
    }
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(counts.iter().map(|count| u64::from(*count)).sum());
    histogram.set_sample_sum(seconds);
    let mut metric = labelled(pairs);
    metric.set_histogram(histogram);
    metric
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::random::Random;

    use super::*;
    use crate::registry::builtin;

    fn labels(plural: &str) -> Labels {
        let registry = builtin::registry(&Random::seeded(1), &builtin::Indexes::default());
        let mut resource = Resource::clone(&registry.find("", "v1", "pods").unwrap());
        resource.plural = plural.into();
        Labels { verb: "LIST", resource: Some(resource.into()), scope: "cluster", ..Labels::default() }
    }

    #[test]
    fn requests_are_counted_by_code_and_duration() {
        let metrics = Arc::new(Metrics::default());
        metrics.record(&labels("pods"), 200, Duration::from_millis(3));
        metrics.record(&labels("pods"), 200, Duration::from_millis(30));
        metrics.record(&labels("pods"), 410, Duration::from_secs(90));
        let running = metrics.begin_long_running(Labels { verb: "WATCH", ..labels("pods") });
        let _request = metrics.begin(true);
        let text = String::from_utf8(metrics.text(&[(("pods", ""), 7), (("jobs", "batch"), 8)], &[]).unwrap()).unwrap();
        let rest = r#"component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1""#;
        for line in [
            format!("apiserver_request_total{{code=\"200\",{rest}}} 2"),
            format!("apiserver_request_total{{code=\"410\",{rest}}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{rest},le=\"0.005\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{rest},le=\"60\"}} 2"),
            format!("apiserver_request_duration_seconds_bucket{{{rest},le=\"+Inf\"}} 3"),
            format!("apiserver_request_duration_seconds_count{{{rest}}} 3"),
            "apiserver_current_inflight_requests{request_kind=\"mutating\"} 1".into(),
            "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0".into(),
            "apiserver_storage_objects{resource=\"pods\"} 7".into(),
            "apiserver_storage_objects{resource=\"jobs.batch\"} 8".into(),
            "apiserver_resource_objects{group=\"batch\",resource=\"jobs\"} 8".into(),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        let gauge =
            |text: &str| text.lines().find(|line| line.starts_with("apiserver_longrunning")).unwrap().to_owned();
        assert!(gauge(&text).ends_with(" 1"), "{text}");
        drop(running);
        let text = String::from_utf8(metrics.text(&[], &[]).unwrap()).unwrap();
        assert!(gauge(&text).ends_with(" 0"), "{text}");
    }

    #[test]
    fn the_number_of_labels_is_bounded() {
        let (metrics, mut labels) = (Metrics::default(), labels(""));
        let resource = labels.resource.take().unwrap();
        for number in 0..2 * MAX_LABELS {
            let resource = Resource { plural: format!("r{number}").into(), ..Resource::clone(&resource) };
            metrics.record(&Labels { resource: Some(resource.into()), ..labels.clone() }, 200, Duration::ZERO);
        }
        let all = metrics.requests.lock();
        assert_eq!(all.len(), MAX_LABELS + 1);
        assert!(all.is_sorted_by(|one, other| one.labels < other.labels));
        assert_eq!(all[0].labels.borrowed(), labels.key([""; 3]));
        assert_eq!(all[0].codes, [(200, MAX_LABELS as u64)]);
    }
}
