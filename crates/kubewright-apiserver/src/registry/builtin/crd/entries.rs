//! The registry entries for a CRD.

use std::sync::Arc;

use kubewright_apimachinery::schema::{Kind, OBJECT_META, Schema, structural};
use serde_json::Value;

use super::{status::holds, strategy::CustomStrategy};
use crate::{
    conversion::{Definition, Webhook},
    embedded,
    fields::{flag, has, int, list, text},
    group_version::{group_version, version_priority},
    registry::{
        Cell, Column, Lifecycle, Resource, ResourceSchema, Scale, SelectableField, SelectableValue, Versions,
        builtin::{
            schemas::{definitions, reference},
            types::{is_builtin_resource, is_builtin_version},
        },
    },
};

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// The verbs in discovery while the CRD is being deleted. The others are still served, so that finalizers can be
/// removed.
const TERMINATING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

/// Returns the stored resource of a CRD.
pub(super) fn storage(definition: &Value) -> String {
    format!("{}/{}", text(definition, "/spec/group"), text(definition, "/spec/names/plural"))
}

/// Returns an entry for each served version. Omits built-in resources and group versions: a CRD for one of them isn't
/// established, but clients can write its status.
pub(super) fn entries(definition: &Value) -> Vec<Resource> {
    let versions = Arc::new(versions(definition));
    let all = list(definition, "/spec/versions");
    let stored = all.iter().find(|version| flag(version, "/storage"));
    let stored = stored.map(|version| text(version, "/name")).unwrap_or_default();
    let group = text(definition, "/spec/group");
    if is_builtin_resource(group, text(definition, "/spec/names/plural")) {
        return Vec::new();
    }
    let is_free = |version: &&Value| !is_builtin_version(group, text(version, "/name"));
    let served = all.iter().filter(|version| flag(version, "/served")).filter(is_free);
    served.filter_map(|version| entry(definition, version, stored, &versions)).collect()
}

/// Returns all versions, served or not, since objects may still be stored in any of them.
fn versions(definition: &Value) -> Versions {
    let (group, kind) = (text(definition, "/spec/group"), text(definition, "/status/acceptedNames/kind"));
    let schema = |version: &Value| {
        let name = text(version, "/name");
        let definitions = definitions();
        let mut root = root(group, name, kind, &version["schema"]["openAPIV3Schema"]);
        embedded::prune_defaults(&mut root, &definitions);
        let schema = ResourceSchema {
            root,
            definitions,
            name: schema_name(group, name, kind),
            custom: true,
            served: None,
            stored: None,
        };
        (group_version(group, name), Arc::new(schema))
    };
    let conversion = &definition["spec"]["conversion"];
    Versions::new(Definition {
        kind: kind.into(),
        schemas: list(definition, "/spec/versions").iter().map(schema).collect(),
        revision: text(definition, "/metadata/resourceVersion").parse().unwrap_or(0),
        generation: definition["metadata"]["generation"].as_i64().unwrap_or(0),
        webhook: (text(conversion, "/strategy") == "Webhook").then(|| Webhook::new(&conversion["webhook"])),
    })
}

