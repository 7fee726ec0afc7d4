//! The built-in kinds. Each is one entry of the registry: its names and schema come from its k8s-openapi type, its scope,
//! verbs and subresources from the published API metadata, and its own defaults, rules and columns from the file named
//! after it.

mod access;
mod account;
mod api_metadata;
mod bootstrap;
mod check;
mod cluster;
mod columns;
mod config;
mod crd;
mod event;
mod fields;
mod job;
mod kinds;
mod other;
mod pod;
mod review;
mod roles;
mod schemas;
mod service;
mod types;
mod webhook;
mod workload;

use std::sync::Arc;

use k8s_openapi::{ListableResource, schemars::JsonSchema};
use kubewright_apimachinery::random::Random;
use serde_json::Value;

pub(crate) use self::account::{draft as draft_token, identify as identify_token};
pub(crate) use self::bootstrap::bootstrap;
use self::types::BuiltinType;
pub use self::{crd::check_definition, schemas::definitions};
pub(crate) use self::{schemas::reference, service::service_endpoints};
use super::{
    Column, Operation, Plain, Resource, ResourceSchema, Scale, Selectable, SelectableValue, Strategy, Subresource,
};

/// Every built-in resource, ready for [`super::Registry::new`]. What a kind leaves to chance comes from `random`.
pub fn resources(random: &Random) -> Vec<Resource> {
    kinds::all(random).into_iter().filter_map(Entry::into_resource).collect()
}

/// A built-in kind, before it becomes an entry of the registry.
struct Entry {
    builtin: BuiltinType,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    stored_as: (&'static str, &'static str, &'static str),
    strategy: Arc<dyn Strategy>,
    columns: Vec<Column>,
    selectable: Vec<Selectable>,
    selector: Option<&'static str>,
}

impl Entry {
    /// A kind that is stored and otherwise left alone.
    fn of<T: k8s_openapi::Resource + ListableResource + JsonSchema>() -> Self {
        Self::new(BuiltinType::of::<T>())
    }

    /// A kind of which there are no lists, since its objects are not stored.
    fn unlisted<T: k8s_openapi::Resource + JsonSchema>() -> Self {
        Self::new(BuiltinType::unlisted::<T>())
    }

    fn new(builtin: BuiltinType) -> Self {
        Self {
            builtin,
            short_names: &[],
            categories: &[],
            stored_as: (builtin.group, builtin.version, builtin.kind),
            strategy: Arc::new(Plain),
            columns: vec![columns::created_at()],
            selectable: Vec::new(),
            selector: None,
        }
    }

    fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// In the category `all`, which `kubectl get all` shows.
    fn in_all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    fn in_categories(mut self, names: &'static [&'static str]) -> Self {
        self.categories = names;
        self
    }

    fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    fn columns(mut self, columns: Vec<Column>) -> Self {
        self.columns = columns;
        self
    }

    /// Fields that a selector may name, read at the path of the same name.
    fn select(mut self, labels: &[&str]) -> Self {
        self.selectable.extend(
            labels
                .iter()
                .map(|label| Selectable { label: (*label).into(), value: SelectableValue::Path(format!(".{label}")) }),
        );
        self
    }

    /// The same for an entry whose objects are stored under other names: `served` gives the label.
    fn select_stored(mut self, labels: &[&str], served: fn(&str) -> String) -> Self {
        self.selectable.extend(
            labels
                .iter()
                .map(|label| Selectable { label: served(label), value: SelectableValue::Path(format!(".{label}")) }),
        );
        self
    }

    /// A field that a selector may name and that is read in its own way.
    fn select_by(mut self, label: &str, read: fn(&Value) -> String) -> Self {
        self.selectable.push(Selectable { label: label.into(), value: SelectableValue::Computed(read) });
        self
    }

    /// Where the scale subresource finds the selector, for a kind that has the subresource.
    fn scaled_by(mut self, selector: &'static str) -> Self {
        self.selector = Some(selector);
        self
    }

    /// Stored as the kind of another group that has the same plural.
    fn stored_as(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.stored_as = (group, version, kind);
        self
    }

    /// The registry entry. `None` if nothing is published of the kind, which a test rules out.
    fn into_resource(self) -> Option<Resource> {
        let BuiltinType { group, version, kind, list_kind, plural, schema_name, .. } = self.builtin;
        let schema_name = schema_name();
        let metadata = api_metadata::of(group, version, plural)?;
        let subresources = metadata
            .subresources
            .iter()
            .filter_map(|(name, exchange)| {
                let served = SERVED.iter().find(|(of, served, _)| (*of, *served) == (plural, *name));
                served.map(|(_, _, operation)| (name, exchange, *operation))
            })
            .map(|(name, exchange, operation)| Subresource {
                name,
                operation,
                connection: (exchange.verbs == ["connect"]).then(|| pod::connection(name)).flatten(),
                exchanges: (exchange.group, exchange.version, exchange.kind),
                verbs: if exchange.verbs == ["connect"] { vec!["create", "get"] } else { exchange.verbs.clone() },
            })
            .collect();
        let (stored_group, stored_version, stored_kind) = self.stored_as;
        Some(Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: list_kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase().into(),
            short_names: self.short_names.iter().map(ToString::to_string).collect(),
            categories: self.categories.iter().map(ToString::to_string).collect(),
            namespaced: metadata.namespaced,
            verbs: metadata.verbs.clone(),
            storage: format!("{stored_group}/{plural}").into(),
            stored_as: (stored_group.into(), stored_version.into(), stored_kind.into()),
            versions: None,
            schema: Arc::new(ResourceSchema {
                root: schemas::reference(&schema_name),
                definitions: definitions(),
                name: schema_name,
                custom: false,
            }),
            strategy: self.strategy,
            status: metadata.subresources.contains_key("status"),
            scale: metadata.subresources.contains_key("scale").then(|| Scale {
                spec_replicas: ".spec.replicas".into(),
                status_replicas: ".status.replicas".into(),
                selector: self.selector.map(String::from),
            }),
            subresources,
            columns: self.columns,
            selectable: self.selectable,
            deprecated: None,
        })
    }
}

