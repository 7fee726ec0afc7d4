//! Validation of CRDs' schemas, which must be structural
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>).
//!
//! The checks read the document itself, since [`super::Schema`] has no fields for most forbidden keywords. As in
//! kube-apiserver, the structure is checked first, defaults only if it is right, and keywords always
//! (`validateCustomResourceDefinitionValidation` in `apiextensions-apiserver`). CEL expressions are parsed elsewhere.

mod default;
mod field_path;
mod keyword;
mod structure;
mod unsupported;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Schema, parse::from_openapi};
use crate::{depth, status::Cause};

/// The name of the field with the schema.
pub const ROOT: &str = "openAPIV3Schema";

/// Returns the errors of a CRD's `openAPIV3Schema`, and whether it is structural with valid defaults, so that its rules
/// can be checked. The causes' fields begin with `at`, the path of the field with the schema in the CRD, such as
/// `spec.validation`.
pub fn check(document: &Value, at: &str) -> (Vec<Cause>, bool) {
    let path = if at.is_empty() { ROOT.to_owned() } else { format!("{at}.{ROOT}") };
    if depth::of(document) > depth::LIMIT {
        return (vec![Cause::forbidden(path, &format!("must not nest deeper than {} levels", depth::LIMIT))], false);
    }
    let root = Place { document: object(document), path };
    let unsupported = unsupported::find(&root);
    let mut causes = if unsupported.is_none() { check_structure(&root) } else { Vec::new() };
    let is_structural = unsupported.is_none() && causes.is_empty();
    causes.extend(keyword::check(&root));
    // The keywords that are unsupported have errors of their own, with the exception of `$schema`.
    if let Some(keyword) = unsupported.filter(|_| causes.is_empty()) {
        let why = format!("OpenAPIV3Schema '{keyword}' is not supported");
        causes.push(Cause::invalid(root.path, &"".into(), &why));
    }
    (causes, is_structural)
}

/// Returns the errors of the structure, sorted as in Kubernetes, or, if it has none, those of the defaults.
fn check_structure(root: &Place<'_>) -> Vec<Cause> {
    let mut causes = structure::check(root);
    causes.sort_by_cached_key(ToString::to_string);
    if causes.is_empty() { default::check(root) } else { causes }
}

/// Returns whether a CRD's `openAPIV3Schema` contains a default.
pub fn has_defaults(document: &Value) -> bool {
    let mut stack = vec![Place { document: object(document), path: String::new() }];
    while let Some(place) = stack.pop() {
        if place.value("default").is_some() {
            return true;
        }
        stack.extend(place.children().into_iter().map(|(_, child)| child));
    }
    false
}

/// Parses a CRD's `openAPIV3Schema`, even if it isn't structural. The causes' fields begin with `openAPIV3Schema`.
///
/// # Errors
/// If the document contains an unknown type, or is deeper than [`depth::LIMIT`], which no decoded document is.
pub fn parse(document: &Value) -> Result<Schema, Vec<Cause>> {
    if depth::of(document) > depth::LIMIT {
        let why = format!("must not nest deeper than {} levels", depth::LIMIT);
        return Err(vec![Cause::forbidden(ROOT, &why)]);
    }
    let causes = check_types(document);
    if causes.is_empty() { Ok(from_openapi(document)) } else { Err(causes) }
}

/// Reports unknown type names anywhere in the document.
fn check_types(document: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut stack = vec![Place { document: object(document), path: ROOT.into() }];
    while let Some(place) = stack.pop() {
        causes.extend(keyword::check_type(&place));
        stack.extend(place.children().into_iter().map(|(_, child)| child));
    }
    causes.sort_by_cached_key(ToString::to_string);
    causes
}

/// A schema within the document.
#[derive(Clone)]
struct Place<'a> {
    document: &'a Map<String, Value>,
    path: String,
}

/// The relation of a schema to the schema that contains it.
#[derive(Clone, Copy, PartialEq)]
enum Relation<'a> {
    Property(&'a str),
    Additional,
    Items,
    /// `allOf`, `anyOf`, `oneOf`, `not`: a constraint on values.
    Junctor(&'static str, usize),
}

fn object(value: &Value) -> &Map<String, Value> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.as_object().unwrap_or(&EMPTY)
}

impl<'a> Place<'a> {
    fn str(&self, name: &str) -> Option<&'a str> {
        self.document.get(name).and_then(Value::as_str)
    }

    fn flag(&self, name: &str) -> bool {
        self.document.get(name) == Some(&Value::Bool(true))
    }

    /// Returns a member that exists and is not null.
    fn value(&self, name: &str) -> Option<&'a Value> {
        self.document.get(name).filter(|value| !value.is_null())
    }

    /// Returns the type's name, empty if absent.
    fn kind(&self) -> &'a str {
        self.str("type").unwrap_or_default()
    }

    fn texts(&self, name: &str) -> Vec<&'a str> {
        self.value(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the path of a keyword.
    fn at(&self, keyword: &str) -> String {
        format!("{}.{keyword}", self.path)
    }

    /// Returns the schema of a keyword. `None` if its value is not an object, such as `additionalProperties: true`.
    fn child(&self, keyword: &str) -> Option<Self> {
        let document = self.document.get(keyword)?.as_object()?;
        Some(Self { document, path: self.at(keyword) })
    }

    /// Returns whether `additionalProperties` is `true` or a schema.
    fn allows_additional(&self) -> bool {
        self.value("additionalProperties").is_some_and(|value| *value != Value::Bool(false))
    }

    fn property(&self, name: &str) -> Option<Self> {
        let document = self.document.get("properties")?.get(name)?.as_object()?;
        Some(Self { document, path: format!("{}.properties[{name}]", self.path) })
    }

    /// Returns the names of the properties.
    fn names(&self) -> Vec<&'a str> {
        self.value("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect()
    }

    fn junctors(&self, keyword: &'static str) -> Vec<(Relation<'a>, Self)> {
        let list = self.value(keyword).and_then(Value::as_array).into_iter().flatten().enumerate();
        list.map(|(index, document)| {
            let path = format!("{}.{keyword}[{index}]", self.path);
            (Relation::Junctor(keyword, index), Self { document: object(document), path })
        })
        .collect()
    }

    /// Returns the direct subschemas, in the order in which Kubernetes checks them.
    fn children(&self) -> Vec<(Relation<'a>, Self)> {
        let mut children = Vec::new();
        children.extend(self.child("additionalProperties").map(|place| (Relation::Additional, place)));
        for name in self.names() {
            children.extend(self.property(name).map(|place| (Relation::Property(name), place)));
        }
        children.extend(self.child("not").map(|place| (Relation::Junctor("not", 0), place)));
        for keyword in ["allOf", "oneOf", "anyOf"] {
            children.extend(self.junctors(keyword));
        }
        children.extend(self.child("items").map(|place| (Relation::Items, place)));
        children
    }
}

#[cfg(test)]
mod tests;
