//! Validation of values against a schema, with the errors of kube-apiserver's validation of custom resources.
//!
//! CEL rules, unknown fields and metadata are validated elsewhere.

mod embedded;
pub(super) mod format;
mod limit;
mod list;
mod number;

use serde_json::{Map, Value};

use super::{Additional, Kind, Node, Schema, correlation::OldItems};
use crate::{field_path::FieldPath, go_json::MAX_EXACT, status::Cause};

/// Returns the violations of the schema, in the field order of `value`. In Kubernetes, their order is that of a Go map.
///
/// If `value` replaces `old`, violations in unchanged values are accepted ("ratcheting"), except in the version and the
/// kind. Values are compared with the same field, or with the element that has the same keys in a list of type map,
/// whose order doesn't count. Duplicates in lists are accepted if the old value has any, wherever they are.
pub fn validate(node: Node<'_>, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let causes = Validator::run(node, value, None);
    // Nearly all values are valid, so the old value is compared only if the new one is invalid.
    if causes.is_empty() || old.is_none() { causes } else { Validator::run(node, value, old) }
}

/// Returns whether two values are the same but for the order of lists of type map.
fn is_same(node: Node<'_>, old: &Value, value: &Value) -> bool {
    match (old, value) {
        _ if old == value => true,
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && after.iter().all(|(name, value)| {
                    let old = before.get(name);
                    old.is_some_and(|old| node.field(name).map_or(old == value, |inner| is_same(inner, old, value)))
                })
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let Some(mut counterparts) = OldItems::of(&node.schema().list, Some(old)) else { return false };
            after.iter().enumerate().all(|(index, item)| {
                counterparts.counterpart(index, item).is_some_and(|(_, old)| is_same(node.items(), old, item))
            })
        }
        _ => false,
    }
}

/// The field of causes that kube-apiserver doesn't attribute to a field. Their message names it.
const NO_FIELD: &str = "<nil>";

#[derive(Default)]
struct Validator {
    causes: Vec<Cause>,
    /// The number of checks that applied, by which failed alternatives are compared.
    checks: usize,
    /// The number of violations of lists of types set and map.
    duplicates: usize,
    /// Whether such violations are accepted.
    ignores_duplicates: bool,
}

impl Validator {
    fn run(node: Node<'_>, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let has_duplicates = |old: &Value| {
            let mut validator = Self::default();
            validator.visit(node, old, None, &FieldPath::Root);
            validator.duplicates > 0
        };
        let mut validator = Self { ignores_duplicates: old.is_some_and(has_duplicates), ..Self::default() };
        validator.visit(node, value, old, &FieldPath::Root);
        validator.causes
    }

    fn visit(&mut self, node: Node<'_>, value: &Value, old: Option<&Value>, path: &FieldPath<'_>) {
        if node.is_anything() {
            return;
        }
        let before = self.causes.len();
        self.check(node, value, old, path);
        if self.causes.len() > before && old.is_some_and(|old| is_same(node, old, value)) {
            self.causes.truncate(before);
        }
    }

    fn check(&mut self, node: Node<'_>, value: &Value, old: Option<&Value>, path: &FieldPath<'_>) {
        let schema = node.schema();
        let mismatch = type_mismatch(schema, value);
        self.checks += applied(schema, value, mismatch.is_none());
        if let Some((wanted, found)) = mismatch {
            let shown = Value::from(found);
            let why = format!("{path} in body must be of type {wanted}: {shown}");
            self.causes.push(Cause::new("FieldValueTypeInvalid", path.to_string(), invalid(&shown, &why)));
        }
        if value.is_null() {
            limit::check_enum(schema, value, path, &mut self.causes);
            return;
        }
        self.check_logic(node, value, path);
        limit::check(schema, value, path, &mut self.causes);
        match value {
            Value::Object(fields) => self.check_object(node, fields, old, path),
            Value::Array(items) => self.check_array(node, items, old, path),
            _ => {}
        }
    }

    fn check_object(&mut self, node: Node<'_>, fields: &Map<String, Value>, old: Option<&Value>, path: &FieldPath<'_>) {
        let schema = node.schema();
        let closed = schema.additional == Additional::Allowed(false);
        for (name, value) in fields {
            match node.field(name) {
                Some(inner) => {
                    let is_of_type = matches!(path, FieldPath::Root) && matches!(&**name, "apiVersion" | "kind");
                    let old = old.filter(|_| !is_of_type).and_then(|old| old.get(name));
                    self.visit(inner, value, old, &path.field(name));
                }
                None if closed => {
                    let why = format!("{path}.{name} in body is a forbidden property");
                    self.causes.push(Cause::invalid(path.to_string(), &name.as_str().into(), &why));
                }
                None => {}
            }
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
            self.causes.push(Cause::required(path.field(name).to_string(), ""));
        }
        if schema.embedded_resource {
            embedded::check(fields, path, &mut self.causes);
        }
    }

    fn check_array(&mut self, node: Node<'_>, items: &[Value], old: Option<&Value>, path: &FieldPath<'_>) {
        let schema = node.schema();
        let inner = node.items();
        if !inner.is_anything() {
            let mut old = OldItems::of(&schema.list, old);
            for (index, item) in items.iter().enumerate() {
                let old = old.as_mut().and_then(|old| old.counterpart(index, item));
                self.visit(inner, item, old.map(|(_, item)| item), &path.item(index));
            }
        }
        let before = self.causes.len();
        list::check_unique(schema, items, path, &mut self.causes);
        self.duplicates += self.causes.len() - before;
        if self.ignores_duplicates {
            self.causes.truncate(before);
        }
    }

    fn check_logic(&mut self, node: Node<'_>, value: &Value, path: &FieldPath<'_>) {
        let logic = &node.schema().logic;
        let attempt = |schema: &Schema| {
            let mut validator = Self::default();
            validator.visit(Node::new(schema, node.definitions()), value, None, path);
            validator
        };
        let unattributed = |why: String| Cause::invalid(NO_FIELD, &"".into(), &why);
        let path = || format!("{:?}", path.to_string());
        let attempts = |schemas: &[Schema]| -> (Vec<_>, Vec<_>) {
            schemas.iter().map(attempt).partition(|attempt: &Self| attempt.causes.is_empty())
        };
        if !logic.any_of.is_empty() {
            let (valid, failed) = attempts(&logic.any_of);
            if valid.is_empty() {
                self.causes.push(unattributed(format!("{} must validate at least one schema (anyOf)", path())));
            }
            self.add(valid.into_iter().next().unwrap_or_else(|| Self::closest(failed)));
        }
        if !logic.one_of.is_empty() {
            let (mut valid, failed) = attempts(&logic.one_of);
            let violated = |found: &str| {
                unattributed(format!("{} must validate one and only one schema (oneOf). {found}", path()))
            };
            match (valid.pop(), valid.len()) {
                (Some(valid), 0) => self.add(valid),
                (Some(_), others) => {
                    self.causes.push(violated(&format!("Found {} valid alternatives", others + 1)));
                }
                (None, _) => {
                    self.causes.push(violated("Found none valid"));
                    self.add(Self::closest(failed));
                }
            }
        }
        if !logic.all_of.is_empty() {
            let mut failed = 0;
            for attempt in logic.all_of.iter().map(attempt) {
                failed += usize::from(!attempt.causes.is_empty());
                self.add(attempt);
            }
            if failed > 0 {
                let none = if failed == logic.all_of.len() { ". None validated" } else { "" };
                self.causes.push(unattributed(format!("{} must validate all the schemas (allOf){none}", path())));
            }
        }
        if logic.not.as_deref().is_some_and(|not| attempt(not).causes.is_empty()) {
            self.causes.push(unattributed(format!("{} must not validate the schema (not)", path())));
        }
    }

    /// Adds what was found with a schema of `allOf`, `anyOf` or `oneOf`.
    fn add(&mut self, other: Self) {
        self.causes.extend(other.causes);
        self.checks += other.checks;
    }

    /// Returns the alternative with the most checks, whose violations are the ones that are reported.
    fn closest(failed: Vec<Self>) -> Self {
        let first_of_most = |closest: Self, next: Self| if next.checks > closest.checks { next } else { closest };
        failed.into_iter().reduce(first_of_most).unwrap_or_default()
    }
}

