//! The types of the built-in kinds: the Go structs that their objects pass through in a real API server.
//!
//! All servers of a process share one table, which is read on first use.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use kubewright_apimachinery::{
    go_json,
    types::{Decoded, TypeId, Types},
};
use serde_json::Value;

/// The type of a built-in kind, or of another built-in object such as a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectType(TypeId);

/// The group of the kinds that belong to all groups.
const META: &str = "meta.k8s.io";

/// Returns the table of all built-in types.
pub(crate) fn types() -> &'static Types {
    // A test checks that the embedded file can be parsed.
    static TYPES: LazyLock<Types> =
        LazyLock::new(|| Types::parse(include_str!("../data/types.txt")).unwrap_or_default());
    &TYPES
}

impl From<TypeId> for ObjectType {
    fn from(id: TypeId) -> Self {
        Self(id)
    }
}

impl ObjectType {
    /// Returns the type of a kind. `group` is empty for the core group.
    pub(crate) fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        types().kind(group, version, kind).map(Self)
    }

    /// Returns the type of what a body may name, also where no such kind is served: some belong to every version, known
    /// or not, and options of requests to every known one.
    pub(crate) fn registered(group: &str, version: &str, kind: &str) -> Option<Self> {
        const OF_ANY_VERSION: &[&str] = &["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];
        const OF_KNOWN_VERSIONS: &[&str] = &[
            "CreateOptions",
            "DeleteOptions",
            "GetOptions",
            "ListOptions",
            "PatchOptions",
            "UpdateOptions",
            "WatchEvent",
        ];
        let shared = || Self::of(META, "v1", kind);
        match kind {
            _ if OF_ANY_VERSION.contains(&kind) => shared(),
            _ if group == META => None,
            _ if OF_KNOWN_VERSIONS.contains(&kind) => shared().filter(|_| types().has_version(group, version)),
            _ => Self::of(group, version, kind),
        }
    }

    /// Returns the type of an object by its `apiVersion` and `kind`, if it is a built-in one.
    pub(crate) fn of_object(object: &Value) -> Option<Self> {
        let (version, kind) = (object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        // Objects that belong to no group, such as a `Status`, are in version `v1` of the core group.
        Self::of(group, version, kind).or_else(|| Self::of(META, version, kind).filter(|_| group.is_empty()))
    }

    /// Returns the type of an object, or of a document that names no version: those of the core group in discovery are
    /// older than the field.
    pub(crate) fn of_document(document: &Value) -> Option<Self> {
        Self::of_object(document).or_else(|| match document.get("apiVersion") {
            None => Self::of(META, "v1", document.get("kind")?.as_str()?),
            Some(_) => None,
        })
    }

    /// Returns the type of the metadata of all objects.
    pub(crate) fn of_metadata() -> Option<Self> {
        types().find("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").map(Self)
    }

    /// Returns the identifier of the type in the table.
    pub(crate) fn id(self) -> TypeId {
        self.0
    }

    /// Rewrites an object as its type would write it ([`Types::decode`]).
    pub(crate) fn decode(self, object: &mut Value) -> Result<Decoded, String> {
        self.decode_text(object, None)
    }

    /// Like [`Self::decode`]. Of several values of wrong types, reports the first in the JSON text of the object, if
    /// known.
    pub(crate) fn decode_text(self, object: &mut Value, text: Option<&[u8]>) -> Result<Decoded, String> {
        types().decode(self.0, object).map_err(|wrong| match text {
            Some(text) => wrong.in_document(text).to_owned(),
            None => wrong.to_string(),
        })
    }

    /// Returns why the result of a strategic merge patch can't be read ([`Types::unrestorable`]).
    pub(crate) fn unrestorable(self, object: &Value) -> Option<String> {
        types().unrestorable(self.0, object)
    }

    /// Adds the fields that the type always writes ([`Types::complete`]).
    pub(crate) fn complete(self, object: &mut Value) {
        types().complete(self.0, object);
    }

    /// Like [`Self::complete`], for an object that is about to be stored ([`Types::complete_stored`]).
    pub(crate) fn complete_stored(self, object: &mut Value) {
        types().complete_stored(self.0, object);
    }

    /// Returns an object without any set field.
    pub(crate) fn blank(self) -> &'static Value {
        static BLANKS: LazyLock<BTreeMap<TypeId, OnceLock<Value>>> =
            LazyLock::new(|| types().named().map(|(id, _)| (id, OnceLock::new())).collect());
        let create = || types().blank(self.0);
        // A kind's type has a name.
        static NONE: Value = Value::Null;
        BLANKS.get(&self.0).map_or(&NONE, |blank| blank.get_or_init(create))
    }

    /// Returns the paths of required fields that are empty ([`Types::missing`]).
    pub(crate) fn missing(self, object: &Value) -> Vec<String> {
        types().missing(self.0, object)
    }

    /// Writes an object as JSON, with the fields in their declared order ([`Types::write`]).
    pub(crate) fn write(self, object: &Value, out: &mut Vec<u8>) {
        types().write(self.0, object, out);
    }
}

