//! Structure: every field must be specified outside of `allOf`, `anyOf`, `oneOf` and `not`, which only validate
//! values.

use serde_json::{Value, json};

use super::{Place, Relation};
use crate::{pattern, status::Cause};

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

pub(super) fn check(root: &Place<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    invariants(root, Level::Root, &mut causes);
    completeness(root, root, &mut causes);
    causes
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a schema that specifies structure.
fn invariants(place: &Place<'_>, level: Level, causes: &mut Vec<Cause>) {
    if place.kind() == "array" && place.value("items").is_none() {
        causes.push(Cause::required(place.at("items"), "must be specified"));
    }
    check_type(place, level, causes);
    check_flags(place, level, causes);
    check_pattern(place, causes);
    if level == Level::Root || place.flag(EMBEDDED) {
        for name in ["kind", "apiVersion"] {
            if let Some(field) = place.property(name).filter(|field| field.kind() != "string") {
                causes.push(Cause::invalid(field.at("type"), &field.kind().into(), "must be string"));
            }
        }
    }
    if let Some(metadata) = place.property("metadata") {
        check_metadata(place, &metadata, level, causes);
    }
    for (relation, child) in place.children() {
        match relation {
            Relation::Property(_) | Relation::Additional => invariants(&child, Level::Field, causes),
            Relation::Items => invariants(&child, Level::Item, causes),
            Relation::Junctor("anyOf", _) if is_int_or_string(place) => {}
            Relation::Junctor(keyword, index) => {
                let skip_any_of = (keyword, index) == ("allOf", 0) && is_int_or_string(&child);
                value_check(&child, skip_any_of, causes);
            }
        }
    }
}

fn check_type(place: &Place<'_>, level: Level, causes: &mut Vec<Cause>) {
    let kind = place.kind();
    if place.flag(EMBEDDED) && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(match kind {
            "" => Cause::required(place.at("type"), why),
            _ => Cause::invalid(place.at("type"), &kind.into(), why),
        });
    } else if kind.is_empty() && !place.flag(INT_OR_STRING) && !place.flag(PRESERVE) {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(place.at("type"), why));
    }
    if level == Level::Root && !matches!(kind, "" | "object") {
        causes.push(Cause::invalid(place.at("type"), &kind.into(), "must be object at the root"));
    }
}

fn check_flags(place: &Place<'_>, level: Level, causes: &mut Vec<Cause>) {
    for flag in [PRESERVE, EMBEDDED] {
        if place.flag(INT_OR_STRING) && place.flag(flag) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(place.at(flag), &Value::Bool(true), why));
        }
    }
    if place.value("additionalProperties").is_some() {
        if level == Level::Root {
            causes.push(Cause::forbidden(place.at("additionalProperties"), "must not be used at the root"));
        }
        if place.flag(EMBEDDED) {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            causes.push(Cause::forbidden(place.at("additionalProperties"), why));
        }
    }
    if place.flag(EMBEDDED) && !place.flag(PRESERVE) && place.names().is_empty() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(place.at("properties"), why));
    }
}

fn check_metadata(place: &Place<'_>, metadata: &Place<'_>, level: Level, causes: &mut Vec<Cause>) {
    let is_object_meta = level == Level::Root || place.flag(EMBEDDED);
    if is_object_meta && metadata.kind() != "object" {
        causes.push(Cause::invalid(metadata.at("type"), &metadata.kind().into(), "must be object"));
    }
    let only_names = metadata.names().iter().all(|name| matches!(*name, "name" | "generateName"));
    let only_structure =
        metadata.document.keys().all(|keyword| matches!(keyword.as_str(), "type" | "properties" | "default"));
    if level == Level::Root && !(only_names && only_structure) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(&metadata.path, why));
    }
}

fn check_pattern(place: &Place<'_>, causes: &mut Vec<Cause>) {
    let Some(text) = place.str("pattern") else { return };
    if let Err(error) = pattern::compile(text, None) {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(place.at("pattern"), &text.into(), &why));
    }
}

/// Returns whether `anyOf` expresses "integer or string", in which types are therefore allowed, whether or not the
/// schema has the marker of such values.
fn is_int_or_string(place: &Place<'_>) -> bool {
    let spelled_out = json!([{"type": "integer"}, {"type": "string"}]);
    place.document.get("anyOf") == Some(&spelled_out)
}

/// Checks a schema inside a junctor.
fn value_check(place: &Place<'_>, skip_any_of: bool, causes: &mut Vec<Cause>) {
    const EMPTY: &str = "must be empty to be structural";
    const FALSE: &str = "must be false to be structural";
    const UNDEFINED: &str = "must be undefined to be structural";
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", EMPTY),
        ("additionalProperties", UNDEFINED),
        ("default", UNDEFINED),
        ("title", EMPTY),
        ("description", EMPTY),
        ("nullable", FALSE),
        (PRESERVE, FALSE),
        (EMBEDDED, FALSE),
        (INT_OR_STRING, FALSE),
        ("x-kubernetes-list-map-keys", EMPTY),
        ("x-kubernetes-list-type", UNDEFINED),
        ("x-kubernetes-map-type", UNDEFINED),
    ];
    let is_set = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(false) => false,
        _ => true,
    };
    for (keyword, why) in FORBIDDEN {
        // `additionalProperties: false` has no counterpart among the checks of values.
        let is_defined = why == UNDEFINED && (keyword != "additionalProperties" || place.allows_additional());
        let set = place.value(keyword).is_some_and(|value| is_set(value) || is_defined);
        if set {
            causes.push(Cause::forbidden(place.at(keyword), why));
        }
    }
    if place.value("x-kubernetes-validations").is_some_and(is_set) {
        causes.push(Cause::forbidden(place.at("x-kubernetes-validations"), EMPTY));
    }
    if let Some(metadata) = place.property("metadata") {
        causes.push(Cause::forbidden(metadata.path, "must not be specified in a nested context"));
    }
    check_pattern(place, causes);
    for (relation, child) in place.children() {
        match relation {
            Relation::Junctor("anyOf", _) if skip_any_of => {}
            Relation::Additional => {}
            _ => value_check(&child, false, causes),
        }
    }
}

/// Checks that what a schema inside a junctor of the root constrains is specified by `structure`, the schema of the
/// same values. As in Kubernetes, junctors further inside aren't checked (`validateStructuralCompleteness` in
/// `apiextensions-apiserver`).
fn completeness(place: &Place<'_>, structure: &Place<'_>, causes: &mut Vec<Cause>) {
    let is_root = place.path == structure.path;
    for (relation, child) in place.children() {
        let outside = match relation {
            Relation::Junctor(..) => Ok(structure.clone()),
            _ if is_root => continue,
            Relation::Property(name) => structure.property(name).ok_or(format!("properties[{name}]")),
            Relation::Items => structure.child("items").ok_or("items".into()),
            Relation::Additional => continue,
        };
        match outside {
            Ok(outside) => completeness(&child, &outside, causes),
            Err(part) => {
                let why = format!("because it is defined in {}", child.path);
                causes.push(Cause::required(structure.at(&part), &why));
            }
        }
    }
}
