//! Metrics of pods, objects and external systems, which extension API servers serve. Pure: the requests are made by the
//! reconcile loop, and their answers are passed in.
//!
//! The paths are those of kube-controller-manager
//! (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#support-for-metrics-apis>).

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{milli_quantity, registry::Registry};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    calculator::{Metric, Sample, Samples, Target, by_average, by_value, thousandths},
    metrics::{Computed, Failed, Workload, tolerances},
};
use crate::controllers::{
    reconcile::Answers,
    value::{holds, list, number, text, time},
};

const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
/// The versions of [`CUSTOM`], the preferred one first.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const EXTERNAL_VERSION: &str = "v1beta1";
/// The time over which a value was measured, unless the answer says so.
const WINDOW: Duration = Duration::from_secs(60);

/// The APIServices of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MetricServices {
    /// The groups and versions that have an APIService, such as `custom.metrics.k8s.io/v1beta2`.
    existing: BTreeSet<String>,
    /// Those whose server can be reached.
    available: BTreeSet<String>,
}

impl MetricServices {
    /// Takes a change of an APIService.
    pub(super) fn take(&mut self, service: &Value, deleted: bool) {
        if ![CUSTOM, EXTERNAL].contains(&text(service, "/spec/group")) {
            return;
        }
        let version = format!("{}/{}", text(service, "/spec/group"), text(service, "/spec/version"));
        for (set, holds) in [(&mut self.existing, true), (&mut self.available, holds(service, "Available"))] {
            if holds && !deleted {
                set.insert(version.clone());
            } else {
                set.remove(&version);
            }
        }
    }

    /// Returns the group and version of custom metrics. An unavailable one isn't in the discovery of the API server.
    fn custom(&self) -> Option<String> {
        CUSTOM_VERSIONS
            .map(|version| format!("{CUSTOM}/{version}"))
            .into_iter()
            .find(|version| self.available.contains(version))
    }

    fn has_external(&self) -> bool {
        self.existing.contains(&format!("{EXTERNAL}/{EXTERNAL_VERSION}"))
    }
}

/// The APIs of metrics, and what they have answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricApis<'a> {
    pub(super) services: &'a MetricServices,
    /// Knows the resources of the kinds of objects.
    pub(super) registry: &'a Registry,
    pub(super) answers: &'a Answers,
}

impl MetricApis<'_> {
    /// Returns the path of a metric's values, if it isn't one of resources.
    ///
    /// # Errors
    /// The reason why no request can be made.
    fn path(&self, metric: &Value, namespace: &str, pods: &str) -> Option<Result<String, String>> {
        let query = |parameters: &[(&str, &str)]| {
            let given = parameters.iter().filter(|(_, value)| !value.is_empty());
            let given = given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
            let given: Vec<_> = given.collect();
            if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
        };
        let custom = |rest: String| match self.services.custom() {
            Some(version) => Ok(format!("/apis/{version}/namespaces/{namespace}/{rest}")),
            None => Err(format!("no custom metrics API ({CUSTOM}) registered")),
        };
        Some(match text(metric, "/type") {
            "Pods" => {
                let metric = &metric["pods"]["metric"];
                let query = query(&[("labelSelector", pods), ("metricLabelSelector", &selector(metric))]);
                custom(format!("pods/*/{}{query}", text(metric, "/name")))
            }
            "Object" => {
                let (object, metric) = (&metric["object"]["describedObject"], &metric["object"]["metric"]);
                let query = query(&[("metricLabelSelector", &selector(metric))]);
                let name = text(metric, "/name");
                // A namespace is always that of the autoscaler.
                match self.resource(object) {
                    Ok(resource) if resource == "namespaces" => custom(format!("metrics/{name}{query}")),
                    Ok(resource) => custom(format!("{resource}/{}/{name}{query}", text(object, "/name"))),
                    Err(why) => custom(String::new()).and(Err(why)),
                }
            }
            "External" => {
                let metric = &metric["external"]["metric"];
                let (name, query) = (text(metric, "/name"), query(&[("labelSelector", &selector(metric))]));
                match self.services.has_external() {
                    true => Ok(format!("/apis/{EXTERNAL}/{EXTERNAL_VERSION}/namespaces/{namespace}/{name}{query}")),
                    false => Err(format!("the server could not find the requested resource (get {name}.{EXTERNAL})")),
                }
            }
            _ => return None,
        })
    }

    /// Returns the resource of an object, such as `services` or `ingresses.networking.k8s.io`.
    fn resource(&self, object: &Value) -> Result<String, String> {
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = text(object, "/kind");
        match self.registry.first_of_kind(group, kind) {
            Some(resource) if group.is_empty() => Ok(resource.plural.to_string()),
            Some(resource) => Ok(format!("{}.{group}", resource.plural)),
            None => {
                let name = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
                Err(format!("unable to map kind {name} to resource: no matches for kind {kind:?} in group {group:?}"))
            }
        }
    }
}

