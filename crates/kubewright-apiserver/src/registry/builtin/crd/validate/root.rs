//! Checks of the root of a schema.

use serde_json::{Map, Value};

use crate::registry::builtin::validation::{Errors, Path, Shown, boolean, field, items, string};

/// The fields of a schema in the order of Kubernetes' internal type, with their names in it and in documents.
const FIELDS: [(&str, &str, Zero); 43] = [
    ("ID", "id", Zero::Text),
    ("Schema", "$schema", Zero::Text),
    ("Ref", "$ref", Zero::Null),
    ("Description", "description", Zero::Text),
    ("Type", "type", Zero::Text),
    ("Nullable", "nullable", Zero::False),
    ("Format", "format", Zero::Text),
    ("Title", "title", Zero::Text),
    ("Default", "default", Zero::Null),
    ("Maximum", "maximum", Zero::Null),
    ("ExclusiveMaximum", "exclusiveMaximum", Zero::False),
    ("Minimum", "minimum", Zero::Null),
    ("ExclusiveMinimum", "exclusiveMinimum", Zero::False),
    ("MaxLength", "maxLength", Zero::Null),
    ("MinLength", "minLength", Zero::Null),
    ("Pattern", "pattern", Zero::Text),
    ("MaxItems", "maxItems", Zero::Null),
    ("MinItems", "minItems", Zero::Null),
    ("UniqueItems", "uniqueItems", Zero::False),
    ("MultipleOf", "multipleOf", Zero::Null),
    ("Enum", "enum", Zero::Null),
    ("MaxProperties", "maxProperties", Zero::Null),
    ("MinProperties", "minProperties", Zero::Null),
    ("Required", "required", Zero::Null),
    ("Items", "items", Zero::Null),
    ("AllOf", "allOf", Zero::Null),
    ("OneOf", "oneOf", Zero::Null),
    ("AnyOf", "anyOf", Zero::Null),
    ("Not", "not", Zero::Null),
    ("Properties", "properties", Zero::Null),
    ("AdditionalProperties", "additionalProperties", Zero::Null),
    ("PatternProperties", "patternProperties", Zero::Null),
    ("Dependencies", "dependencies", Zero::Null),
    ("AdditionalItems", "additionalItems", Zero::Null),
    ("Definitions", "definitions", Zero::Null),
    ("ExternalDocs", "externalDocs", Zero::Null),
    ("Example", "example", Zero::Null),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Zero::Null),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Zero::False),
    ("XIntOrString", "x-kubernetes-int-or-string", Zero::False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Zero::Null),
    ("XListType", "x-kubernetes-list-type", Zero::Null),
    ("XMapType", "x-kubernetes-map-type", Zero::Null),
];

/// The last field of the internal type.
const RULES: (&str, &str) = ("XValidations", "x-kubernetes-validations");

/// The fields that the root may have if the status is a subresource, in the order of the message about others.
const WITH_STATUS: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                           MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
                           ExternalDocs Example XPreserveUnknownFields XValidations";

/// The value of an absent field.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    Null,
    Text,
    False,
}

impl Zero {
    fn value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text => "".into(),
            Self::False => false.into(),
        }
    }
}

/// Checks the root of a schema by itself (`validateCustomResourceDefinitionValidation` in `apiextensions-apiserver`).
pub(super) fn validate_root(schema: &Value, has_status: bool, path: &Path<'_>, errors: &mut Errors) {
    if has_status {
        validate_with_status(schema, path, errors);
    }
    if boolean(schema, "nullable") {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
}

/// Checks that the part of a schema for the status says all about it. As in Kubernetes, only the first violation is
/// reported.
fn validate_with_status(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let is_set = |name: &str, zero: Zero| field(schema, name).is_some_and(|value| *value != zero.value());
    for (name, _, _) in FIELDS.iter().filter(|(_, name, zero)| is_set(name, *zero)) {
        if *name == "Type" && string(schema, "type") != "object" {
            let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                       enabled";
            return errors.invalid(&path.child("type"), string(schema, "type"), why);
        }
        if !WITH_STATUS.split(' ').any(|allowed| allowed == *name) {
            let why = format!(
                "only [{WITH_STATUS}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            return errors.invalid(path, internal(schema), &why);
        }
    }
}

/// Shows a schema in the form of Kubernetes' internal type.
pub(super) fn internal(schema: &Value) -> Shown {
    let fields = FIELDS.iter().map(|(name, keyword, zero)| {
        let value = field(schema, keyword);
        (*name, value.map_or_else(|| zero.value().into(), |value| internal_field(keyword, value)))
    });
    let rules = match field(schema, RULES.1) {
        None => Value::Null.into(),
        Some(_) => Shown::list(items(schema, RULES.1).iter().map(internal_rule)),
    };
    Shown::object(fields.chain([(RULES.0, rules)]))
}

fn internal_field(keyword: &str, value: &Value) -> Shown {
    match keyword {
        "allOf" | "oneOf" | "anyOf" => list(value),
        "not" => internal(value),
        "properties" | "patternProperties" | "definitions" => by_name(value, internal),
        "items" => {
            let (one, many) = match value {
                Value::Array(_) => (Value::Null.into(), list(value)),
                _ => (internal(value), Value::Null.into()),
            };
            Shown::object([("Schema", one), ("JSONSchemas", many)])
        }
        "additionalProperties" | "additionalItems" => {
            let inner = if value.is_object() { internal(value) } else { Value::Null.into() };
            Shown::object([("Allows", (*value != Value::Bool(false)).into()), ("Schema", inner)])
        }
        "dependencies" => by_name(value, |value| {
            let (schema, names) = match value {
                Value::Array(_) => (Value::Null.into(), value.clone().into()),
                _ => (internal(value), Value::Null.into()),
            };
            Shown::object([("Schema", schema), ("Property", names)])
        }),
        "externalDocs" => {
            Shown::object([("Description", string(value, "description").into()), ("URL", string(value, "url").into())])
        }
        _ => value.clone().into(),
    }
}

fn list(schemas: &Value) -> Shown {
    Shown::list(schemas.as_array().into_iter().flatten().map(internal))
}

/// Shows a map, sorted by its keys.
fn by_name(map: &Value, show: impl Fn(&Value) -> Shown) -> Shown {
    let mut entries: Vec<_> = map.as_object().into_iter().flat_map(Map::iter).collect();
    entries.sort_by_key(|(name, _)| *name);
    Shown::object(entries.into_iter().map(|(name, value)| (name.as_str(), show(value))))
}

fn internal_rule(rule: &Value) -> Shown {
    Shown::object([
        ("Rule", string(rule, "rule").into()),
        ("Message", string(rule, "message").into()),
        ("MessageExpression", string(rule, "messageExpression").into()),
        ("Reason", Shown::nullable(rule.get("reason"))),
        ("FieldPath", string(rule, "fieldPath").into()),
        ("OptionalOldSelf", Shown::nullable(rule.get("optionalOldSelf"))),
    ])
}
