//! The number of replicas that a metric asks for. Pure.
//!
//! The rules are Kubernetes'
//! (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details>): the use of ready
//! pods is compared with the target. Pods without metrics count as using nothing before a scale up, and as using what
//! the target allows before a scale down; unready ones count as using nothing before a scale up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::controllers::value::{condition, holds, is_deleting, list, text, time};

/// The time after the start of a pod in which its CPU only counts if it was ready during the whole measurement.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
/// The time after the start of a pod in which a change to unready means that it has never been ready.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// What a pod uses, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// The end of the measurement.
    pub(super) at: Timestamp,
    /// The time over which it was measured.
    pub(super) window: Duration,
    /// The amount.
    pub(super) value: i64,
}

/// What pods use, by name.
pub(super) type Samples = BTreeMap<String, Sample>;

/// The changes of the ratio of use and target that are ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The target of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// A percentage of what the pods request.
    Utilization(i64),
    /// An average amount, in thousandths.
    Average(i64),
}

/// The result of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Proposal {
    /// The number of replicas.
    pub(super) replicas: i64,
    /// The use in percent of the requests, for a target in percent.
    pub(super) utilization: Option<i64>,
    /// The average use, in thousandths.
    pub(super) average: i64,
}

/// A resource of pods, or of one of their containers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric<'a> {
    pub(super) resource: &'a str,
    /// The container; empty for all.
    pub(super) container: &'a str,
    pub(super) target: Target,
    pub(super) tolerances: Tolerances,
}

impl Metric<'_> {
    /// Returns the number of replicas for the pods of a workload that has `current` ones.
    ///
    /// # Errors
    /// The reason why it can't be calculated, in Kubernetes' words.
    pub(super) fn propose(
        &self,
        current: i64,
        mut samples: Samples,
        pods: &[Arc<Value>],
        now: Timestamp,
    ) -> Result<Proposal, String> {
        if pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".into());
        }
        let groups = Groups::of(pods, &samples, self.resource == "cpu", now);
        samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".into());
        }
        let requests = match self.target {
            Target::Utilization(_) => requests(pods, self.container, self.resource)?,
            Target::Average(_) => BTreeMap::new(),
        };
        let (ratio, utilization, average) = self.ratio(&samples, &requests)?;
        let proposal = |replicas| Proposal { replicas, utilization, average };
        let with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !with_unready && groups.missing.is_empty() {
            let replicas = if self.tolerances.contain(ratio) { current } else { ceil(ratio * count(groups.ready)) };
            return Ok(proposal(replicas));
        }
        let mut assume = |names: &BTreeSet<String>, value: &dyn Fn(&str) -> i64| {
            let assumed =
                |name: &String| (name.clone(), Sample { at: now, window: Duration::ZERO, value: value(name) });
            samples.extend(names.iter().map(assumed));
        };
        if ratio < 1.0 {
            assume(&groups.missing, &|name| self.allowed(requests.get(name).copied().unwrap_or_default()));
        } else if ratio > 1.0 {
            assume(&groups.missing, &|_| 0);
        }
        if with_unready {
            assume(&groups.unready, &|_| 0);
        }
        let (corrected, ..) = self.ratio(&samples, &requests)?;
        let turned = ratio < 1.0 && corrected > 1.0 || ratio > 1.0 && corrected < 1.0;
        if self.tolerances.contain(corrected) || turned {
            return Ok(proposal(current));
        }
        let replicas = ceil(corrected * count(samples.len()));
        // Another number of pods must not turn the direction either.
        let turned = corrected < 1.0 && replicas > current || corrected > 1.0 && replicas < current;
        Ok(proposal(if turned { current } else { replicas }))
    }

    /// Returns what a pod without metrics may use at most without a scale up.
    fn allowed(&self, request: i64) -> i64 {
        match self.target {
            Target::Utilization(percent) => request.saturating_mul(percent.max(100)) / 100,
            Target::Average(average) => average,
        }
    }

    /// Returns the ratio of use and target, the utilization in percent, and the average use.
    fn ratio(&self, samples: &Samples, requests: &BTreeMap<String, i64>) -> Result<(f64, Option<i64>, i64), String> {
        let sum = |values: &mut dyn Iterator<Item = i64>| values.fold(0, i64::saturating_add);
        let percent = match self.target {
            Target::Average(target) => {
                let number = i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
                let average = sum(&mut samples.values().map(|sample| sample.value)) / number;
                return Ok((average as f64 / target as f64, None, average));
            }
            Target::Utilization(percent) => percent,
        };
        let known = || samples.iter().filter_map(|(name, sample)| Some((sample.value, *requests.get(name)?)));
        let number = i64::try_from(known().count()).unwrap_or(i64::MAX).max(1);
        let (used, requested) = (sum(&mut known().map(|(used, _)| used)), sum(&mut known().map(|(_, asked)| asked)));
        if requested == 0 {
            return Err("no metrics returned matched known pods".into());
        }
        let utilization = used.saturating_mul(100) / requested;
        Ok((utilization as f64 / percent as f64, Some(utilization), used / number))
    }
}