/// Returns the selector of a metric as text.
fn selector(metric: &Value) -> String {
    let selector = metric.get("selector").and_then(|selector| LabelSelector::from_object(selector).ok());
    selector.map(|selector| selector.to_string()).unwrap_or_default()
}

impl Workload<'_> {
    /// Returns the path of a metric whose values have to be read before it can be computed.
    pub(super) fn unread(&self, metric: &Value) -> Option<String> {
        let path = self.apis.path(metric, self.namespace, self.selector)?.ok()?;
        (!self.apis.answers.contains_key(&path)).then_some(path)
    }

    /// Returns the values of a metric, with the name of the API for errors.
    fn values(&self, metric: &Value, api: &str) -> Result<Vec<Value>, String> {
        let unable = |why: String| format!("unable to fetch metrics from {api} metrics API: {why}");
        let path = self.apis.path(metric, self.namespace, self.selector).unwrap_or_else(|| Ok(String::new()));
        let unanswered = || Err("the request was not made".to_owned());
        let answer = path.and_then(|path| self.apis.answers.get(&path).cloned().unwrap_or_else(unanswered));
        let values = list(&answer.map_err(unable)?, "/items").to_vec();
        if values.is_empty() {
            return Err(format!("no metrics returned from {api} metrics API"));
        }
        Ok(values)
    }

    /// Computes a metric of the workload's pods.
    pub(super) fn pods_metric(&self, spec: &Value, metric: &Value, now: Timestamp) -> Result<Computed, Failed> {
        let of = &metric["pods"];
        let name = text(of, "/metric/name");
        let failed = |message: String| Failed {
            reason: "FailedGetPodsMetric",
            summary: format!("failed to get pods metric value: {message}"),
            message,
        };
        let values = self.values(metric, "custom");
        let values = values.map_err(|why| failed(format!("unable to get metric {name}: {why}")))?;
        let samples: Samples = values.iter().filter_map(|value| sample(value, now)).collect();
        let target = of.pointer("/target/averageValue").and_then(thousandths).unwrap_or_default();
        let calculator =
            Metric { resource: "", container: "", target: Target::Average(target), tolerances: tolerances(spec) };
        let proposal = calculator.propose(self.replicas, samples, self.pods, now).map_err(failed)?;
        let current = json!({"averageValue": milli_quantity(proposal.average, false)});
        Ok(Computed {
            replicas: proposal.replicas,
            name: format!("pods metric {name}"),
            status: json!({"type": "Pods", "pods": {"metric": of["metric"], "current": current}}),
        })
    }

    /// Computes a metric of one object.
    pub(super) fn object_metric(&self, spec: &Value, metric: &Value) -> Result<Computed, Failed> {
        let (of, object) = (&metric["object"], &metric["object"]["describedObject"]);
        let name = text(of, "/metric/name");
        let kind = text(object, "/kind");
        let target = SharedTarget::of(of).filter(|target| target.kind() == text(of, "/target/type"));
        let failed = |message: String| {
            let inner = match target {
                Some(SharedTarget::Average(_)) => format!("failed to get {name} object metric: {message}"),
                _ => message.clone(),
            };
            let summary = format!("failed to get object metric value: {inner}");
            Failed { reason: "FailedGetObjectMetric", summary, message }
        };
        let Some(target) = target else {
            let why = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(failed(why.into()));
        };
        let one = self.values(metric, "custom").and_then(|values| match values.as_slice() {
            [one] => Ok(one["value"].clone()),
            all => Err(format!(
                "unable to fetch metrics from custom metrics API: the custom metrics API server returned {} results when we \
                 asked for exactly one",
                all.len()
            )),
        });
        let (namespace, object_name) = (self.namespace, text(object, "/name"));
        // The order of the words is that of kube-controller-manager.
        let one = one
            .map_err(|why| failed(format!("unable to get metric {name}: {kind} on {namespace} {object_name}/{why}")));
        let (replicas, current) = self.shared(spec, target, thousandths(&one?).unwrap_or_default()).map_err(failed)?;
        let shown_name = match target {
            SharedTarget::Value(_) => format!("{kind} metric {name}"),
            // As in Kubernetes.
            SharedTarget::Average(_) => format!("external metric {name}({})", shown(&of["metric"]["selector"])),
        };
        let status = json!({"describedObject": object, "metric": of["metric"], "current": current});
        Ok(Computed { replicas, name: shown_name, status: json!({"type": "Object", "object": status}) })
    }

    /// Computes a metric of an external system.
    pub(super) fn external_metric(&self, spec: &Value, metric: &Value) -> Result<Computed, Failed> {
        let of = &metric["external"];
        let name = text(of, "/metric/name");
        let labels = shown(&of["metric"]["selector"]);
        let target = SharedTarget::of(of);
        let failed = |message: String| {
            let inner = match target {
                Some(SharedTarget::Average(_)) => format!("failed to get {name} external metric: {message}"),
                Some(SharedTarget::Value(_)) => format!("failed to get external metric {name}: {message}"),
                None => message.clone(),
            };
            let summary = format!("failed to get {name} external metric value: {inner}");
            Failed { reason: "FailedGetExternalMetric", summary, message }
        };
        let Some(target) = target else {
            let why = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(failed(why.into()));
        };
        let values = self.values(metric, "external");
        let values = values.map_err(|why| {
            failed(format!("unable to get external metric {}/{name}/{labels}: {why}", self.namespace))
        })?;
        let used = values.iter().filter_map(|value| thousandths(&value["value"])).fold(0, i64::saturating_add);
        let (replicas, current) = self.shared(spec, target, used).map_err(failed)?;
        Ok(Computed {
            replicas,
            name: format!("external metric {name}({labels})"),
            status: json!({"type": "External", "external": {"metric": of["metric"], "current": current}}),
        })
    }

    /// Returns the replicas for an amount that all pods share, and the current value for the status.
    fn shared(&self, spec: &Value, target: SharedTarget, used: i64) -> Result<(i64, Value), String> {
        let tolerances = tolerances(spec);
        match target {
            SharedTarget::Value(target) => {
                let replicas = by_value(used, target, self.replicas, self.pods, tolerances)?;
                Ok((replicas, json!({"value": milli_quantity(used, false)})))
            }
            SharedTarget::Average(target) => {
                let (replicas, average) = by_average(used, target, self.observed_replicas, tolerances);
                Ok((replicas, json!({"averageValue": milli_quantity(average, false)})))
            }
        }
    }
}

