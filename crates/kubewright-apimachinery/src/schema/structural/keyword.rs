//! Allowed keywords, and the rules of extensions.

use serde_json::Value;

use super::{Place, Relation, field_path};
use crate::status::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn check(root: &Place<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let context = Context { is_root: true, inside_meta: false, no_default: None };
    visit(root, &context, &mut causes);
    causes
}

#[derive(Clone)]
struct Context {
    is_root: bool,
    inside_meta: bool,
    /// The reason why defaults are forbidden, if they are.
    no_default: Option<String>,
}

fn visit(place: &Place<'_>, context: &Context, causes: &mut Vec<Cause>) {
    check_keywords(place, context, causes);
    for (relation, child) in place.children() {
        let mut inner = Context { is_root: false, ..context.clone() };
        match relation {
            Relation::Additional if context.inside_meta => {
                inner.no_default = Some("inside additionalProperties applying to object metadata".into());
            }
            Relation::Property(name)
                if META_FIELDS.contains(&name) && (context.is_root || place.flag("x-kubernetes-embedded-resource")) =>
            {
                inner.inside_meta = true;
                if context.is_root {
                    inner.no_default = Some(format!("in top-level {name}"));
                }
            }
            _ => {}
        }
        visit(&child, &inner, causes);
    }
    check_extensions(place, causes);
    check_list(place, causes);
    check_rules(place, causes);
}

pub(super) fn check_type(place: &Place<'_>) -> Option<Cause> {
    match place.value("type")? {
        Value::String(name) if name.is_empty() || TYPES.contains(&name.as_str()) => None,
        other => Some(Cause::not_supported(place.at("type"), other, &TYPES)),
    }
}

fn check_keywords(place: &Place<'_>, context: &Context, causes: &mut Vec<Cause>) {
    causes.extend(check_type(place));
    if place.value("default").is_some()
        && let Some(why) = &context.no_default
    {
        causes.push(Cause::forbidden(place.at("default"), &format!("must not be set {why}")));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let used = match place.value(keyword) {
            None => false,
            Some(Value::String(text)) if keyword == "id" => !text.is_empty(),
            Some(Value::Object(members)) if matches!(keyword, "patternProperties" | "definitions") => {
                !members.is_empty()
            }
            Some(_) => true,
        };
        if used {
            causes.push(Cause::forbidden(place.at(keyword), &format!("{keyword} is not supported")));
        }
    }
    if place.kind() == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        causes.push(Cause::forbidden(place.at("type"), why));
    }
    if matches!(place.value("items"), Some(Value::Array(_))) {
        causes.push(Cause::forbidden(place.at("items"), "items must be a schema object and not an array"));
    }
    if context.inside_meta && place.flag("x-kubernetes-embedded-resource") {
        let why = "must not be used inside of resource meta";
        causes.push(Cause::forbidden(place.at("x-kubernetes-embedded-resource"), why));
    }
    if place.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(place.at("uniqueItems"), why));
    }
    let closed_map = place.value("additionalProperties").is_some_and(|value| *value != Value::Bool(true));
    if closed_map && !place.names().is_empty() {
        let why = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(place.at("additionalProperties"), why));
    }
}

/// Checks that a schema with this marker has the required type.
fn demand_type(place: &Place<'_>, kind: &str, marker: &str, causes: &mut Vec<Cause>) {
    let why = format!("must be {kind} if {marker} is specified");
    match place.kind() {
        found if found == kind => {}
        "" => causes.push(Cause::required(place.at("type"), &why)),
        found => causes.push(Cause::invalid(place.at("type"), &found.into(), &why)),
    }
}

fn check_extensions(place: &Place<'_>, causes: &mut Vec<Cause>) {
    const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
    const MAP_TYPE: &str = "x-kubernetes-map-type";
    if place.document.get(PRESERVE) == Some(&Value::Bool(false)) {
        causes.push(Cause::invalid(place.at(PRESERVE), &Value::Bool(false), "must be true or undefined"));
    }
    if let Some(value) = place.value(MAP_TYPE) {
        demand_type(place, "object", MAP_TYPE, causes);
        if !matches!(value.as_str(), Some("atomic" | "granular")) {
            causes.push(Cause::not_supported(place.at(MAP_TYPE), value, &["atomic", "granular"]));
        }
    }
}