fn entry(definition: &Value, version: &Value, stored: &str, versions: &Arc<Versions>) -> Option<Resource> {
    let names = &definition["status"]["acceptedNames"];
    let (group, kind) = (text(definition, "/spec/group"), text(names, "/kind"));
    let name = text(version, "/name");
    let strings = |pointer| list(names, pointer).iter().filter_map(Value::as_str).map(String::from).collect();
    let terminating = holds(definition, "Terminating");
    let verbs = if terminating { TERMINATING_VERBS } else { VERBS };
    let scale = version.pointer("/subresources/scale").filter(|scale| scale.is_object()).map(scale);
    Some(Resource {
        group: group.into(),
        version: name.into(),
        kind: kind.into(),
        list_kind: text(names, "/listKind").into(),
        plural: text(names, "/plural").into(),
        singular: text(names, "/singular").into(),
        short_names: strings("/shortNames"),
        categories: strings("/categories"),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        verbs: verbs.to_vec(),
        storage: storage(definition).into(),
        stored_as: (group.into(), stored.into(), kind.into()),
        schema: versions.schema(&group_version(group, name))?.clone(),
        versions: Some(versions.clone()),
        builtin_versions: Arc::default(),
        strategy: Arc::new(CustomStrategy { terminating }),
        lifecycle: Lifecycle::custom(group, text(names, "/plural")),
        status: has(version, "/subresources/status"),
        scale,
        subresources: Vec::new(),
        columns: columns(version),
        selectable: list(version, "/selectableFields").iter().map(selectable).collect(),
        deprecated: flag(version, "/deprecated").then(|| match text(version, "/deprecationWarning") {
            "" => deprecation(definition, name, kind),
            warning => warning.into(),
        }),
    })
}

/// Returns the default warning of a deprecated version. It recommends the preferred newer version that isn't
/// deprecated.
fn deprecation(definition: &Value, deprecated: &str, kind: &str) -> String {
    let group = text(definition, "/spec/group");
    let warning = format!("{group}/{deprecated} {kind} is deprecated");
    let others = list(definition, "/spec/versions").iter();
    let others = others.filter(|other| flag(other, "/served") && !flag(other, "/deprecated"));
    let newer = others.map(|other| text(other, "/name")).min_by_key(|name| version_priority(name));
    match newer.filter(|newer| version_priority(newer) < version_priority(deprecated)) {
        Some(newer) => format!("{warning}; use {group}/{newer} {kind}"),
        None => warning,
    }
}

/// Returns the kind's name in OpenAPI documents: `com.example.app.v1alpha1.PodSet`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<_> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// Returns the schema of the kind, with the fields that every object has. Invalid schemas were rejected earlier.
fn root(group: &str, version: &str, kind: &str, document: &Value) -> Schema {
    let mut root = structural::parse(document).unwrap_or_default();
    let text = || Schema { kind: Some(Kind::String), ..Schema::default() };
    let fields = &mut root.properties;
    fields.entry("apiVersion".into()).or_insert_with(text);
    fields.entry("kind".into()).or_insert_with(text);
    // A CRD may only restrict the name in `metadata`.
    if fields.get("metadata").is_none_or(|metadata| metadata.properties.is_empty()) {
        fields.insert("metadata".into(), reference(OBJECT_META));
    }
    root.group_version_kind = vec![(group.into(), version.into(), kind.into())];
    root
}

fn scale(scale: &Value) -> Scale {
    Scale {
        spec_replicas: text(scale, "/specReplicasPath").into(),
        status_replicas: text(scale, "/statusReplicasPath").into(),
        selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(String::from),
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let columns = list(version, "/additionalPrinterColumns");
    if columns.is_empty() {
        return vec![column("Age", "date", ".metadata.creationTimestamp")];
    }
    columns
        .iter()
        .map(|given| Column {
            format: text(given, "/format").into(),
            description: match text(given, "/description") {
                "" => description(text(given, "/jsonPath")),
                description => description.into(),
            },
            priority: i32::try_from(int(given, "/priority")).unwrap_or_default(),
            ..column(text(given, "/name"), text(given, "/type"), text(given, "/jsonPath"))
        })
        .collect()
}

fn column(name: &str, kind: &str, path: &str) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        format: String::new(),
        description: description(path),
        priority: 0,
        cell: Cell::Path(path.into()),
    }
}

fn description(path: &str) -> String {
    format!("Custom resource definition column (in JSONPath format): {path}")
}

fn selectable(field: &Value) -> SelectableField {
    let path = text(field, "/jsonPath");
    SelectableField { label: path.trim_start_matches('.').into(), value: SelectableValue::Path(path.into()) }
}
