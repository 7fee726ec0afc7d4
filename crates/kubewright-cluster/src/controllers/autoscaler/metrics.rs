//! The metrics of an autoscaler. Pure, except for the source of measurements.
//!
//! Metrics of pods, objects and external systems need APIs that this cluster doesn't have. They are reported as by Kubernetes
//! without these APIs.

use std::sync::Arc;

use jiff::Timestamp;
use kubewright_apiserver::{ResourceMetrics, ResourceUsage, milli_quantity};
use serde_json::{Value, json};

use super::calculator::{Metric, Sample, Samples, Target, Tolerances, thousandths};
use crate::controllers::value::{list, number, text};

/// The tolerance, unless the autoscaler sets one.
const TOLERANCE: f64 = 0.1;

/// The result of one metric.
#[derive(Debug, PartialEq)]
pub(super) struct Computed {
    /// The number of replicas that it asks for.
    pub(super) replicas: i64,
    /// What it is called in conditions and events.
    pub(super) name: String,
    /// The entry of `status.currentMetrics`.
    pub(super) status: Value,
}

/// The failure of one metric.
#[derive(Debug, PartialEq)]
pub(super) struct Failed {
    /// The reason of the condition and the event.
    pub(super) reason: &'static str,
    /// The message of the event.
    pub(super) message: String,
    /// The message as part of that of the whole decision.
    pub(super) summary: String,
}

/// The workload that is scaled.
#[derive(Clone, Copy)]
pub(super) struct Workload<'a> {
    pub(super) namespace: &'a str,
    /// The number of replicas of its specification.
    pub(super) replicas: i64,
    pub(super) pods: &'a [Arc<Value>],
    /// `None` without resource metrics.
    pub(super) source: Option<&'a dyn ResourceMetrics>,
}

impl Workload<'_> {
    /// Computes a metric of an autoscaler's `spec`.
    pub(super) fn compute(&self, spec: &Value, metric: &Value, now: Timestamp) -> Result<Computed, Failed> {
        match text(metric, "/type") {
            "Resource" => self.resource(spec, &metric["resource"], "", now),
            "ContainerResource" => {
                let metric = &metric["containerResource"];
                self.resource(spec, metric, text(metric, "/container"), now)
            }
            "Pods" => Err(pods_metric(&metric["pods"])),
            "Object" => Err(object_metric(&metric["object"], self.namespace)),
            "External" => Err(external_metric(&metric["external"], self.namespace)),
            other => {
                let message = format!("unknown metric source type {other:?}");
                Err(Failed { reason: "InvalidMetricSourceType", summary: message.clone(), message })
            }
        }
    }

    fn resource(&self, spec: &Value, metric: &Value, container: &str, now: Timestamp) -> Result<Computed, Failed> {
        let resource = text(metric, "/name");
        let of_container = !container.is_empty();
        let failed = |message: String| match of_container {
            true => Failed {
                reason: "FailedGetContainerResourceMetric",
                summary: format!("failed to get {container} container metric value: {message}"),
                message,
            },
            false => Failed {
                reason: "FailedGetResourceMetric",
                summary: format!("failed to get {resource} resource metric value: {message}"),
                message,
            },
        };
        let average = metric.pointer("/target/averageValue").and_then(thousandths);
        let (target, what) = match (average, number(metric, "/target/averageUtilization")) {
            (Some(average), _) => (Target::Average(average), "usage"),
            (None, Some(percent)) => (Target::Utilization(percent), "utilization"),
            (None, None) => {
                let why = "invalid resource metric source: neither an average utilization target nor an average value \
                           (usage) target was set";
                return Err(failed(why.into()));
            }
        };
        let why = |error: String| failed(format!("failed to get {resource} {what}: {error}"));
        let samples = self.samples(resource, container);
        let samples =
            samples.map_err(|error| why(format!("unable to get metrics for resource {resource}: {error}")))?;
        let of = Metric { resource, container, target, tolerances: tolerances(spec) };
        let proposal = of.propose(self.replicas, samples, self.pods, now).map_err(why)?;
        let mut current = json!({"averageValue": milli_quantity(proposal.average, resource == "memory")});
        if let Some(utilization) = proposal.utilization {
            current["averageUtilization"] = utilization.into();
        }
        let (kind, field) = match of_container {
            true => ("ContainerResource", "containerResource"),
            false => ("Resource", "resource"),
        };
        let mut status = json!({"type": kind, field: {"name": resource, "current": current}});
        if of_container {
            status[field]["container"] = container.into();
        }
        let name = match (target, of_container) {
            (Target::Average(_), _) => format!("{resource} resource"),
            (_, false) => format!("{resource} resource utilization (percentage of request)"),
            (_, true) => format!("{resource} container resource utilization (percentage of request)"),
        };
        Ok(Computed { replicas: proposal.replicas, name, status })
    }

    /// Returns what the pods use of a resource.
    fn samples(&self, resource: &str, container: &str) -> Result<Samples, String> {
        let Some(source) = self.source else {
            return Err("unable to fetch metrics from resource metrics API: the server could not find the requested \
                        resource (get pods.metrics.k8s.io)"
                .into());
        };
        let running = self.pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
        let measured: Vec<_> =
            running.filter_map(|pod| Some((text(pod, "/metadata/name"), source.pod(pod)?))).collect();
        if measured.is_empty() {
            return Err("no metrics returned from resource metrics API".into());
        }
        let sample = |(name, measured): (&str, kubewright_apiserver::Measurement<Vec<(String, ResourceUsage)>>)| {
            let counted = measured.usage.iter().filter(|(name, _)| container.is_empty() || name == container);
            let values: Option<Vec<i64>> = counted.map(|(_, used)| amount(*used, resource)).collect();
            let value = values.filter(|values| !values.is_empty())?.into_iter().fold(0, i64::saturating_add);
            Some((name.to_owned(), Sample { at: measured.timestamp, window: measured.window, value }))
        };
        Ok(measured.into_iter().filter_map(sample).collect())
    }
}

