//! The schemas of the built-in kinds: those of k8s-openapi, with the published list and patch markers.
//!
//! All servers of a process share one table, which is built on first use.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use k8s_openapi::{
    api::{authentication::v1::TokenRequest, autoscaling::v1::Scale, core::v1::Binding, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ListMeta, ObjectMeta, Status},
    schemars::{SchemaGenerator, generate::SchemaSettings},
};
use kubewright_apimachinery::schema::{Definitions, List, Schema, parse};
use serde::Deserialize;
use serde_json::Value;

use super::types::{TYPES, collect};

/// Returns the shared table of all built-in types by OpenAPI name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn definitions() -> Arc<Definitions> {
    static TABLE: LazyLock<Arc<Definitions>> = LazyLock::new(|| Arc::new(build()));
    TABLE.clone()
}

/// Returns a schema that refers to a named definition.
pub(crate) fn reference(name: &str) -> Schema {
    Schema { reference: Some(name.into()), ..Schema::default() }
}

fn build() -> Definitions {
    let mut generator = SchemaSettings::openapi3().into_generator();
    for collect in TYPES.iter().map(|builtin| &builtin.collect_schema).chain(BODIES) {
        collect(&mut generator);
    }
    let mut table: BTreeMap<Arc<str>, Schema> = generator
        .take_definitions(false)
        .into_iter()
        .map(|(name, document)| {
            let schema = convert(&name, &document);
            (name.into(), schema)
        })
        .collect();
    mark_lists(&mut table);
    complete(&mut table);
    for builtin in TYPES {
        if let Some(root) = table.get_mut(&*(builtin.schema_name)()) {
            let (group, version, kind) = (builtin.group, builtin.version, builtin.kind);
            root.group_version_kind.push((group.into(), version.into(), kind.into()));
            // k8s-openapi always writes metadata, but the published schema doesn't require it.
            root.required.retain(|field| field != "metadata");
        }
    }
    Definitions(table)
}

/// Request bodies that aren't kinds of stored objects.
const BODIES: &[fn(&mut SchemaGenerator)] = &[
    collect::<Binding>,
    collect::<DeleteOptions>,
    collect::<Eviction>,
    collect::<ListMeta>,
    collect::<ObjectMeta>,
    collect::<Scale>,
    collect::<Status>,
    collect::<TokenRequest>,
];

/// Types for which k8s-openapi's schema is too narrow.
const FREE_FORM: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];
const FREE_OBJECTS: &[&str] =
    &["io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "io.k8s.apimachinery.pkg.runtime.RawExtension"];

fn convert(name: &str, document: &Value) -> Schema {
    let mut schema = parse::from_openapi(document);
    if FREE_FORM.contains(&name) {
        return Schema { description: schema.description, preserve_unknown: true, ..Schema::default() };
    }
    schema.preserve_unknown = FREE_OBJECTS.contains(&name);
    schema
}

/// The published markers of a type or field, which k8s-openapi lacks.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Markers<'a> {
    list_type: Option<&'a str>,
    list_map_keys: Vec<String>,
    map_type: Option<&'a str>,
    patch_strategy: Option<&'a str>,
    patch_merge_key: Option<String>,
    #[serde(borrow)]
    fields: BTreeMap<&'a str, Markers<'a>>,
}

#[derive(Deserialize)]
struct MarkerFile<'a> {
    #[serde(borrow)]
    types: BTreeMap<&'a str, Markers<'a>>,
}

const MARKERS: &str = include_str!("../../../data/schema-extensions.json");

/// Adds the published list types, keys and patch strategies.
fn mark_lists(table: &mut BTreeMap<Arc<str>, Schema>) {
    // A test checks that the embedded file can be parsed.
    let Ok(file) = serde_json::from_str::<MarkerFile<'_>>(MARKERS) else { return };
    for (name, markers) in file.types {
        let Some(schema) = table.get_mut(name) else { continue };
        schema.atomic_map = markers.map_type == Some("atomic");
        for (field, markers) in markers.fields {
            if let Some(schema) = schema.properties.get_mut(field) {
                mark(schema, markers);
            }
        }
    }
}

