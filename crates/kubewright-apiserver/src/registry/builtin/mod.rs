//! The built-in kinds. Each is one [`Entry`]; what is common to all comes from their k8s-openapi type and the published
//! facts, and what is a kind's own (defaults, rules, columns) is in the file named after it.

mod catalogue;
mod check;
mod cluster;
mod columns;
mod config;
mod crd;
mod event;
mod facts;
mod fields;
mod job;
mod other;
mod pod;
mod schemas;
mod service;
mod workload;

use std::sync::Arc;

use k8s_openapi::{
    ListableResource,
    schemars::{JsonSchema, SchemaGenerator},
};

use serde_json::Value;

pub use self::schemas::definitions;
pub(crate) use self::schemas::reference;
use super::{Column, Plain, Resource, ResourceSchema, Scale, Selectable, SelectableValue, Strategy, Subresource};

/// Every built-in resource, ready for [`super::Registry::new`].
pub fn resources() -> Vec<Resource> {
    catalogue::all().into_iter().filter_map(Entry::into_resource).collect()
}

/// A built-in kind as the catalogue writes it down.
struct Entry {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    schema_name: String,
    collect_schema: fn(&mut SchemaGenerator),
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
        Self {
            group: T::GROUP,
            version: T::VERSION,
            kind: T::KIND,
            list_kind: T::LIST_KIND,
            plural: T::URL_PATH_SEGMENT,
            schema_name: T::schema_name().into_owned(),
            collect_schema: schemas::collect::<T>,
            short_names: &[],
            categories: &[],
            stored_as: (T::GROUP, T::VERSION, T::KIND),
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
        let facts = facts::of(self.group, self.version, self.plural)?;
        let subresources = facts
            .subresources
            .iter()
            .filter(|(name, _)| SERVED.contains(&(self.plural, name)))
            .map(|(name, exchange)| Subresource {
                name,
                exchanges: (exchange.group, exchange.version, exchange.kind),
                verbs: if exchange.verbs == ["connect"] { vec!["create", "get"] } else { exchange.verbs.clone() },
            })
            .collect();
        let (group, version, kind) = self.stored_as;
        Some(Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: self.list_kind.into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase().into(),
            short_names: self.short_names.iter().map(ToString::to_string).collect(),
            categories: self.categories.iter().map(ToString::to_string).collect(),
            namespaced: facts.namespaced,
            verbs: facts.verbs.clone(),
            storage: format!("{group}/{}", self.plural).into(),
            stored_as: (group.into(), version.into(), kind.into()),
            schema: Arc::new(ResourceSchema {
                root: schemas::reference(&self.schema_name),
                definitions: definitions(),
                name: self.schema_name,
                custom: false,
            }),
            strategy: self.strategy,
            status: facts.subresources.contains_key("status"),
            scale: facts.subresources.contains_key("scale").then(|| Scale {
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

/// Subresources that are answered, beside `status` and `scale`: (resource, subresource).
const SERVED: &[(&str, &str)] = &[
    ("namespaces", "finalize"),
    ("pods", "attach"),
    ("pods", "binding"),
    ("pods", "eviction"),
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "portforward"),
    ("serviceaccounts", "token"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_catalogue_is_published_and_has_a_schema() {
        let entries = catalogue::all().len();
        let resources = resources();
        assert_eq!(resources.len(), entries);
        for resource in &resources {
            let root = resource.schema.node().schema();
            assert!(root.properties.contains_key("metadata"), "{}", resource.schema.name);
            assert!(resource.verbs.contains(&"watch"), "{}", resource.plural);
        }
    }

    #[test]
    fn subresources_are_those_that_are_answered() {
        let resources = resources();
        let pods = resources.iter().find(|resource| &*resource.plural == "pods").unwrap();
        let names: Vec<_> = pods.subresources.iter().map(|subresource| subresource.name).collect();
        assert_eq!(names, ["attach", "binding", "eviction", "exec", "log", "portforward"]);
        assert_eq!(pods.subresources[2].exchanges, ("policy", "v1", "Eviction"));
        assert_eq!(pods.subresources[3].verbs, ["create", "get"]);
        assert!(pods.status && pods.scale.is_none());
    }

    #[test]
    fn both_faces_of_events_share_one_storage() {
        let resources = resources();
        let events: Vec<_> = resources.iter().filter(|resource| &*resource.plural == "events").collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].storage, events[1].storage);
        assert_eq!(events[0].stored_as, events[1].stored_as);
    }
}
