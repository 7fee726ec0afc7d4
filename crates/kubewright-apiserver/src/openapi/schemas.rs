//! The schemas of a document: those of its kinds, and all that they refer to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apimachinery::schema::{Additional, Kind, OBJECT_META, Schema};
use serde_json::{Map, Value, json};

use super::operations::{Path, VERSION_INFO};
use crate::registry::{
    Resource,
    builtin::{published, reference},
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

/// Returns all schemas that a document of these entries and paths needs, by name.
pub(super) fn schemas(
    entries: &[Arc<Resource>],
    paths: &BTreeMap<String, Path>,
    dialect: &Dialect,
) -> Map<String, Value> {
    let mut found: Map<_, _> =
        collect(entries, paths, dialect).iter().map(|(name, schema)| (name.clone(), (dialect.emit)(schema))).collect();
    for entry in entries.iter().filter(|entry| entry.schema.custom && !entry.selectable.is_empty()) {
        let fields: Value = entry.selectable.iter().map(|field| json!({"fieldPath": field.label})).collect();
        for name in [&entry.schema.name, &list_name(entry)] {
            if let Some(schema) = found.get_mut(name) {
                schema["x-kubernetes-selectable-fields"] = fields.clone();
            }
        }
    }
    found
}

fn collect(entries: &[Arc<Resource>], paths: &BTreeMap<String, Path>, dialect: &Dialect) -> BTreeMap<String, Schema> {
    let operations = || paths.values().flat_map(|path| &path.operations);
    let bodies = operations().filter_map(|operation| operation.body.as_ref().map(|(name, _)| name));
    let mut wanted: BTreeSet<String> =
        operations().filter_map(|operation| operation.answer.as_ref()).chain(bodies).cloned().collect();
    let mut found = BTreeMap::new();
    let common = published(CONFIG_MAP).unwrap_or_default();
    for entry in entries {
        if entry.schema.custom {
            let mut root = entry.schema.node().schema().clone();
            // Documents don't contain what a definition says about the fields that each object has.
            let text = || of_kind(Kind::String);
            let fields = [("apiVersion", text()), ("kind", text()), ("metadata", reference(OBJECT_META))];
            root.properties.extend(fields.map(|(name, field)| (name.to_owned(), field)));
            describe(&mut root, &common, &["apiVersion", "kind", "metadata"]);
            refer(&root, &mut wanted);
            found.insert(entry.schema.name.clone(), root);
        }
        if wanted.contains(&list_name(entry)) {
            let list = list(entry, &common);
            refer(&list, &mut wanted);
            found.insert(list_name(entry), list);
        }
    }
    while let Some(name) = wanted.pop_first() {
        if found.contains_key(&name) {
            continue;
        }
        let of_entry = || entries.iter().find(|entry| entry.schema.name == name);
        let own = || of_entry().map(|entry| entry.schema.node().schema().clone());
        let Some(schema) = published(&name).or_else(|| untyped(&name)).or_else(own) else { continue };
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

/// The schema of any object.
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Returns the schema of a type that isn't in the table of types.
fn untyped(name: &str) -> Option<Schema> {
    let object = |fields: Vec<(&str, Schema)>, required: &[&str]| Schema {
        properties: fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect(),
        required: required.iter().map(|name| (*name).to_owned()).collect(),
        ..of_kind(Kind::Object)
    };
    if name == meta("Patch") {
        Some(patch())
    } else if name == meta("WatchEvent") {
        let what =
            "The object after the change, or before it if it is deleted. An event of the type ERROR has a Status.";
        let object_field = Schema { description: Some(what.into()), ..reference(RAW_EXTENSION) };
        let fields = vec![("type", required_text()), ("object", object_field)];
        let description = Some("An event of a watch.".into());
        let group_version_kind = vec![owned("", "v1", "WatchEvent")];
        Some(Schema { description, group_version_kind, ..object(fields, &["type", "object"]) })
    } else if name == VERSION_INFO {
        let required = [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ];
        let optional = ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];
        let fields = required.iter().map(|name| (*name, required_text()));
        let fields = fields.chain(optional.iter().map(|name| (*name, of_kind(Kind::String))));
        let description = "The version of the server.";
        Some(Schema { description: Some(description.into()), ..object(fields.collect(), &required) })
    } else if name == RAW_EXTENSION {
        Some(of_kind(Kind::Object))
    } else {
        None
    }
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
    /// Returns a schema as a document.
    pub(super) emit: fn(&Schema) -> Value,
}

/// `io.k8s.apimachinery.pkg.api.resource.Quantity`
pub(super) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// `io.k8s.apimachinery.pkg.util.intstr.IntOrString`
pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Returns a schema with only a type.
pub(super) fn of_kind(kind: Kind) -> Schema {
    Schema { kind: Some(kind), ..Schema::default() }
}

/// Returns the schema of a string that is always present.
fn required_text() -> Schema {
    Schema { default: Some("".into()), ..of_kind(Kind::String) }
}

fn described(kind: Kind, description: &str) -> Schema {
    Schema { description: Some(description.into()), ..of_kind(kind) }
}

fn patch() -> Schema {
    let description = "Patch is provided to give a concrete name and type to the body of PATCH requests.";
    described(Kind::Object, description)
}

/// Returns the schema of a list kind. k8s-openapi has no descriptions of the built-in ones.
fn list(resource: &Resource, common: &Schema) -> Schema {
    let mut described = list_of(resource);
    describe(&mut described, common, &["apiVersion", "kind"]);
    let published = published(&list_name(resource)).filter(|_| !resource.schema.custom);
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