fn mark(schema: &mut Schema, markers: Markers<'_>) {
    schema.list = match markers.list_type {
        Some("set") => List::Set,
        Some("map") => List::Map(markers.list_map_keys),
        _ => List::Atomic,
    };
    schema.atomic_map = markers.map_type == Some("atomic");
    schema.patch_strategy =
        markers.patch_strategy.map(|names| names.split(',').map(String::from).collect()).unwrap_or_default();
    schema.patch_merge_key = markers.patch_merge_key;
}

/// Adds the published defaults of list keys. Without them, elements that omit a key couldn't be distinguished.
fn complete(table: &mut BTreeMap<Arc<str>, Schema>) {
    for name in ["io.k8s.api.core.v1.ContainerPort", "io.k8s.api.core.v1.ServicePort"] {
        if let Some(protocol) = table.get_mut(name).and_then(|port| port.properties.get_mut("protocol")) {
            protocol.default = Some("TCP".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::schema::{Additional, Kind, Node};

    use super::*;

    fn at(path: &str) -> Schema {
        let table = definitions();
        let mut steps = path.split('/');
        let root = reference(steps.next().unwrap());
        let mut node = Node::new(&root, &table);
        for step in steps {
            node = if step == "*" { node.items() } else { node.field(step).unwrap_or_else(|| panic!("no {step}")) };
        }
        node.schema().clone()
    }

    #[test]
    fn published_markers_are_added() {
        assert!(serde_json::from_str::<MarkerFile<'_>>(MARKERS).unwrap().types.len() > 100);
        let ports = at("io.k8s.api.core.v1.Pod/spec/containers/*/ports");
        assert_eq!(ports.list, List::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
        assert_eq!(at("io.k8s.api.core.v1.Pod/spec/volumes").patch_strategy, ["merge", "retainKeys"]);
        assert_eq!(at("io.k8s.api.core.v1.Pod/metadata/finalizers").list, List::Set);
        assert!(at("io.k8s.api.apps.v1.Deployment/spec/selector").atomic_map);
    }

    #[test]
    fn formats_and_defaults_are_kept() {
        assert!(at("io.k8s.api.core.v1.Service/spec/ports/*/targetPort").int_or_string);
        assert_eq!(at("io.k8s.api.core.v1.Secret/data").kind, Some(Kind::Object));
        assert_eq!(at("io.k8s.api.core.v1.Pod/metadata/creationTimestamp").format.as_deref(), Some("date-time"));
        assert_eq!(at("io.k8s.api.core.v1.ContainerPort/protocol").default, Some("TCP".into()));
        assert!(at("io.k8s.api.core.v1.ConfigMap").required.is_empty());
        assert_eq!(at("io.k8s.api.core.v1.Pod").group_version_kind, [("".into(), "v1".into(), "Pod".into())]);
    }

    #[test]
    fn recursive_schemas_are_references() {
        let path = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition/spec/versions/*/\
                    schema/openAPIV3Schema/properties";
        let Additional::Schema(values) = at(path).additional else { panic!("no values") };
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        assert_eq!(values.reference.as_deref(), Some(name));
        let free = at("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps/default");
        assert!(free.preserve_unknown && free.kind.is_none());
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(schema: &Schema, table: &Definitions) {
            if let Some(name) = &schema.reference {
                assert!(table.0.contains_key(name), "{name}");
            }
            schema.properties.values().chain(schema.items.as_deref()).for_each(|field| walk(field, table));
            if let Additional::Schema(values) = &schema.additional {
                walk(values, table);
            }
        }
        let table = definitions();
        table.0.values().for_each(|schema| walk(schema, &table));
    }
}
