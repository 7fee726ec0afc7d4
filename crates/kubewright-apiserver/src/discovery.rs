//! Discovery documents, in plain and in aggregated form
//! (<https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>).
//!
//! These are pure functions of the registry, and of the versions that other API servers serve. The handlers negotiate
//! the format.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    aggregation::RemoteVersion,
    digest::{self, hash},
    group_version::{group_version, version_priority},
    registry::{Registry, Resource},
};

/// The parameters of the content type of aggregated documents.
pub(crate) const AGGREGATED: &str = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The resources of one version by plural name.
type Version = BTreeMap<Arc<str>, Arc<Resource>>;

/// What discovery depends on beside the resources of this server.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// The versions that other API servers serve.
    pub(crate) versions: Vec<RemoteVersion>,
    /// The priorities of groups and versions, by group and version.
    pub(crate) priorities: BTreeMap<(String, String), (i64, i64)>,
}

/// The resources of a version.
enum Resources {
    /// Those of this server.
    Local(Version),
    /// The aggregated document of another server.
    Remote(Value),
}

/// A group with its versions, preferred first.
struct Group {
    name: Arc<str>,
    versions: Vec<(Arc<str>, Resources)>,
}

/// Returns `/api`, the versions of the core group. `address` is the `host:port` at which the client reached the server.
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// Returns `/apis`, all other groups.
pub(crate) fn group_list(registry: &Registry, others: &Others) -> Value {
    let groups: Vec<_> =
        groups(registry, others).iter().filter(|group| !group.name.is_empty()).map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/G`, one group, or `None` if it has no resources.
pub(crate) fn group(registry: &Registry, others: &Others, name: &str) -> Option<Value> {
    let groups = groups(registry, others);
    let mut document = group_value(groups.iter().find(|group| &*group.name == name && !name.is_empty())?);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

/// Returns `/api/v1` or `/apis/G/V`, the resources of one version, or `None` if it has none.
pub(crate) fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let all = registry.all();
    let mut resources: Vec<_> =
        all.iter().filter(|entry| &*entry.group == group && &*entry.version == version).collect();
    if resources.is_empty() {
        return None;
    }
    resources.sort_by(|one, other| one.plural.cmp(&other.plural));
    let list: Vec<_> = resources.into_iter().flat_map(|resource| plain_entries(resource)).collect();
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": list});
    // The document of the core group is older than this field.
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

/// Returns the aggregated document of `/api` (for `core`) or `/apis`, and its quoted entity tag.
pub(crate) fn aggregated(registry: &Registry, others: &Others, core: bool) -> (Value, String) {
    let items: Vec<_> = groups(registry, others)
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<_> = group.versions.iter().map(aggregated_version).collect();
            let metadata = if core { json!({}) } else { json!({"name": &*group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let tag = format!("\"{}\"", hash(document.to_string().as_bytes()));
    (document, tag)
}

/// Kubernetes' groups, in the order in which clients look up kinds. All other groups follow by name.
const GROUP_ORDER: &[&str] = &[
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// The priority of groups and versions without an APIService, which are those of custom kinds.
const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);
/// The greatest priority of a group with an APIService.
const MAX_PRIORITY: i64 = 20_000;

fn groups(registry: &Registry, others: &Others) -> Vec<Group> {
    let mut by_name: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Version>> = BTreeMap::new();
    for entry in registry.all().iter() {
        let versions = by_name.entry(entry.group.clone()).or_default();
        versions.entry(entry.version.clone()).or_default().insert(entry.plural.clone(), entry.clone());
    }
    let mut all: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Resources>> = BTreeMap::new();
    for (group, versions) in by_name {
        all.insert(group, versions.into_iter().map(|(name, version)| (name, Resources::Local(version))).collect());
    }
    for RemoteVersion { group, version, document, .. } in &others.versions {
        let versions = all.entry(group.as_str().into()).or_default();
        versions.insert(version.as_str().into(), Resources::Remote(document.clone()));
    }
    let mut groups: Vec<_> = all
        .into_iter()
        .map(|(name, versions)| {
            let mut versions: Vec<_> = versions.into_iter().collect();
            versions.sort_by_cached_key(|(version, _)| {
                (Reverse(priorities(others, &name, version).1), version_priority(version))
            });
            Group { name, versions }
        })
        .collect();
    // The sort is stable, and the groups are already sorted by name.
    groups.sort_by_cached_key(|Group { name, versions }| {
        Reverse(versions.iter().map(|(version, _)| priorities(others, name, version).0).max())
    });
    groups
}

/// Returns the priorities of a group and of one of its versions.
fn priorities(others: &Others, group: &str, version: &str) -> (i64, i64) {
    let known = others.priorities.get(&(group.to_owned(), version.to_owned())).copied();
    known.unwrap_or_else(|| match GROUP_ORDER.iter().position(|known| *known == group) {
        // The server of APIServices isn't one of them, and comes first.
        Some(place) => {
            (MAX_PRIORITY + i64::from(place < 2) - i64::try_from(place).unwrap_or_default(), CUSTOM_PRIORITIES.1)
        }
        None => CUSTOM_PRIORITIES,
    })
}

fn group_value(group: &Group) -> Value {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": group_version(&group.name, version), "version": &**version}))
        .collect();
    json!({"name": &*group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// A subresource, including `status` and `scale`.
struct Subresource<'a> {
    name: &'a str,
    kind: (&'a str, &'a str, &'a str),
    verbs: &'a [&'static str],
}

const READ_AND_WRITE: &[&str] = &["get", "patch", "update"];

fn subresources(resource: &Resource) -> Vec<Subresource<'_>> {
    let own = (&*resource.group, &*resource.version, &*resource.kind);
    let mut list: Vec<_> = resource
        .subresources
        .iter()
        .map(|sub| Subresource { name: sub.name, kind: sub.kind, verbs: &sub.verbs })
        .collect();
    if resource.status {
        list.push(Subresource { name: "status", kind: own, verbs: READ_AND_WRITE });
    }
    if resource.scale.is_some() {
        list.push(Subresource { name: "scale", kind: ("autoscaling", "v1", "Scale"), verbs: READ_AND_WRITE });
    }
    // Those of a custom kind are in the order of its definition.
    if !resource.schema.custom {
        list.sort_by_key(|sub| sub.name);
    }
    list
}

/// The kinds that Kubernetes stores in the version before the stable one, which an older server could still read.
const STORED_AS_BETA: &[&str] =
    &["CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// Returns the entries of an `APIResourceList` for a resource and its subresources.
fn plain_entries(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": &*resource.plural, "singularName": &*resource.singular, "namespaced": resource.namespaced,
        "kind": &*resource.kind, "verbs": resource.verbs,
    });
    add_names(&mut main, resource);
    // Reviews and computed objects aren't stored.
    if !resource.list_kind.is_empty() && resource.strategy.computed().is_none() {
        let (group, stored, kind) = &resource.stored_as;
        // As in Kubernetes, each version of a custom kind has its own.
        let version = match STORED_AS_BETA.contains(&&**kind) {
            true => "v1beta1",
            false if resource.schema.custom => &resource.version,
            false => stored,
        };
        main["storageVersionHash"] = digest::storage_version(group, version, kind).into();
    }
    let mut entries = vec![main];
    for sub in subresources(resource) {
        let (group, version, kind) = sub.kind;
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": kind, "verbs": sub.verbs,
        });
        if (group, version) != (&*resource.group, &*resource.version) {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entries.push(entry);
    }
    entries
}

fn add_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
}

fn aggregated_version((version, resources): &(Arc<str>, Resources)) -> Value {
    let resources = match resources {
        Resources::Local(resources) => resources,
        Resources::Remote(document) => return document.clone(),
    };
    let resources: Vec<_> = resources.values().map(|resource| aggregated_entry(resource)).collect();
    json!({"version": &**version, "resources": resources, "freshness": "Current"})
}

fn aggregated_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": &*resource.plural,
        "responseKind": response_kind(resource, (&resource.group, &resource.version, &resource.kind)),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular,
        "verbs": resource.verbs,
    });
    add_names(&mut entry, resource);
    let subresources: Vec<_> = subresources(resource)
        .into_iter()
        .map(|sub| {
            let kind = response_kind(resource, sub.kind);
            json!({"subresource": sub.name, "verbs": sub.verbs, "responseKind": kind})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

/// Returns a kind in an aggregated document. As in Kubernetes, the group and version of the resource itself are left
/// empty unless it is a custom one.
fn response_kind(resource: &Resource, (group, version, kind): (&str, &str, &str)) -> Value {
    if (group, version) == (&*resource.group, &*resource.version) && !resource.schema.custom {
        json!({"group": "", "version": "", "kind": kind})
    } else {
        json!({"group": group, "version": version, "kind": kind})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::builtin;

    fn registry() -> Registry {
        builtin::registry(&kubewright_apimachinery::random::Random::seeded(1), &builtin::Indexes::default())
    }

    #[test]
    fn groups_are_in_lookup_order() {
        let list = group_list(&registry(), &Others::default());
        let names: Vec<_> = list["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
        assert_eq!(names[..4], ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io"]);
        assert_eq!(list["groups"][1]["preferredVersion"]["groupVersion"], "apps/v1");
    }

    #[test]
    fn groups_and_versions_follow_their_priorities() {
        let remote = |group: &str, version: &str| RemoteVersion {
            group: group.into(),
            version: version.into(),
            document: json!({"version": version, "resources": [], "freshness": "Current"}),
            open_api: None,
        };
        let key = |group: &str, version: &str| (group.to_owned(), version.to_owned());
        let others = Others {
            versions: vec![remote("low", "v1"), remote("high", "v1"), remote("high", "v2"), remote("apps", "v9")],
            priorities: [
                (key("low", "v1"), (1, 1)),
                (key("high", "v1"), (19_999, 20)),
                (key("high", "v2"), (5, 10)),
                (key("apps", "v1"), (17_800, 15)),
                (key("apps", "v9"), (100, 1)),
            ]
            .into(),
        };
        let list = group_list(&registry(), &others);
        let groups = list["groups"].as_array().unwrap();
        let names: Vec<_> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
        assert_eq!((&names[..2], names.last()), (&["apiregistration.k8s.io", "high"][..], Some(&"low")));
        assert_eq!(groups[1]["preferredVersion"]["version"], "v1");
        let apps = group(&registry(), &others, "apps").unwrap();
        let versions: Vec<_> = apps["versions"].as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
        assert_eq!(versions, ["v1", "v9"]);
        let (document, _) = aggregated(&registry(), &others, false);
        assert_eq!(document["items"][1]["versions"][1], others.versions[2].document);
    }

    #[test]
    fn a_named_group_is_found_and_the_core_group_is_not() {
        assert_eq!(group(&registry(), &Others::default(), "batch").unwrap()["kind"], "APIGroup");
        assert!(group(&registry(), &Others::default(), "").is_none());
        assert!(group(&registry(), &Others::default(), "none.example.com").is_none());
    }

    #[test]
    fn plain_lists_have_subresources_with_their_kinds() {
        let list = resource_list(&registry(), "", "v1").unwrap();
        assert_eq!(list["groupVersion"], "v1");
        let find = |name: &str| {
            list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == name).cloned().unwrap()
        };
        assert_eq!(find("pods")["shortNames"], json!(["po"]));
        assert_eq!(find("pods")["storageVersionHash"], "xPOwRZ+Yhw8=");
        assert_eq!(find("pods/log").get("storageVersionHash"), None);
        assert_eq!(find("pods")["categories"], json!(["all"]));
        assert_eq!(find("pods/eviction")["group"], "policy");
        assert_eq!(find("pods/status").get("group"), None);
        assert_eq!(find("namespaces")["namespaced"], false);
        assert!(resource_list(&registry(), "", "v2").is_none());
    }

    #[test]
    fn aggregated_documents_nest_subresources() {
        let (document, tag) = aggregated(&registry(), &Others::default(), false);
        assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
        let apps = &document["items"][1];
        assert_eq!(apps["metadata"]["name"], "apps");
        let deployments =
            apps["versions"][0]["resources"].as_array().unwrap().iter().find(|it| it["resource"] == "deployments");
        let deployments = deployments.unwrap();
        assert_eq!(deployments["scope"], "Namespaced");
        assert_eq!(deployments["responseKind"], json!({"group": "", "version": "", "kind": "Deployment"}));
        let [scale, status] = [0, 1].map(|index| &deployments["subresources"][index]["responseKind"]);
        assert_eq!(*scale, json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
        assert_eq!(*status, deployments["responseKind"]);
        assert_eq!(aggregated(&registry(), &Others::default(), false).1, tag);
        let (core, other) = aggregated(&registry(), &Others::default(), true);
        assert_eq!(core["items"].as_array().unwrap().len(), 1);
        assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
        assert_ne!(tag, other);
    }
}
