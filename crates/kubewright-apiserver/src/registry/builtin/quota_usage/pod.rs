//! What pods use.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    amounts::{Amount, Amounts, add, amounts, of_containers, raise},
    fields::{has, list, text},
};

const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";
/// The prefix of resources that are claimed from a device class.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// The resources whose requests count under their own name, too, and whose limits count.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Returns whether a quota limits pods under a name.
pub(super) fn is_used_by_pods(name: &str) -> bool {
    let requested = name.strip_prefix(REQUESTS);
    let of_compute = requested.or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    name == "pods"
        || COMPUTE.contains(&of_compute)
        || requested.unwrap_or(name).starts_with(HUGE_PAGES)
        || requested.is_some_and(|requested| !is_native(name) || requested.starts_with(DEVICE_CLASS))
}

/// Returns whether a resource is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether a pod has a deadline, which is what the scopes `Terminating` and `NotTerminating` mean.
pub(super) fn ends_by_deadline(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Returns whether a pod uses anything but its place in the store: it hasn't ended, and if it is being deleted, its
/// grace period isn't over.
fn is_active(pod: &Value, now: Timestamp) -> bool {
    if matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
        return false;
    }
    let deleted = text(pod, "/metadata/deletionTimestamp").parse::<Timestamp>();
    let (Ok(deleted), Some(grace)) = (deleted, pod["metadata"]["deletionGracePeriodSeconds"].as_i64()) else {
        return true;
    };
    now.duration_since(deleted) <= SignedDuration::from_secs(grace)
}

/// Returns what a pod uses, apart from the number of objects.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    if !is_active(pod, now) {
        return Amounts::new();
    }
    let statuses: BTreeMap<&str, &Value> = ["/status/containerStatuses", "/status/initContainerStatuses"]
        .into_iter()
        .flat_map(|pointer| list(pod, pointer))
        .map(|status| (text(status, "/name"), status))
        .collect();
    let is_infeasible = list(pod, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "PodResizePending")
        .is_some_and(|condition| text(condition, "/reason") == "Infeasible");
    let side = |side: &str| {
        let mut sum = of_containers(&pod["spec"], |container| {
            let status = statuses.get(text(container, "/name"));
            effective(container, status.copied(), side, is_infeasible)
        });
        let whole = amounts(&pod["spec"]["resources"], side);
        sum.extend(whole.into_iter().filter(|(name, _)| is_of_whole_pods(name)));
        sum
    };
    let (mut requests, mut limits) = (side("requests"), side("limits"));
    let overhead = amounts(&pod["spec"], "overhead");
    add(&mut requests, &overhead);
    limits.iter_mut().filter(|(_, limit)| !limit.amount.is_zero()).for_each(|(name, limit)| {
        if let Some(overhead) = overhead.get(name) {
            limit.add(overhead);
        }
    });
    named(&requests, &limits)
}

/// Returns the requests or limits of a container. While a resize is pending, they are the greatest of what is desired,
/// allocated and actual.
fn effective(container: &Value, status: Option<&Value>, side: &str, is_infeasible: bool) -> Amounts {
    let desired = amounts(&container["resources"], side);
    let is_regular = text(container, "/restartPolicy").is_empty() || text(container, "/restartPolicy") == "Always";
    let Some(status) = status.filter(|status| is_regular && has(status, "/resources")) else { return desired };
    let mut most = amounts(&status["resources"], side);
    if side == "requests" {
        raise(&mut most, &amounts(status, "allocatedResources"));
    }
    if !is_infeasible {
        raise(&mut most, &desired);
    }
    most
}

/// Returns whether a pod as a whole can request a resource.
fn is_of_whole_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES)
}

/// Returns requests and limits under the names that quotas have for them, with the number of pods.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Amount::whole(1))]);
    for (name, amount) in requests {
        let keeps_name = COMPUTE.contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
        if keeps_name {
            used.insert(name.clone(), amount.clone());
        }
        let is_extended = !is_native(name) && !name.starts_with(REQUESTS);
        if keeps_name || is_extended || name.starts_with(DEVICE_CLASS) {
            used.insert(format!("{REQUESTS}{name}"), amount.clone());
        }
    }
    for name in COMPUTE {
        if let Some(amount) = limits.get(name) {
            used.insert(format!("limits.{name}"), amount.clone());
        }
    }
    used
}

/// Returns what containers of a new pod have to specify for a quota that limits these names, if they don't.
pub(super) fn missing<'a>(pod: &Value, names: impl Iterator<Item = &'a String>) -> Option<String> {
    const REQUIRED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    let whole = ["requests", "limits"].map(|side| amounts(&pod["spec"]["resources"], side));
    if whole.iter().flat_map(Amounts::keys).any(|name| is_of_whole_pods(name)) {
        return None;
    }
    let mut missing: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    let containers = || ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|field| list(pod, field));
    for name in names.filter(|name| REQUIRED.contains(&name.as_str())) {
        for container in containers() {
            let [requests, limits] = ["requests", "limits"].map(|side| amounts(&container["resources"], side));
            if !named(&requests, &limits).contains_key(name) {
                missing.entry(name).or_default().insert(text(container, "/name"));
            }
        }
    }
    let lacks = |(name, containers): (&String, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    let missing: Vec<_> = missing.into_iter().map(lacks).collect();
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

/// Returns whether a change of a pod can reduce what it uses: it ends, or its deadline or the resources of its
/// containers change.
pub(super) fn reduces_usage(before: &Value, after: &Value, now: Timestamp) -> bool {
    let resources = |pod: &Value| -> Vec<Value> {
        let statuses = ["/status/containerStatuses", "/status/initContainerStatuses"];
        statuses.into_iter().flat_map(|field| list(pod, field)).map(|status| status["resources"].clone()).collect()
    };
    ends_by_deadline(before) != ends_by_deadline(after)
        || is_active(before, now) && !is_active(after, now)
        || resources(before) != resources(after)
}

/// Returns whether a pod prefers or requires other pods, or their absence, in other namespaces.
pub(super) fn has_affinity_across_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !list(term, "/namespaces").is_empty() || term.get("namespaceSelector").is_some_and(|one| !one.is_null())
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|field| {
        let affinity = &pod["spec"]["affinity"][field];
        list(affinity, "/requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || list(affinity, "/preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| crosses(&weighted["podAffinityTerm"]))
    })
}

/// Returns whether a pod has neither requests nor limits.
pub(super) fn is_best_effort(pod: &Value) -> bool {
    text(pod, "/status/qosClass") == "BestEffort"
}

/// Returns the priority class of a pod, empty if it has none.
pub(super) fn priority_class(pod: &Value) -> &str {
    text(pod, "/spec/priorityClassName")
}
