//! The built-in kinds. Each is one registry entry: its names and schema come from its k8s-openapi type; its scope,
//! verbs and subresources from the published API metadata; and its defaults, rules and columns from the file named
//! after it.

mod access;
mod admission_policy;
mod api_metadata;
mod api_service;
mod autoscaling;
mod bootstrap;
mod certificate;
mod cluster;
mod columns;
mod component;
mod config;
mod crd;
mod default_class;
mod disabled_fields;
mod disruption;
mod dynamic;
mod entry;
mod event;
pub(crate) mod eviction;
mod flow_control;
mod job;
mod kinds;
mod lifecycle;
mod limit_ranges;
mod networking;
mod node_access;
mod node_references;
mod other;
pub(crate) mod other_versions;
mod pem_sections;
mod pod;
mod pod_references;
pub(crate) mod pod_security;
mod priority;
mod proxy;
mod quota;
pub mod quota_usage;
pub(crate) mod resource_metrics;
mod review;
mod review_selectors;
mod roles;
mod runtime_class;
pub(crate) mod schemas;
mod service;
mod service_account;
mod storage;
mod tls_secret;
mod topology;
mod types;
mod validation;
mod webhook;
mod workload;

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apimachinery::random::Random;

use self::entry::Entry;
pub(crate) use self::{
    bootstrap::{BootstrapObject, bootstrap_objects},
    columns::CREATED_AT,
    disabled_fields::drop_disabled_fields,
    dynamic::{admin_access, forbidden_admin_access},
    entry::Indexes,
    node_access::{Change, NodeAuthorizer, NodeRestriction},
    proxy::{kubelet_subresources, proxy_backend},
    roles::add_roles,
    schemas::{published, reference},
    service::service_endpoints,
    workload::scale_columns,
};
pub use self::{
    crd::check_definition,
    schemas::definitions,
    service::{ServiceRange, ServiceRangeError},
};
use super::{BuiltinVersion, Registry, Resource};
use crate::group_version::group_version;

/// Creates a registry of all built-in resources, whose strategies maintain `indexes`. Allocating strategies use
/// `random`.
pub(crate) fn registry(random: &Random, indexes: &Indexes) -> Registry {
    Registry::new(resources(random, indexes), indexes.custom.clone())
}

fn resources(random: &Random, indexes: &Indexes) -> Vec<Resource> {
    let mut resources: Vec<_> = kinds::all(random, indexes).into_iter().filter_map(Entry::into_resource).collect();
    resources.extend(resource_metrics::resources(&indexes.metrics));
    link_versions(&mut resources);
    resources
}