/// Returns what is used of a resource, in thousandths.
fn amount(usage: ResourceUsage, resource: &str) -> Option<i64> {
    let amount = match resource {
        "cpu" => usage.cpu_nanocores.div_ceil(1_000_000),
        "memory" => usage.memory_bytes.saturating_mul(1000),
        _ => return None,
    };
    Some(i64::try_from(amount).unwrap_or(i64::MAX))
}

fn tolerances(spec: &Value) -> Tolerances {
    let of = |rules: &str| {
        let own = spec["behavior"][rules].get("tolerance").filter(|own| !own.is_null());
        own.and_then(thousandths).map_or(TOLERANCE, |tolerance| tolerance as f64 / 1000.0)
    };
    Tolerances { down: of("scaleDown"), up: of("scaleUp") }
}

const NO_CUSTOM_METRICS: &str = "unable to fetch metrics from custom metrics API: no custom metrics API \
                                 (custom.metrics.k8s.io) registered";

fn pods_metric(metric: &Value) -> Failed {
    let message = format!("unable to get metric {}: {NO_CUSTOM_METRICS}", text(metric, "/metric/name"));
    let summary = format!("failed to get pods metric value: {message}");
    Failed { reason: "FailedGetPodsMetric", message, summary }
}

fn object_metric(metric: &Value, namespace: &str) -> Failed {
    let name = text(metric, "/metric/name");
    let (kind, object) = (text(metric, "/describedObject/kind"), text(metric, "/describedObject/name"));
    // The order of the words is that of kube-controller-manager.
    let message = format!("unable to get metric {name}: {kind} on {namespace} {object}/{NO_CUSTOM_METRICS}");
    let inner = match text(metric, "/target/type") {
        "AverageValue" => format!("failed to get {name} object metric: {message}"),
        _ => message.clone(),
    };
    Failed { reason: "FailedGetObjectMetric", summary: format!("failed to get object metric value: {inner}"), message }
}

fn external_metric(metric: &Value, namespace: &str) -> Failed {
    let name = text(metric, "/metric/name");
    let message = format!(
        "unable to get external metric {namespace}/{name}/{}: unable to fetch metrics from external metrics API: the \
         server could not find the requested resource (get {name}.external.metrics.k8s.io)",
        shown(&metric["metric"]["selector"])
    );
    let inner = match text(metric, "/target/type") {
        "AverageValue" => format!("failed to get {name} external metric: {message}"),
        _ => format!("failed to get external metric {name}: {message}"),
    };
    let summary = format!("failed to get {name} external metric value: {inner}");
    Failed { reason: "FailedGetExternalMetric", message, summary }
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