/// Returns the number of replicas for an amount that all pods of a workload share, and its target.
///
/// # Errors
/// The reason why it can't be calculated, in Kubernetes' words.
pub(super) fn by_value(
    used: i64,
    target: i64,
    current: i64,
    pods: &[Arc<Value>],
    tolerances: Tolerances,
) -> Result<i64, String> {
    let ratio = used as f64 / target as f64;
    if tolerances.contain(ratio) {
        return Ok(current);
    }
    if pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let ready = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running" && holds(pod, "Ready"));
    Ok(ceil(ratio * count(ready.count())))
}

/// Returns the number of replicas for an amount that all pods of a workload share, and its target for each pod, with
/// the average of the `observed` pods.
pub(super) fn by_average(used: i64, target: i64, observed: i64, tolerances: Tolerances) -> (i64, i64) {
    let ratio = used as f64 / (target as f64 * observed as f64);
    let replicas = if tolerances.contain(ratio) { observed } else { ceil(used as f64 / target as f64) };
    (replicas, (used as f64 / observed as f64).ceil() as i64)
}

fn count(number: usize) -> f64 {
    number as f64
}

/// Rounds up, to a number of replicas.
fn ceil(replicas: f64) -> i64 {
    replicas.ceil().clamp(0.0, f64::from(i32::MAX)) as i64
}

/// Pods by how their metrics count.
#[derive(Debug, Default)]
struct Groups {
    /// The number of those whose metrics count.
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Groups {
    fn of(pods: &[Arc<Value>], samples: &Samples, is_cpu: bool, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = text(pod, "/metadata/name");
            let phase = text(pod, "/status/phase");
            if is_deleting(pod) || phase == "Failed" {
                groups.ignored.insert(name.into());
            } else if phase == "Pending" {
                groups.unready.insert(name.into());
            } else {
                match samples.get(name) {
                    None => drop(groups.missing.insert(name.into())),
                    Some(sample) if is_cpu && is_starting(pod, sample, now) => drop(groups.unready.insert(name.into())),
                    Some(_) => groups.ready += 1,
                }
            }
        }
        groups
    }
}

/// Returns whether the CPU of a pod doesn't count, because it may be that of its start.
fn is_starting(pod: &Value, sample: &Sample, now: Timestamp) -> bool {
    let (Some(ready), Some(start)) = (condition(pod, "Ready"), time(pod, "/status/startTime")) else { return true };
    let later = |at: Timestamp, delay: Duration| at.checked_add(delay).unwrap_or(Timestamp::MAX);
    let since = time(ready, "/lastTransitionTime").unwrap_or(Timestamp::UNIX_EPOCH);
    let is_unready = ready["status"] == "False";
    if later(start, CPU_INITIALIZATION) > now {
        is_unready || sample.at < later(since, sample.window)
    } else {
        is_unready && later(start, INITIAL_READINESS) > since
    }
}

/// Returns what each pod requests, in thousandths.
fn requests(pods: &[Arc<Value>], container: &str, resource: &str) -> Result<BTreeMap<String, i64>, String> {
    let request = |pod: &Arc<Value>| Ok((text(pod, "/metadata/name").to_owned(), request(pod, container, resource)?));
    pods.iter().map(request).collect()
}

fn request(pod: &Value, container: &str, resource: &str) -> Result<i64, String> {
    let name = text(pod, "/metadata/name");
    let own = |container: &Value| thousandths(container["resources"]["requests"].get(resource)?);
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|one| one["restartPolicy"] == "Always");
    let mut containers = list(pod, "/spec/containers").iter().chain(sidecars);
    if !container.is_empty() {
        let found = containers.find(|one| text(one, "/name") == container);
        let found = found.ok_or_else(|| format!("container {container} not found in Pod {name}"))?;
        return own(found).ok_or_else(|| missing(resource, container, name));
    }
    let of_pod = &pod["spec"]["resources"]["requests"];
    if of_pod.as_object().is_some_and(|requests| !requests.is_empty()) {
        let sum = || containers.filter_map(own).reduce(i64::saturating_add);
        let request = of_pod.get(resource).and_then(thousandths).or_else(sum);
        return request.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    containers.try_fold(0, |sum: i64, container| {
        let request = own(container).ok_or_else(|| missing(resource, text(container, "/name"), name))?;
        Ok(sum.saturating_add(request))
    })
}

fn missing(resource: &str, container: &str, pod: &str) -> String {
    format!("missing request for {resource} in container {container} of Pod {pod}")
}

/// Returns a quantity in thousandths, rounded up.
pub(super) fn thousandths(quantity: &Value) -> Option<i64> {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let billionths = crate::quantity::quantity(&text)?;
    let rounded = billionths.div_euclid(1_000_000) + i128::from(billionths.rem_euclid(1_000_000) != 0);
    i64::try_from(rounded).ok()
}