fn check_list(place: &Place<'_>, causes: &mut Vec<Cause>) {
    const LIST_TYPE: &str = "x-kubernetes-list-type";
    let keys = place.texts("x-kubernetes-list-map-keys");
    let list_type = place.str(LIST_TYPE);
    let items = place.child("items");
    if let Some(value) = place.value(LIST_TYPE) {
        demand_type(place, "array", LIST_TYPE, causes);
        if let Some(items) = items.as_ref().filter(|_| (place.kind(), list_type) == ("array", Some("set"))) {
            check_set(items, causes);
        }
        if !matches!(value.as_str(), Some("atomic" | "set" | "map")) {
            causes.push(Cause::not_supported(place.at(LIST_TYPE), value, &["atomic", "set", "map"]));
        }
    }
    if !keys.is_empty() && list_type != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match place.value(LIST_TYPE) {
            None => Cause::required(place.at(LIST_TYPE), why),
            Some(value) => Cause::invalid(place.at(LIST_TYPE), value, why),
        });
    }
    if list_type == Some("map") {
        check_map(place, items.as_ref(), &keys, causes);
    }
    if let Some(items) = &items
        && let Some(list_type @ ("set" | "map")) = list_type
    {
        if items.flag("nullable") {
            let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            causes.push(Cause::forbidden(items.at("nullable"), &why));
        }
        if list_type == "map" {
            check_map_keys(items, &keys, causes);
        }
    }
}

/// Checks the elements of a set. They must be atomic, since they are compared as a whole.
fn check_set(items: &Place<'_>, causes: &mut Vec<Cause>) {
    let marker = match items.kind() {
        "array" if items.str("x-kubernetes-list-type").is_some_and(|kind| kind != "atomic") => "x-kubernetes-list-type",
        "object" if items.str("x-kubernetes-map-type") != Some("atomic") => "x-kubernetes-map-type",
        _ => return,
    };
    // Kubernetes shows the type of a list even if the items are objects.
    let found = items.document.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    causes.push(Cause::invalid(items.at(marker), found, why));
}

fn check_map(place: &Place<'_>, items: Option<&Place<'_>>, keys: &[&str], causes: &mut Vec<Cause>) {
    const KEYS: &str = "x-kubernetes-list-map-keys";
    if keys.is_empty() {
        causes.push(Cause::required(place.at(KEYS), "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        causes.push(Cause::required(place.at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if items.kind() != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(items.at("type"), &items.kind().into(), why));
        return;
    }
    let shown = Value::from(keys.to_vec());
    for (index, key) in keys.iter().enumerate() {
        match items.property(key) {
            Some(property) if matches!(property.kind(), "array" | "object") => {
                // Kubernetes shows the type of the items.
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(property.at("type"), &items.kind().into(), why));
            }
            Some(_) => {}
            None => causes.push(Cause::invalid(place.at(KEYS), &shown, "entries must all be names of item properties")),
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(place.at(KEYS), &shown, "must not contain duplicate entries"));
        }
    }
}

/// Checks that the keys of items always have a value.
fn check_map_keys(items: &Place<'_>, keys: &[&str], causes: &mut Vec<Cause>) {
    let required = items.texts("required");
    for key in keys {
        let Some(property) = items.property(key) else { continue };
        if !required.contains(key) && property.value("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            causes.push(Cause::required(property.at("default"), why));
        }
        if property.flag("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(property.at("nullable"), why));
        }
    }
}

fn check_rules(place: &Place<'_>, causes: &mut Vec<Cause>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let rules = place.value("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let at = |member: &str| place.at(&format!("x-kubernetes-validations[{index}].{member}"));
        let text = |member: &str| rule.get(member).and_then(Value::as_str).unwrap_or_default();
        let has_line_break = |text: &str| text.contains(['\n', '\r']);
        let (expression, message) = (text("rule").trim(), text("message"));
        if expression.is_empty() {
            causes.push(Cause::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            causes.push(Cause::invalid(at("message"), &message.into(), "must be non-empty if specified"));
        } else if has_line_break(message.trim()) {
            causes.push(Cause::invalid(at("message"), &message.into(), "must not contain line breaks"));
        } else if has_line_break(expression) && message.trim().is_empty() {
            causes.push(Cause::required(at("message"), "message must be specified if rule contains line breaks"));
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(at("messageExpression"), why));
        }
        if let Some(reason) = rule.get("reason").filter(|reason| !reason.is_null())
            && !reason.as_str().is_some_and(|reason| REASONS.contains(&reason))
        {
            causes.push(Cause::not_supported(at("reason"), reason, &REASONS));
        }
        let path = text("fieldPath");
        let mut refuse = |why: &str| causes.push(Cause::invalid(at("fieldPath"), &path.into(), why));
        if !path.is_empty() && path.trim().is_empty() {
            refuse("must be non-empty if specified");
        }
        if has_line_break(path) {
            refuse("must not contain line breaks");
        }
        if !path.is_empty() && !field_path::is_valid(place, path) {
            refuse("must be a valid path");
        }
    }
}