/// Returns the number of checks that apply to a value, as kube-openapi counts them: those for its own type, and those
/// that the schema asks for. A type that doesn't fit counts less.
fn applied(schema: &Schema, value: &Value, fits: bool) -> usize {
    let by_value = match value {
        Value::Null => return usize::from(fits),
        Value::Bool(_) => 4,
        Value::String(_) | Value::Object(_) => 5,
        Value::Number(_) | Value::Array(_) => 6,
    };
    let has_format = schema.format.is_some();
    let is_typed = schema.kind.is_some() || schema.int_or_string || has_format;
    let by_type = if is_typed { 1 + usize::from(fits) } else { 0 };
    by_value + by_type + usize::from(has_format && value.is_string())
}

/// Returns the message of an invalid value, for causes with a more specific reason.
fn invalid(value: &Value, why: &str) -> String {
    // The root has no name, so the reason begins with a space, as in Kubernetes.
    format!("Invalid value: {value}: {why}")
}

/// Returns the expected and the actual type, in kube-apiserver's terms, if they differ.
fn type_mismatch(schema: &Schema, value: &Value) -> Option<(String, &'static str)> {
    if schema.int_or_string {
        let fits = value.is_string() || is_integer(value) || (value.is_null() && schema.nullable);
        return (!fits).then(|| ("integer,string".into(), type_name(value)));
    }
    let kind = schema.kind?;
    let fits = match (kind, value) {
        (_, Value::Null) => schema.nullable,
        (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::String, Value::String(_))
        | (Kind::Number, Value::Number(_))
        | (Kind::Boolean, Value::Bool(_)) => true,
        (Kind::Integer, _) => is_integer(value),
        _ => false,
    };
    if fits {
        return None;
    }
    // If the schema has a format, values other than strings and lists are compared by format.
    Some(match (&schema.format, value) {
        (Some(format), Value::Number(number)) if !number.is_i64() => (format.clone(), "float64"),
        (Some(format), Value::Number(_)) => (format.clone(), "int64"),
        (Some(format), Value::Bool(_) | Value::Object(_)) => (format.clone(), ""),
        _ => (kind.as_str().into(), type_name(value)),
    })
}

fn is_integer(value: &Value) -> bool {
    match value {
        // Go reads other numbers as floats, which count as integers only if all of that size are exact.
        Value::Number(number) => {
            number.is_i64() || number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= MAX_EXACT)
        }
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
