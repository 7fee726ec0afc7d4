//! The resources of owned kinds: the kinds of objects that belong to theirs, which consoles list.

use kubewright_apimachinery::description::{Description, Relation, Resource};
use serde_json::{Value, json};

use super::{items, text};

/// The API groups of Kubernetes itself. Resources of other groups have the name of their definition.
const BUILT_IN: [&str; 6] = ["", "apps", "autoscaling", "batch", "extensions", "policy"];
/// The groups of Kubernetes below `k8s.io`. Definitions of custom kinds can be below it, too.
const BELOW_K8S_IO: [&str; 16] = [
    "admissionregistration",
    "apiextensions",
    "apiregistration",
    "authentication",
    "authorization",
    "certificates",
    "coordination",
    "discovery",
    "events",
    "flowcontrol.apiserver",
    "networking",
    "node",
    "rbac.authorization",
    "resource",
    "scheduling",
    "storage",
];

/// Adds to each owned kind of a ClusterServiceVersion the kinds that its controllers own, by the description of the
/// operator. Entries that are there stay as they are.
pub fn add_resources(csv: &mut Value, description: &Description) {
    let owned = csv.pointer_mut("/spec/customresourcedefinitions/owned").and_then(Value::as_array_mut);
    for entry in owned.into_iter().flatten() {
        let mut all = items(entry, "/resources").to_vec();
        for resource in owned_by(entry, description) {
            let added = reference(resource);
            let same = |other: &Value| text(other, "/kind") == resource.kind && other["version"] == added["version"];
            if !all.iter().any(same) {
                all.push(added);
            }
        }
        if !all.is_empty() {
            entry["resources"] = all.into();
        }
    }
}

/// Returns the kinds that the controllers of a kind own, sorted.
fn owned_by<'a>(entry: &Value, description: &'a Description) -> Vec<&'a Resource> {
    let (name, kind) = (text(entry, "/name"), text(entry, "/kind"));
    let is_kind =
        |resource: &Resource| resource.kind == kind && name == format!("{}.{}", resource.plural, resource.group);
    let mut all = Vec::new();
    for controller in &description.controllers {
        let related =
            |relation| controller.uses.iter().filter(move |used| used.relation == relation).map(|used| &used.resource);
        if related(Relation::For).any(is_kind) {
            all.extend(related(Relation::Owns));
        }
    }
    all.sort_by_key(|resource| (&resource.kind, &resource.version, &resource.group));
    all.dedup();
    all
}

/// Returns the entry for a resource.
fn reference(resource: &Resource) -> Value {
    let group = resource.group.as_str();
    let is_built_in =
        BUILT_IN.contains(&group) || group.strip_suffix(".k8s.io").is_some_and(|group| BELOW_K8S_IO.contains(&group));
    let name = if is_built_in { String::new() } else { format!("{}.{group}", resource.plural) };
    json!({"kind": resource.kind, "version": resource.version, "name": name})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let used = |group: &str, kind: &str, plural: &str, relation: &str| {
            let resource = json!({"group": group, "version": "v1", "kind": kind, "plural": plural, "namespaced": true});
            json!({"resource": resource, "relation": relation})
        };
        let uses = json!([
            used("my.domain", "Cow", "cows", "For"),
            used("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "Owns"),
            used("networking.k8s.io", "Ingress", "ingresses", "Owns"),
            used("apps", "Deployment", "deployments", "Owns"),
            used("", "Secret", "secrets", "Watches"),
        ]);
        let other = json!([used("my.domain", "Calf", "calves", "For"), used("", "Pod", "pods", "Owns")]);
        serde_json::from_value(
            json!({"version": 1, "controllers": [{"name": "a", "uses": uses}, {"name": "b", "uses": other}]}),
        )
        .unwrap()
    }

    fn csv(owned: Value) -> Value {
        json!({"spec": {"customresourcedefinitions": {"owned": owned}}})
    }

    #[test]
    fn owned_kinds_have_the_resources_of_their_controllers() {
        let mut csv = csv(json!([
            {"name": "cows.my.domain", "kind": "Cow", "version": "v1"},
            {"name": "cows.other.domain", "kind": "Cow", "version": "v1"},
        ]));
        add_resources(&mut csv, &description());
        let owned = &csv["spec"]["customresourcedefinitions"]["owned"];
        let expected = json!([
            {"kind": "Deployment", "version": "v1", "name": ""},
            {"kind": "Ingress", "version": "v1", "name": ""},
            {"kind": "ServiceMonitor", "version": "v1", "name": "servicemonitors.monitoring.coreos.com"},
        ]);
        assert_eq!((&owned[0]["resources"], &owned[1]["resources"]), (&expected, &Value::Null));
        let once = csv.clone();
        add_resources(&mut csv, &description());
        assert_eq!(csv, once);
    }

    #[test]
    fn resources_that_are_there_stay() {
        let mine = json!({"kind": "Deployment", "version": "v1", "name": "mine"});
        let mut csv = csv(json!([{"name": "cows.my.domain", "kind": "Cow", "version": "v1", "resources": [mine]}]));
        add_resources(&mut csv, &description());
        let resources = items(&csv, "/spec/customresourcedefinitions/owned/0/resources");
        assert_eq!((resources.len(), &resources[0]), (3, &mine));
    }
}