/// Subresources that are answered, beside `status` and `scale`: (resource, subresource, what answers it).
const SERVED: &[(&str, &str, Option<Operation>)] = &[
    ("namespaces", "finalize", Some(Operation::Finalize)),
    ("pods", "attach", None),
    ("pods", "binding", Some(Operation::Bind)),
    ("pods", "eviction", Some(Operation::Evict)),
    ("pods", "exec", None),
    ("pods", "log", None),
    ("pods", "portforward", None),
    ("serviceaccounts", "token", Some(Operation::Token)),
];

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::schema;
    use serde_json::json;

    use super::*;
    use crate::{
        registry::Registry,
        table::{self, Include},
    };

    /// An object with most of the fields that any strategy or column looks at.
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

    fn live_through(resource: &Resource, registry: &Registry, sent: &Value, old: &Value) {
        let strategy = &resource.strategy;
        let mut object = sent.clone();
        strategy.decode(&mut object);
        strategy.default(&mut object);
        strategy.prepare_create(&mut object);
        let sound = strategy.validate(None, &object).is_empty();
        let mut update = sent.clone();
        strategy.default(&mut update);
        strategy.prepare_update(old, &mut update);
        strategy.validate(Some(old), &update);
        strategy.grace_period(&update);
        strategy.prepare_delete(&mut update);
        strategy.held(&update);
        strategy.encode(&mut update);
        if sound {
            strategy.committed(registry, None, Some(&object));
            strategy.committed(registry, Some(&object), None);
        }
        let now = "2024-01-02T00:00:00Z".parse().unwrap();
        let options = table::Options { include: Include::Metadata, headers: true, now };
        table::render(resource, [&object, &update], &json!({}), options);
        for field in &resource.selectable {
            if let SelectableValue::Computed(read) = field.value {
                read(&object);
            }
        }
    }

    /// Bodies reach a strategy's defaults before anything has looked at their types.
    #[test]
    fn no_kind_panics_whatever_stands_in_a_field() {
        let odd = [json!(null), json!(-1), json!("x"), json!([null]), json!({"x": 1})];
        let registry = Registry::default();
        for resource in resources(&Random::seeded(1)) {
            let mut sample = busy();
            schema::prune(resource.schema.node(), &mut sample);
            let mut places = Vec::new();
            pointers(&sample, String::new(), &mut places);
            for (place, odd) in places.iter().flat_map(|place| odd.iter().map(move |odd| (place, odd))) {
                let mut object = sample.clone();
                *object.pointer_mut(place).unwrap() = odd.clone();
                live_through(&resource, &registry, &object, &sample);
            }
        }
    }

    #[test]
    fn every_built_in_kind_is_published_and_has_a_schema() {
        let entries = kinds::all(&Random::seeded(1));
        let resources = resources(&Random::seeded(1));
        assert_eq!(resources.len(), entries.len());
        let names = |builtin: &BuiltinType| (builtin.group, builtin.version, builtin.kind);
        let types: Vec<_> = types::TYPES.iter().map(names).collect();
        assert_eq!(entries.iter().map(|entry| names(&entry.builtin)).collect::<Vec<_>>(), types);
        for resource in &resources {
            let root = resource.schema.node().schema();
            assert!(root.properties.contains_key("metadata"), "{}", resource.schema.name);
            let stored = !resource.list_kind.is_empty();
            assert_eq!(resource.verbs.contains(&"watch"), stored, "{}", resource.plural);
        }
    }

    #[test]
    fn subresources_are_those_that_are_answered() {
        let resources = resources(&Random::seeded(1));
        let pods = resources.iter().find(|resource| &*resource.plural == "pods").unwrap();
        let names: Vec<_> = pods.subresources.iter().map(|subresource| subresource.name).collect();
        assert_eq!(names, ["attach", "binding", "eviction", "exec", "log", "portforward"]);
        assert_eq!(pods.subresources[2].exchanges, ("policy", "v1", "Eviction"));
        assert_eq!(pods.subresources[3].verbs, ["create", "get"]);
        assert!(pods.status && pods.scale.is_none());
    }

    #[test]
    fn both_faces_of_events_share_one_storage() {
        let resources = resources(&Random::seeded(1));
        let events: Vec<_> = resources.iter().filter(|resource| &*resource.plural == "events").collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].storage, events[1].storage);
        assert_eq!(events[0].stored_as, events[1].stored_as);
    }
}
