//! The schemas of the built-in kinds: the table of types in the form that field ownership, strategic merge and OpenAPI
//! documents read.
//!
//! All servers of a process share one table, whose entries are built on first use. Descriptions, enumerated values and
//! defaults, which only OpenAPI documents contain, are added by [`published`].

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use k8s_openapi::{
    api::{authentication::v1::TokenRequest, autoscaling::v1::Scale, core::v1::Binding, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{
        APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, ObjectMeta, Status,
    },
    schemars::{SchemaGenerator, generate::SchemaSettings},
};
use kubewright_apimachinery::{
    schema::{Additional, Definitions, Kind, List, Schema},
    types::{Field, ListMark, Omit, Shape, Type, TypeId, Types},
};
use serde_json::{Value, json};

use super::types::{TYPES, collect};
use crate::object_type::types;

/// Returns the shared table of all built-in types by OpenAPI name, such as `io.k8s.api.core.v1.PodSpec`. All of them
/// take 5 MB; a server needs few.
pub fn definitions() -> Arc<Definitions> {
    static TABLE: LazyLock<Arc<Definitions>> =
        LazyLock::new(|| Arc::new(Definitions::lazy(types().named().filter_map(|(_, ty)| ty.name()), build)));
    TABLE.clone()
}

/// Returns a schema that refers to a named definition.
pub(crate) fn reference(name: &str) -> Schema {
    Schema { reference: Some(name.into()), ..Schema::default() }
}

/// Returns the schema of a built-in type as OpenAPI documents contain it.
pub(crate) fn published(name: &str) -> Option<Schema> {
    static DESCRIPTIONS: LazyLock<BTreeMap<String, Described>> = LazyLock::new(describe);
    let mut schema = Builder { types: types(), published: true }.schema(types().find(name)?);
    if let Some(described) = DESCRIPTIONS.get(name) {
        schema.description.clone_from(&described.description);
        for (name, field) in &mut schema.properties {
            field.description = described.fields.get(name).cloned();
        }
    }
    Some(schema)
}

/// Collects the descriptions of a type.
type Collect = fn(&mut SchemaGenerator);

/// Bodies that aren't kinds of stored objects, and parts of all objects.
const BODIES: &[Collect] = &[
    collect::<APIGroupList>,
    collect::<APIResourceList>,
    collect::<APIVersions>,
    collect::<Binding>,
    collect::<DeleteOptions>,
    collect::<Eviction>,
    collect::<ListMeta>,
    collect::<ObjectMeta>,
    collect::<Scale>,
    collect::<Status>,
    collect::<TokenRequest>,
];

fn build(name: &str) -> Schema {
    let builder = Builder { types: types(), published: false };
    builder.types.find(name).map(|ty| builder.schema(ty)).unwrap_or_default()
}

/// The descriptions of a type and its fields, which are those of k8s-openapi.
#[derive(Default)]
struct Described {
    description: Option<String>,
    fields: BTreeMap<String, String>,
}

fn describe() -> BTreeMap<String, Described> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    for collect in TYPES.iter().map(|builtin| &builtin.collect_schema).chain(BODIES) {
        collect(&mut generator);
    }
    let text = |document: &Value| document["description"].as_str().map(str::to_owned);
    let describe = |document: Value| Described {
        description: text(&document),
        fields: document["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, field)| Some((name.clone(), text(field)?)))
            .collect(),
    };
    generator.take_definitions(false).into_iter().map(|(name, document)| (name, describe(document))).collect()
}

/// The group of the types that belong to all groups.
const META: &str = "meta.k8s.io";

/// Builds schemas of types.
struct Builder {
    types: &'static Types,
    /// True for OpenAPI documents, which contain enumerated values and defaults.
    published: bool,
}

impl Builder {
    /// Returns the schema of a named type.
    fn schema(&self, id: TypeId) -> Schema {
        let ty = self.types.get(id);
        let Shape::Struct(all) = ty.shape() else { return self.simple(ty) };
        let fields = all.fields().iter().map(|field| (field.name().to_owned(), self.field(field)));
        // Those of `meta.k8s.io` are published as kinds of the core group.
        let kind = self.types.group_version_kind(id);
        let kind = kind.map(|(group, version, kind)| (if group == META { "" } else { group }, version, kind));
        Schema {
            kind: Some(Kind::Object),
            properties: fields.collect(),
            required: all.fields().iter().filter(|field| field.is_required()).map(|it| it.name().to_owned()).collect(),
            atomic_map: all.is_atomic().then_some(true),
            group_version_kind: kind
                .map(|(group, version, kind)| (group.into(), version.into(), kind.into()))
                .into_iter()
                .collect(),
            ..Schema::default()
        }
    }

    fn field(&self, field: &Field) -> Schema {
        let mut schema = self.value(field.ty());
        if let Some(marks) = field.marks() {
            schema.list = match &marks.list {
                Some(ListMark::Set) => List::Set,
                Some(ListMark::Map(keys)) => List::Map(keys.clone()),
                Some(ListMark::Atomic) => List::Atomic,
                None => List::Unspecified,
            };
            schema.atomic_map = marks.atomic;
            schema.patch_strategy.clone_from(&marks.patch_strategy);
            schema.patch_merge_key.clone_from(&marks.patch_merge_key);
            // Without the defaults of their keys, the items of a list couldn't be distinguished.
            schema.default.clone_from(&marks.default);
        }
        if schema.default.is_none() && !field.is_pointer() {
            let zero = self.zero(field.ty(), field.omit() != Omit::Never);
            // A key of a list's items that is missing has it as well.
            schema.default = zero.filter(|zero| self.published || zero.is_string() || zero.is_number());
        }
        schema
    }

    /// Returns the schema of a field's value, of an item or of an entry.
    fn value(&self, id: TypeId) -> Schema {
        let ty = self.types.get(id);
        match ty.shape() {
            Shape::List(of) => {
                Schema { kind: Some(Kind::Array), items: Some(Box::new(self.element(*of))), ..Schema::default() }
            }
            Shape::Map(of) => Schema {
                kind: Some(Kind::Object),
                additional: Additional::Schema(Box::new(self.element(*of))),
                ..Schema::default()
            },
            Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::Bytes => {
                self.simple(ty)
            }
            _ => ty.name().map_or_else(|| self.simple(ty), |name| reference(&name)),
        }
    }

    fn element(&self, id: TypeId) -> Schema {
        let mut schema = self.value(id);
        if self.published {
            schema.default = self.zero(id, false);
        }
        schema
    }

    /// Returns the schema of a type that isn't a struct, a list or a map.
    fn simple(&self, ty: &Type) -> Schema {
        let of = |kind, format: Option<&str>| Schema {
            kind: Some(kind),
            format: format.map(str::to_owned),
            ..Schema::default()
        };
        let free = |kind| Schema { kind, preserve_unknown: !self.published, ..Schema::default() };
        match ty.shape() {
            Shape::String => {
                let mut schema = of(Kind::String, None);
                if self.published && !ty.values().is_empty() {
                    schema.limits.enum_values = Some(ty.values().iter().map(|value| json!(value)).collect());
                }
                schema
            }
            Shape::Bool => of(Kind::Boolean, None),
            Shape::Int32 => of(Kind::Integer, Some("int32")),
            Shape::Int64 => of(Kind::Integer, Some("int64")),
            Shape::Float64 => of(Kind::Number, Some("double")),
            Shape::Bytes => of(Kind::String, Some("byte")),
            Shape::Time | Shape::MicroTime => of(Kind::String, Some("date-time")),
            Shape::Quantity => Schema { quantity: true, ..of(Kind::String, None) },
            Shape::IntOrString => Schema { int_or_string: true, ..Schema::default() },
            // An object of any kind is owned as a whole. Documents say that it is an object, but it can be any value.
            Shape::Any if ty.name().is_some_and(|name| name.starts_with("io.k8s.apimachinery.")) => {
                Schema { atomic_map: (!self.published).then_some(true), ..free(self.published.then_some(Kind::Object)) }
            }
            _ => free(None),
        }
    }

    /// Returns the default that OpenAPI documents show for a value that isn't a pointer: the zero value, unless Go
    /// omits it.
    fn zero(&self, id: TypeId, omits_empty: bool) -> Option<Value> {
        match self.types.get(id).shape() {
            Shape::String if !omits_empty => Some("".into()),
            Shape::Bool if !omits_empty => Some(false.into()),
            Shape::Int32 | Shape::Int64 | Shape::Float64 if !omits_empty => Some(0.into()),
            Shape::Struct(_) => Some(json!({})),
            _ => None,
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
        let ports = at("io.k8s.api.core.v1.Pod/spec/containers/*/ports");
        assert_eq!(ports.list, List::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
        assert_eq!(at("io.k8s.api.core.v1.Pod/spec/volumes").patch_strategy, ["merge", "retainKeys"]);
        assert_eq!(at("io.k8s.api.core.v1.Pod/metadata/finalizers").list, List::Set);
        assert_eq!(at("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").atomic_map, Some(true));
        let field = |of: &str, name: &str| definitions().get(of).expect("a type").properties[name].clone();
        assert_eq!(field("io.k8s.api.apps.v1.DeploymentSpec", "strategy").patch_strategy, ["retainKeys"]);
        assert_eq!(field("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", "selector").patch_strategy, ["replace"]);
        assert_eq!(field("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef").atomic_map, Some(false));
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
                assert!(table.get(name).is_some(), "{name}");
            }
            schema.properties.values().chain(schema.items.as_deref()).for_each(|field| walk(field, table));
            if let Additional::Schema(values) = &schema.additional {
                walk(values, table);
            }
        }
        let table = definitions();
        for builtin in TYPES.iter() {
            assert!(table.get(&(builtin.schema_name)()).is_some(), "{}", builtin.kind);
        }
        table.names().filter_map(|name| table.get(name)).for_each(|schema| walk(schema, &table));
    }
}
