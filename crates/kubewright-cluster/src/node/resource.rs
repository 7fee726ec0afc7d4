//! Resource fields of the downward API, `resourceFieldRef`
//! (<https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-resourceFieldRef>). Pure.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod, ResourceFieldSelector, ResourceRequirements};

use super::object::Capacity;
use crate::{
    controllers::scheduler::fit,
    quantity::{PARTS, quantity},
};

/// Returns the value of a resource field of a container; `None` for an unknown field. If the field names no container,
/// `own` is used. Without a limit of its own, a container may use what the pod may, or else the whole node.
pub(crate) fn value(pod: &Pod, own: &Container, field: &ResourceFieldSelector, node: Capacity) -> Option<String> {
    let container = match field.container_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => {
            let spec = pod.spec.as_ref()?;
            spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|one| one.name == name)?
        }
        None => own,
    };
    let (sort, resource) = field.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|all| all.limits.as_ref()?.get(resource));
    let limit_of_pod = || pod.spec.as_ref()?.resources.as_ref()?.limits.as_ref()?.get(resource);
    let amount = match sort {
        "limits" => match (limit.or_else(limit_of_pod), resource) {
            (Some(limit), _) => quantity(&limit.0)?,
            (None, "cpu") => i128::try_from(node.processors()).ok()? * PARTS,
            (None, "memory") => i128::from(node.memory_kib()) * 1024 * PARTS,
            (None, "ephemeral-storage") => i128::from(node.storage_kib()) * 1024 * PARTS,
            (None, _) => 0,
        },
        "requests" => {
            let request = resources.and_then(|all| all.requests.as_ref()?.get(resource));
            request.or(limit).map_or(Some(0), |request| quantity(&request.0))?
        }
        _ => return None,
    };
    if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !resource.starts_with("hugepages-") {
        return None;
    }
    let divisor = field.divisor.as_ref().map_or(Some(PARTS), |divisor| quantity(&divisor.0))?;
    let divisor = if divisor <= 0 { PARTS } else { divisor };
    Some(((amount + divisor - 1) / divisor).to_string())
}

/// Returns the size of an `emptyDir` in memory in bytes: its limit, at most what the pod may use, at most the node's
/// memory.
pub(crate) fn size_in_memory(pod: &Pod, volume: &EmptyDirVolumeSource, node: Capacity) -> u64 {
    let limit = volume.size_limit.as_ref().and_then(|limit| bytes(quantity(&limit.0)?));
    let all = node.memory_kib() * 1024;
    [limit, memory_limit(pod)].into_iter().flatten().filter(|limit| *limit > 0).fold(all, u64::min)
}

/// Returns the limit of a pod's memory in bytes; `None` unless the pod itself or each of its containers has one.
fn memory_limit(pod: &Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let has_limit = |resources: &Option<ResourceRequirements>| {
        let limits = resources.as_ref().and_then(|resources| resources.limits.as_ref());
        limits.and_then(|limits| quantity(&limits.get("memory")?.0)).is_some_and(|limit| limit > 0)
    };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    if !has_limit(&spec.resources) && !containers.all(|container| has_limit(&container.resources)) {
        return None;
    }
    bytes(*fit::limits(&serde_json::to_value(pod).ok()?).get("memory")?)
}

/// Returns the limit of a container's own memory in bytes.
pub(crate) fn memory_limit_of(container: &Container) -> Option<u64> {
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("memory")?;
    bytes(quantity(&limit.0)?).filter(|limit| *limit > 0)
}

/// Returns an amount in whole bytes.
fn bytes(amount: i128) -> Option<u64> {
    u64::try_from(amount / PARTS).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields() {
        let container = json!({"name": "main", "resources": {
            "limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"memory": "32Mi"},
        }});
        let bare = json!({"name": "bare"});
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [container, bare]}})).expect("a pod");
        let own = pod.spec.as_ref().map(|spec| spec.containers[0].clone()).expect("a container");
        let check = |field: serde_json::Value, expect: Option<&str>| {
            let selector = serde_json::from_value(field.clone()).expect("a selector");
            assert_eq!(value(&pod, &own, &selector, Capacity::simulated()).as_deref(), expect, "{field}");
        };
        check(json!({"resource": "limits.cpu"}), Some("2"));
        check(json!({"resource": "limits.cpu", "divisor": "1m"}), Some("1500"));
        check(json!({"resource": "requests.cpu", "divisor": "1m"}), Some("1500"));
        check(json!({"resource": "limits.memory", "divisor": "0"}), Some("67108864"));
        check(json!({"resource": "requests.memory", "divisor": "1Mi"}), Some("32"));
        check(json!({"resource": "limits.cpu", "containerName": "bare"}), Some("1000"));
        check(json!({"resource": "requests.memory", "containerName": "bare"}), Some("0"));
        check(json!({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}), Some("1048576"));
        check(json!({"resource": "limits.gold"}), None);
        check(json!({"resource": "cpu"}), None);
    }

    #[test]
    fn memory_is_limited_by_the_volume_the_pod_and_the_node() {
        let check = |spec: serde_json::Value, limit: Option<&str>, expect: u64| {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let volume = serde_json::from_value(json!({"medium": "Memory", "sizeLimit": limit})).expect("a volume");
            assert_eq!(size_in_memory(&pod, &volume, Capacity::simulated()), expect, "{spec} {limit:?}");
        };
        let (limited, free) = (json!({"name": "a", "resources": {"limits": {"memory": "8Mi"}}}), json!({"name": "b"}));
        let node = Capacity::simulated().memory_kib() * 1024;
        check(json!({"containers": [free]}), None, node);
        check(json!({"containers": [free]}), Some("1Mi"), 1 << 20);
        check(json!({"containers": [free]}), Some("0"), node);
        check(json!({"containers": [free]}), Some("1Ei"), node);
        check(json!({"containers": [limited, free]}), None, node);
        check(json!({"containers": [limited, limited]}), None, 16 << 20);
        check(json!({"containers": [limited], "initContainers": [free]}), None, node);
        check(json!({"containers": [limited]}), Some("9Mi"), 8 << 20);
        check(json!({"containers": [free], "resources": {"limits": {"memory": "4Mi"}}}), None, 4 << 20);
    }

    #[test]
    fn limits_of_the_pod_are_those_of_containers_without_their_own() {
        let bare = json!({"name": "bare"});
        let pod = json!({"spec": {"containers": [bare], "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1"}}}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let field = |resource: &str| {
            let selector =
                serde_json::from_value(json!({"resource": resource, "containerName": "bare"})).expect("a selector");
            value(&pod, &Container::default(), &selector, Capacity::simulated())
        };
        assert_eq!(field("limits.memory").as_deref(), Some("67108864"));
        assert_eq!(field("limits.cpu").as_deref(), Some("1000"));
        assert_eq!(field("requests.cpu").as_deref(), Some("0"));
    }
}