/// Adds to each version of a kind that is served in several all of them.
fn link_versions(resources: &mut [Resource]) {
    let mut versions: BTreeMap<Arc<str>, Vec<BuiltinVersion>> = BTreeMap::new();
    for resource in resources.iter() {
        versions.entry(resource.storage.clone()).or_default().push(BuiltinVersion {
            api_version: group_version(&resource.group, &resource.version),
            schema: resource.schema.clone(),
            strategy: resource.strategy.clone(),
        });
    }
    for resource in resources {
        if let Some(versions) = versions.get(&resource.storage).filter(|versions| versions.len() > 1) {
            resource.builtin_versions = versions.as_slice().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::schema;
    use serde_json::{Value, json};

    use super::{types::BuiltinType, *};
    use crate::{
        registry::SelectableValue,
        table::{self, Include},
    };

    fn all() -> Vec<Resource> {
        resources(&Random::seeded(1), &Indexes::default())
    }

    /// Returns an object with most of the fields that any strategy or column reads.
    fn busy() -> Value {
        let pod = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [{
                    "name": "c", "image": "i", "ports": [{"name": "p", "containerPort": 1, "protocol": "TCP"}],
                    "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                    "readinessProbe": {"httpGet": {"port": 1}}, "lifecycle": {"preStop": {"httpGet": {}}},
                    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }],
                "volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [{}]}}]}}],
                "tolerations": [{"key": "k"}], "restartPolicy": "Never",
            },
        });
        json!({
            "metadata": {
                "name": "n", "namespace": "default", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z",
                "labels": {"kubernetes.io/role": "r"}, "ownerReferences": [{"controller": true, "apiVersion": "a/b"}],
                "finalizers": ["f"], "annotations": {"a": "b"},
            },
            "spec": {
                "template": pod, "containers": pod["spec"]["containers"], "volumes": pod["spec"]["volumes"],
                "tolerations": [{"key": "k"}], "jobTemplate": {"spec": {"template": pod}}, "schedule": "* * * * *",
                "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "type": "NodePort", "ports": [{"name": "p", "port": 1, "nodePort": 30000, "targetPort": "t"}],
                "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "finalizers": ["kubernetes"],
                "group": "g.example.com", "scope": "Cluster", "names": {"plural": "p", "kind": "K", "shortNames": ["s"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"scale": {"specReplicasPath": ".spec.r"}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                    "additionalPrinterColumns": [{"name": "C", "type": "string", "jsonPath": ".spec.c"}],
                    "selectableFields": [{"jsonPath": ".spec.f"}],
                }],
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s"}}}},
                "holderIdentity": "h", "leaseDurationSeconds": 1, "rules": [{"host": "h"}], "accessModes": ["ReadWriteOnce"],
            },
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP"}],
                "containerStatuses": [{"name": "c", "state": {"terminated": {}}, "lastState": {"terminated": {}}}],
                "initContainerStatuses": [{"name": "c", "state": {"waiting": {}}}], "startTime": "2024-01-01T00:00:00Z",
                "hard": {"cpu": "1"}, "used": {"cpu": "0"}, "loadBalancer": {"ingress": [{"ip": "i"}]},
                "storedVersions": ["v0"],
            },
            "involvedObject": {"kind": "Pod", "name": "p"}, "regarding": {"kind": "Pod"}, "series": {"count": 1},
            "eventTime": "2024-01-01T00:00:00.000000Z", "source": {"component": "c"}, "type": "Normal",
            "data": {"k": "v"}, "stringData": {"k": "v"}, "subsets": [{"addresses": [{"ip": "i"}], "ports": [{"port": 1}]}],
            "endpoints": [{"addresses": ["a"]}], "ports": [{"port": 1}], "subjects": [{"kind": "User"}],
            "roleRef": {"kind": "Role"}, "webhooks": [{"rules": [{}], "clientConfig": {"service": {}}}],
        })
    }

    fn pointers(value: &Value, at: String, all: &mut Vec<String>) {
        let mut go = |step: &str, child| pointers(child, format!("{at}/{}", step.replace('/', "~1")), all);
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, child)| go(name, child)),
            Value::Array(items) => items.iter().enumerate().for_each(|(index, child)| go(&index.to_string(), child)),
            _ => {}
        }
        all.push(at);
    }

    fn run_life_cycle(resource: &Resource, sent: &Value, old: &Value) {
        let strategy = &resource.strategy;
        let mut object = sent.clone();
        strategy.decode(&mut object);
        strategy.default(&mut object);
        let _ = strategy.admit(None, &mut object);
        strategy.prepare_create(&mut object);
        let valid = strategy.validate(None, &object).is_empty();
        let mut update = sent.clone();
        strategy.default(&mut update);
        strategy.prepare_update(old, &mut update);
        strategy.validate(Some(old), &update);
        strategy.grace_period(&update, None);
        strategy.prepare_delete(&mut update);
        strategy.is_held(&update);
        strategy.encode(&mut update);
        if valid {
            strategy.committed(None, Some(&object));
            strategy.committed(Some(&object), None);
        }
        let now = "2024-01-02T00:00:00Z".parse().unwrap();
        let options = table::Options { include: Include::Metadata, headers: true, now, version: "meta.k8s.io/v1" };
        table::render(resource, [&object, &update], &json!({}), options);
        for field in &resource.selectable {
            if let SelectableValue::Computed(read) = field.value {
                read(&object);
            }
        }
    }

    /// Strategies set defaults before the types in a body are checked.
    #[test]
    fn no_kind_panics_on_fields_of_wrong_types() {
        let odd = [json!(null), json!(-1), json!("x"), json!([null]), json!({"x": 1})];
        for resource in all() {
            let mut sample = busy();
            schema::prune(resource.schema.node(), &mut sample);
            let mut places = Vec::new();
            pointers(&sample, String::new(), &mut places);
            for (place, odd) in places.iter().flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
                let mut object = sample.clone();
                *object.pointer_mut(place).unwrap() = odd.clone();
                run_life_cycle(&resource, &object, &sample);
            }
        }
    }

    #[test]
    fn every_built_in_kind_is_published_and_has_a_schema() {
        let entries = kinds::all(&Random::seeded(1), &Indexes::default());
        let resources = all();
        assert_eq!(resources.len(), entries.len());
        let names = |builtin: &BuiltinType| (builtin.group, builtin.version, builtin.kind);
        let types: Vec<_> = types::TYPES.iter().map(names).collect();
        assert_eq!(entries.iter().map(|entry| names(&entry.builtin)).collect::<Vec<_>>(), types);
        for resource in &resources {
            let root = resource.schema.node().schema();
            assert!(root.properties.contains_key("metadata"), "{}", resource.schema.name);
            let stored = !resource.list_kind.is_empty() && resource.strategy.computed().is_none();
            assert_eq!(resource.verbs.contains(&"watch"), stored, "{}", resource.plural);
        }
    }

    #[test]
    fn only_served_subresources_are_listed() {
        let resources = all();
        let pods = resources.iter().find(|resource| &*resource.plural == "pods").unwrap();
        let names: Vec<_> = pods.subresources.iter().map(|subresource| subresource.name).collect();
        assert_eq!(
            names,
            ["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize"]
        );
        assert_eq!(pods.subresources[3].kind, ("policy", "v1", "Eviction"));
        assert_eq!(pods.subresources[4].kind, ("", "v1", "PodExecOptions"));
        assert_eq!(pods.subresources[4].verbs, ["create", "get"]);
        assert!(pods.status && pods.scale.is_none());
    }

    #[test]
    fn events_of_both_groups_share_one_storage() {
        let resources = all();
        let events: Vec<_> = resources.iter().filter(|resource| &*resource.plural == "events").collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].storage, events[1].storage);
        assert_eq!(events[0].stored_as, events[1].stored_as);
    }
}
