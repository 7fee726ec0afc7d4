//! The metrics of an autoscaler. Pure, except for the source of measurements.
//!
//! Those of resources are computed here, those of extension API servers in [`super::metric_api`].

use std::sync::Arc;

use jiff::Timestamp;
use kubewright_apiserver::{ResourceMetrics, ResourceUsage, milli_quantity};
use serde_json::{Value, json};

use super::{
    calculator::{Metric, Sample, Samples, Target, Tolerances, thousandths},
    metric_api::MetricApis,
};
use crate::controllers::value::{number, text};

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
    /// The number of replicas of its status.
    pub(super) observed_replicas: i64,
    /// The selector of its pods.
    pub(super) selector: &'a str,
    pub(super) pods: &'a [Arc<Value>],
    /// `None` without resource metrics.
    pub(super) source: Option<&'a dyn ResourceMetrics>,
    pub(super) apis: MetricApis<'a>,
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
            "Pods" => self.pods_metric(spec, metric, now),
            "Object" => self.object_metric(spec, metric),
            "External" => self.external_metric(spec, metric),
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

/// Returns the tolerances of an autoscaler's `spec`.
pub(super) fn tolerances(spec: &Value) -> Tolerances {
    let of = |rules: &str| {
        let own = spec["behavior"][rules].get("tolerance").filter(|own| !own.is_null());
        own.and_then(thousandths).map_or(TOLERANCE, |tolerance| tolerance as f64 / 1000.0)
    };
    Tolerances { down: of("scaleDown"), up: of("scaleUp") }
}
