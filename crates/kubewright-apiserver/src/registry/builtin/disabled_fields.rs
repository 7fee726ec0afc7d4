//! The fields of features that Kubernetes 1.36 has, but that are off by default
//! (<https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/>). They are removed from the
//! objects that are stored, after their owners are recorded.

use serde_json::Value;

use super::pod_security::Subject;
use crate::fields::remove;

/// The fields of a pod's spec, as paths in which `*` is each item or entry. A field with `?` is removed as well if it
/// becomes empty.
const POD_SPEC: &[&str] = &[
    // GenericWorkload
    "schedulingGroup",
    // ContainerStopSignals
    "containers/*/lifecycle?/stopSignal",
    "initContainers/*/lifecycle?/stopSignal",
    "ephemeralContainers/*/lifecycle?/stopSignal",
    // ClusterTrustBundleProjection
    "volumes/*/projected/sources/*/clusterTrustBundle",
    // PodCertificateRequest
    "volumes/*/projected/sources/*/podCertificate",
];

/// Returns the fields of the objects of a resource, apart from those in specs of pods.
fn paths(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        // DRANodeAllocatableResources
        ("", "pods") => &["status/nodeAllocatableResourceClaimStatuses"],
        // CoordinatedLeaderElection
        ("coordination.k8s.io", "leases") => &["spec/strategy", "spec/preferredHolder"],
        // VolumeLimitScaling
        ("storage.k8s.io", "csidrivers") => &["spec/preventPodSchedulingIfMissing"],
        ("resource.k8s.io", "resourceslices") => &[
            // DRANodeAllocatableResources
            "spec/devices/*/nodeAllocatableResourceMappings",
            // DRAListTypeAttributes
            "spec/devices/*/attributes/*/bools",
            "spec/devices/*/attributes/*/ints",
            "spec/devices/*/attributes/*/strings",
            "spec/devices/*/attributes/*/versions",
        ],
        _ => &[],
    }
}

/// Removes the fields from an object of a resource.
pub(crate) fn drop_disabled_fields(group: &str, plural: &str, object: &mut Value) {
    let spec = match Subject::of(group, plural) {
        Some(Subject::Pod) => object.get_mut("spec"),
        Some(Subject::Template(at)) => object.pointer_mut(at).and_then(|template| template.get_mut("spec")),
        _ => None,
    };
    if let Some(spec) = spec {
        POD_SPEC.iter().for_each(|path| remove_at(spec, path));
    }
    paths(group, plural).iter().for_each(|path| remove_at(object, path));
}

fn remove_at(value: &mut Value, path: &str) {
    match path.split_once('/') {
        None => drop(remove(value, path)),
        Some(("*", rest)) => match value {
            Value::Array(items) => items.iter_mut().for_each(|item| remove_at(item, rest)),
            Value::Object(entries) => entries.values_mut().for_each(|entry| remove_at(entry, rest)),
            _ => {}
        },
        Some((field, rest)) => {
            let name = field.trim_end_matches('?');
            let Some(child) = value.get_mut(name) else { return };
            let is_empty = |child: &Value| child.as_object().is_some_and(serde_json::Map::is_empty);
            let was_empty = is_empty(child);
            remove_at(child, rest);
            if name != field && !was_empty && is_empty(child) {
                remove(value, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(group: &str, plural: &str, mut object: Value, expect: &Value) {
        drop_disabled_fields(group, plural, &mut object);
        assert_eq!(object, *expect);
    }

    #[test]
    fn fields_are_removed_from_pods_and_templates() {
        let spec = json!({
            "schedulingGroup": {"podGroupName": "g"},
            "containers": [
                {"lifecycle": {"stopSignal": "SIGINT"}}, {"lifecycle": {"stopSignal": "SIGINT", "preStop": {}}},
            ],
            "ephemeralContainers": [{"lifecycle": {}}],
            "volumes": [{"projected": {"sources": [{"podCertificate": {}}, {"secret": {}}]}}],
        });
        let expect = json!({
            "containers": [{}, {"lifecycle": {"preStop": {}}}], "ephemeralContainers": [{"lifecycle": {}}],
            "volumes": [{"projected": {"sources": [{}, {"secret": {}}]}}],
        });
        check("", "pods", json!({"spec": spec}), &json!({"spec": expect}));
        let job = |spec| json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        check("batch", "cronjobs", job(spec), &job(expect));
    }

    #[test]
    fn other_kinds_have_such_fields() {
        let slice = |attribute| json!({"spec": {"devices": [{"name": "d", "attributes": {"a": attribute}}]}});
        let attribute = json!({"string": "x", "strings": ["x"], "bools": [true], "ints": [1], "versions": []});
        check("resource.k8s.io", "resourceslices", slice(attribute), &slice(json!({"string": "x"})));
        let lease = json!({"spec": {"holderIdentity": "a", "strategy": "s", "preferredHolder": "b"}});
        check("coordination.k8s.io", "leases", lease, &json!({"spec": {"holderIdentity": "a"}}));
        check("example.com", "leases", json!({"spec": {"strategy": 1}}), &json!({"spec": {"strategy": 1}}));
    }
}