/// Returns the metadata of a list as JSON.
pub(crate) fn list_meta(metadata: &Value) -> Vec<u8> {
    metadata_of("ListMeta", metadata)
}

/// Returns the metadata of an object as JSON.
pub(crate) fn object_meta(metadata: &Value) -> Vec<u8> {
    metadata_of("ObjectMeta", metadata)
}

fn metadata_of(kind: &str, metadata: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match types().find(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")) {
        Some(ty) => types().write(ty, metadata, &mut out),
        None => write(metadata, &mut out),
    }
    out
}

/// Writes an object as JSON: a built-in one with its fields in their declared order, any other sorted.
pub(crate) fn write(object: &Value, out: &mut Vec<u8>) {
    match ObjectType::of_document(object) {
        Some(ty) => ty.write(object, out),
        None => go_json::write(object, out),
    }
}

/// Returns an object as JSON, like [`write`].
pub(crate) fn to_vec(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write(object, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::types::{Field, Shape};
    use serde_json::{Map, json};

    use super::*;
    use crate::registry::builtin;

    #[test]
    fn the_embedded_table_is_read() {
        let types = Types::parse(include_str!("../data/types.txt")).unwrap_or_else(|error| panic!("{error}"));
        assert!(types.named().count() > 700);
        let name = |object| ObjectType::of_object(&object).map(|ty| types.get(ty.0).name().unwrap_or_default());
        assert_eq!(name(json!({"apiVersion": "v1", "kind": "Pod"})).as_deref(), Some("io.k8s.api.core.v1.Pod"));
        let status = name(json!({"apiVersion": "v1", "kind": "Status"}));
        assert_eq!(status.as_deref(), Some("io.k8s.apimachinery.pkg.apis.meta.v1.Status"));
        assert_eq!(name(json!({"apiVersion": "example.com/v1", "kind": "Pod"})), None);
    }

    fn kinds() -> Vec<ObjectType> {
        let registry =
            builtin::registry(&kubewright_apimachinery::random::Random::seeded(1), &builtin::Indexes::default());
        let kinds: Vec<_> = registry.all().iter().filter_map(|resource| resource.schema.served).collect();
        assert_eq!(kinds.len(), registry.all().len());
        kinds
    }

    /// Returns a value with every field, in a form that clients send but Go doesn't write. Returns `None` for a struct
    /// in itself.
    fn sample(ty: TypeId, path: &mut Vec<TypeId>) -> Option<Value> {
        Some(match types().get(ty).shape() {
            Shape::String => json!("x"),
            Shape::Bool => json!(true),
            Shape::Int32 | Shape::Int64 => json!(7),
            Shape::Float64 => json!(2.0),
            Shape::Bytes => json!("YW\nJj"),
            Shape::Time => json!("2026-01-31T23:59:59.5+02:00"),
            Shape::MicroTime => json!("2026-01-31T23:59:59.500000+02:00"),
            Shape::Quantity => json!("1024Mi"),
            Shape::IntOrString => json!("50%"),
            Shape::Any => json!({"b": [null], "a": 1}),
            Shape::SchemaOrArray(_) | Shape::SchemaOrBool(_) | Shape::SchemaOrStrings(_) => {
                json!({"type": "string", "maximum": 1.0, "unknown": 1})
            }
            Shape::List(of) => json!([sample(*of, path)?]),
            Shape::Map(of) => json!({"key": sample(*of, path)?}),
            Shape::Struct(_) if path.contains(&ty) => return None,
            Shape::Struct(all) => {
                path.push(ty);
                let field = |field: &Field| Some((field.name().to_owned(), sample(field.ty(), path)?));
                let fields: Map<_, _> = all.fields().iter().filter_map(field).collect();
                path.pop();
                Value::Object(fields)
            }
        })
    }

    fn places(value: &Value, at: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, child)| {
                places(child, &format!("{at}/{}", name.replace('/', "~1")), all);
            }),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, child)| places(child, &format!("{at}/{index}"), all));
            }
            _ => {}
        }
        all.push(at.to_owned());
    }

    /// Passes an object through its type, and checks that nothing changes it from then on.
    fn check(ty: ObjectType, object: &mut Value) -> bool {
        let Ok(decoded) = ty.decode(object) else { return false };
        assert_eq!(decoded.unknown, [""; 0], "{object}");
        ty.complete(object);
        let mut text = Vec::new();
        ty.write(object, &mut text);
        let mut read: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, *object);
        ty.decode(&mut read).unwrap();
        ty.complete(&mut read);
        assert_eq!(read, *object);
        true
    }

    #[test]
    fn every_object_is_stable_once_it_has_passed_through_its_type() {
        for ty in kinds() {
            let mut object = sample(ty.0, &mut Vec::new()).unwrap();
            assert!(
                check(ty, &mut object),
                "{}: {:?}",
                types().get(ty.0).name().unwrap_or_default(),
                ty.decode(&mut object)
            );
            assert!(check(ty, &mut json!({})));
        }
    }

    #[test]
    fn a_value_of_any_type_is_possible_everywhere() {
        let odd = [json!(null), json!(-1.5), json!("x"), json!([null]), json!([{}]), json!({"x": null}), json!(false)];
        // The types of a pod and of a CRD contain nearly all others.
        for (group, kind) in [("", "Pod"), ("", "Service"), ("apiextensions.k8s.io", "CustomResourceDefinition")] {
            let ty = ObjectType::of(group, "v1", kind).unwrap();
            let sample = sample(ty.0, &mut Vec::new()).unwrap();
            let mut all = Vec::new();
            places(&sample, "", &mut all);
            for (number, place) in all.iter().enumerate() {
                let mut object = sample.clone();
                *object.pointer_mut(place).unwrap() = odd[number % odd.len()].clone();
                let _ = ty.decode(&mut object.clone()).map(|_| ());
                *object.pointer_mut(place).unwrap() = Value::Null;
                if let Ok(decoded) = ty.decode(&mut object) {
                    assert_eq!(decoded.unknown, [""; 0]);
                    ty.complete(&mut object);
                    ty.missing(&object);
                }
            }
        }
    }

    #[test]
    fn objects_look_as_go_writes_them() {
        let written = |kind: &str, group: &str, object: Value| {
            let ty = ObjectType::of(group, "v1", kind).unwrap();
            let mut object = object;
            ty.decode(&mut object).unwrap();
            ty.complete_stored(&mut object);
            String::from_utf8(to_vec(&object)).unwrap()
        };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        assert_eq!(
            written("Node", "", node),
            concat!(
                r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":{},"status":{"daemonEndpoints":"#,
                r#"{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","#,
                r#""kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","#,
                r#""kubeProxyVersion":"","operatingSystem":"","architecture":""}}}"#
            )
        );
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []});
        let expect = r#"{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{},"rules":null}"#;
        assert_eq!(written("ClusterRole", "rbac.authorization.k8s.io", role), expect);
    }
}