/// The target of a metric that doesn't belong to single pods, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SharedTarget {
    /// The whole amount.
    Value(i64),
    /// The amount by pod.
    Average(i64),
}

impl SharedTarget {
    /// Returns the target of a metric. One of both kinds counts as an average.
    fn of(metric: &Value) -> Option<Self> {
        let amount = |field: &str| metric["target"].get(field).and_then(thousandths);
        amount("averageValue").map(Self::Average).or_else(|| amount("value").map(Self::Value))
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Value(_) => "Value",
            Self::Average(_) => "AverageValue",
        }
    }
}

/// Returns the pod of a value, and what was measured.
fn sample(value: &Value, now: Timestamp) -> Option<(String, Sample)> {
    // The field has another name in `v1beta1`.
    let window = number(value, "/windowSeconds").or_else(|| number(value, "/window"));
    let window = window.and_then(|seconds| u64::try_from(seconds).ok()).map_or(WINDOW, Duration::from_secs);
    let at = time(value, "/timestamp").unwrap_or(now);
    let amount = thousandths(&value["value"])?;
    Some((text(value, "/describedObject/name").to_owned(), Sample { at, window, value: amount }))
}

/// Formats a selector as Go prints its struct.
fn shown(selector: &Value) -> String {
    let Some(_) = selector.as_object() else { return "nil".into() };
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let requirement = |one: &Value| {
        let values: Vec<_> = list(one, "/values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (text(one, "/key"), text(one, "/operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let requirements: String = list(selector, "/matchExpressions").iter().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{\
         {requirements}}},}}"
    )
}
