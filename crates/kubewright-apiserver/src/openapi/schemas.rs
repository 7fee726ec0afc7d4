//! The schemas of a document: those of its kinds, and all that they refer to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apimachinery::schema::{Additional, Kind, Schema};

use crate::{
    object_type::types,
    registry::{
        Resource,
        builtin::{published, reference},
    },
};

/// The prefix of the common types' names.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A built-in kind. Its descriptions of the fields that each object has are published for custom kinds, too.
const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
/// The page to which descriptions refer.
const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Returns the name of a common type.
pub(super) fn meta(kind: &str) -> String {
    format!("{META}.{kind}")
}

/// The name of `autoscaling/v1` Scale.
pub(super) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// Returns the name of a resource's list kind.
pub(super) fn list_name(resource: &Resource) -> String {
    let prefix = resource.schema.name.rsplit_once('.').map_or("", |(prefix, _)| prefix);
    format!("{prefix}.{}", resource.list_kind)
}

/// Returns all schemas that a document of these entries needs, by name. `quantity` and `int_or_string` are the schemas
/// of these two types in the version of OpenAPI.
pub(super) fn collect(entries: &[Arc<Resource>], dialect: &Dialect) -> BTreeMap<String, Schema> {
    let mut found = BTreeMap::new();
    let mut wanted = BTreeSet::from([meta("DeleteOptions"), meta("ListMeta"), meta("Status")]);
    found.insert(meta("Patch"), patch());
    let common = published(CONFIG_MAP).unwrap_or_default();
    for entry in entries {
        let root = dialect.builtin(&entry.schema.name).filter(|_| !entry.schema.custom);
        let root = root.unwrap_or_else(|| {
            let mut root = entry.schema.node().schema().clone();
            describe(&mut root, &common, &["apiVersion", "kind", "metadata"]);
            root
        });
        refer(&root, &mut wanted);
        found.insert(entry.schema.name.clone(), root);
        if entry.verbs.contains(&"list") {
            let list = list(entry, dialect, &common);
            refer(&list, &mut wanted);
            found.insert(list_name(entry), list);
        }
        if entry.scale.is_some() {
            wanted.insert(SCALE.into());
        }
        for (group, version, kind) in entry.subresources.iter().map(|sub| sub.kind) {
            wanted.extend(types().kind(group, version, kind).and_then(|ty| types().get(ty).name()));
        }
    }
    while let Some(name) = wanted.pop_first() {
        if found.contains_key(&name) {
            continue;
        }
        let Some(schema) = dialect.builtin(&name) else { continue };
        refer(&schema, &mut wanted);
        found.insert(name, schema);
    }
    for (name, schema) in &dialect.special {
        if let Some(found) = found.get_mut(*name) {
            *found = Schema { description: found.description.take(), ..schema.clone() };
        }
    }
    found
}

/// Sets the descriptions of fields that each object has.
fn describe(schema: &mut Schema, common: &Schema, names: &[&str]) {
    for name in names {
        let described = common.properties.get(*name).and_then(|field| field.description.as_ref());
        if let (Some(field), Some(description)) = (schema.properties.get_mut(*name), described) {
            field.description = Some(description.clone());
        }
    }
}

fn owned(group: &str, version: &str, kind: &str) -> (String, String, String) {
    (group.into(), version.into(), kind.into())
}

/// The types whose schema depends on the version of OpenAPI.
pub(super) struct Dialect {
    /// These types, by name.
    pub(super) special: Vec<(&'static str, Schema)>,
    /// True if the documents contain the defaults of built-in types. A v2 document doesn't, so that its required fields
    /// are those of v3, although it doesn't require fields of custom kinds with a default.
    pub(super) defaults: bool,
}

impl Dialect {
    /// Returns the schema of a built-in type.
    fn builtin(&self, name: &str) -> Option<Schema> {
        let mut schema = published(name)?;
        if !self.defaults {
            schema.properties.values_mut().for_each(|field| field.default = None);
        }
        Some(schema)
    }
}

/// `io.k8s.apimachinery.pkg.api.resource.Quantity`
pub(super) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// `io.k8s.apimachinery.pkg.util.intstr.IntOrString`
pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Returns a schema with only a type.
pub(super) fn of_kind(kind: Kind) -> Schema {
    Schema { kind: Some(kind), ..Schema::default() }
}

fn described(kind: Kind, description: &str) -> Schema {
    Schema { description: Some(description.into()), ..of_kind(kind) }
}

fn patch() -> Schema {
    let description = "Patch is provided to give a concrete name and type to the body of PATCH requests.";
    described(Kind::Object, description)
}

/// Returns the schema of a list kind. k8s-openapi has no descriptions of the built-in ones.
fn list(resource: &Resource, dialect: &Dialect, common: &Schema) -> Schema {
    let mut described = list_of(resource);
    describe(&mut described, common, &["apiVersion", "kind"]);
    let published = dialect.builtin(&list_name(resource)).filter(|_| !resource.schema.custom);
    let Some(mut list) = published else { return described };
    list.description = described.description;
    for (name, field) in &mut list.properties {
        field.description = described.properties.remove(name).and_then(|field| field.description);
    }
    list
}

fn list_of(resource: &Resource) -> Schema {
    let kind = &resource.kind;
    let metadata = format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds");
    let items = Schema {
        items: Some(Box::new(reference(&resource.schema.name))),
        ..described(Kind::Array, &format!("List of {}. More info: {CONVENTIONS}", resource.plural))
    };
    let fields = [
        ("apiVersion", of_kind(Kind::String)),
        ("kind", of_kind(Kind::String)),
        ("metadata", Schema { description: Some(metadata), ..reference(&meta("ListMeta")) }),
        ("items", items),
    ];
    Schema {
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect(),
        required: vec!["items".into()],
        group_version_kind: vec![owned(&resource.group, &resource.version, &resource.list_kind)],
        ..described(Kind::Object, &format!("{} is a list of {kind}", resource.list_kind))
    }
}

/// Collects the references of a schema.
fn refer(schema: &Schema, wanted: &mut BTreeSet<String>) {
    wanted.extend(schema.reference.as_deref().map(String::from));
    schema.properties.values().chain(schema.items.as_deref()).for_each(|field| refer(field, wanted));
    if let Additional::Schema(values) = &schema.additional {
        refer(values, wanted);
    }
    let logic = &schema.logic;
    let parts = logic.all_of.iter().chain(&logic.any_of).chain(&logic.one_of).chain(logic.not.as_deref());
    parts.for_each(|part| refer(part, wanted));
}
