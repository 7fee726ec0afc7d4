//! Schema properties of CRDs that the derives of kube and schemars don't cover.
//!
//! The derives cover most: `#[kube(…)]` the names and columns of the kind, serde optional fields and defaults,
//! `#[schemars(range, length, regex, title, example)]` bounds, and kube's `KubeSchema` CEL rules and the merge
//! strategies of lists and maps. The functions here are transforms of the schema of a field or a type:
//!
//! ```
//! use kubewright_runtime::schema;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[schemars(transform = schema::at_most_one_of(&["image", "source"]))]
//! #[serde(rename_all = "camelCase")]
//! struct BuildSpec {
//!     image: Option<String>,
//!     source: Option<String>,
//!     /// In MiB.
//!     #[schemars(transform = schema::multiple_of(64.0))]
//!     memory: u32,
//!     #[schemars(transform = schema::immutable)]
//!     class: String,
//! }
//!
//! let schema = schemars::schema_for!(BuildSpec).to_value();
//! assert_eq!(schema["properties"]["memory"]["multipleOf"], 64.0);
//! assert_eq!(schema["properties"]["class"]["x-kubernetes-validations"][0]["rule"], "self == oldSelf");
//! ```
//!
//! A misspelt name is a compile error. Whether a transform fits the type of its field is checked by
//! `kubewright manifests` and by the API server.
//!
//! | controller-gen's marker `+kubebuilder:…` | here |
//! |---|---|
//! | `validation:Minimum`, `Maximum`, `MinLength`, `MaxLength`, `MinItems`, `MaxItems`, `Pattern` | `#[schemars(range(…))]`, `length(…)`, `regex(pattern = …)` |
//! | `validation:ExclusiveMinimum`, `ExclusiveMaximum` | [`exclusive_minimum`], [`exclusive_maximum`], with the bound |
//! | `validation:MultipleOf`, `MinProperties`, `MaxProperties`, `Format` | [`multiple_of`], [`min_properties`], [`max_properties`], [`format()`] |
//! | `validation:Enum`, `Required`, `Optional`, `default`, `example`, `title` | a Rust enum; `Option` or serde's `default`; `#[schemars(example, title)]` |
//! | `validation:XValidation`, `listType`, `listMapKey`, `mapType`, `structType` | `KubeSchema` |
//! | `validation:ExactlyOneOf`, `AtMostOneOf`, `AtLeastOneOf` | [`exactly_one_of`], [`at_most_one_of`], [`at_least_one_of`] |
//! | `validation:XIntOrString`, `XEmbeddedResource`, `EmbeddedResource`, `pruning:PreserveUnknownFields`, `validation:Schemaless` | [`int_or_string`], [`embedded_resource`], [`preserve_unknown_fields`], [`AsWritten`] |
//! | `nullable`, `externalDocs` | [`nullable`], [`external_docs`] |
//! | `validation:UniqueItems` | `KubeSchema`'s list type `set`: the API server refuses `uniqueItems` |
//! | `resource`, `printcolumn`, `subresource:status`, `subresource:scale`, `selectablefield`, `storageversion`, `unservedversion`, `deprecatedversion`, `metadata` | `#[kube(…)]`. Without `status` it omits `scale` without a message |

mod written;

use schemars::{Schema, transform::Transform};
use serde_json::{Value, json};

pub use self::written::AsWritten;

/// The key of CEL rules
/// (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>).
const RULES: &str = "x-kubernetes-validations";

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

fn rule(schema: &mut Schema, rule: String, message: String) {
    let rule = json!({"rule": rule, "message": message});
    match schema.get_mut(RULES).and_then(Value::as_array_mut) {
        Some(rules) => rules.push(rule),
        None => set(schema, RULES, vec![rule]),
    }
}

/// Requires a number to be greater than `bound`.
pub fn exclusive_minimum(bound: f64) -> impl Transform {
    move |schema: &mut Schema| {
        set(schema, "minimum", bound);
        // In OpenAPI 3.0, which CRDs use, it is a boolean.
        set(schema, "exclusiveMinimum", true);
    }
}

/// Requires a number to be less than `bound`.
pub fn exclusive_maximum(bound: f64) -> impl Transform {
    move |schema: &mut Schema| {
        set(schema, "maximum", bound);
        set(schema, "exclusiveMaximum", true);
    }
}

/// Requires a number to be a multiple of `divisor`, which must be greater than 0.
pub fn multiple_of(divisor: f64) -> impl Transform {
    move |schema: &mut Schema| set(schema, "multipleOf", divisor)
}

/// Requires a map to have at least this many entries.
pub fn min_properties(entries: u32) -> impl Transform {
    move |schema: &mut Schema| set(schema, "minProperties", entries)
}

/// Requires a map to have at most this many entries.
pub fn max_properties(entries: u32) -> impl Transform {
    move |schema: &mut Schema| set(schema, "maxProperties", entries)
}

/// Requires a string to have this format, such as `date-time`, `duration` or `ipv4`. The API server ignores unknown
/// formats
/// (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation>).
pub fn format(form: &'static str) -> impl Transform {
    move |schema: &mut Schema| set(schema, "format", form)
}

/// Adds a link to documentation.
pub fn external_docs(url: &'static str, description: &'static str) -> impl Transform {
    move |schema: &mut Schema| set(schema, "externalDocs", json!({"url": url, "description": description}))
}

/// Allows `null`, which is then neither dropped nor replaced by the default.
pub fn nullable(schema: &mut Schema) {
    set(schema, "nullable", true);
}

/// Allows an integer or a string.
pub fn int_or_string(schema: &mut Schema) {
    schema.remove("type");
    schema.remove("format");
    set(schema, "x-kubernetes-int-or-string", true);
}

/// Keeps fields that are not in the schema.
pub fn preserve_unknown_fields(schema: &mut Schema) {
    set(schema, "x-kubernetes-preserve-unknown-fields", true);
}

/// A complete Kubernetes object: `apiVersion`, `kind` and `metadata` are validated, other fields are kept.
pub fn embedded_resource(schema: &mut Schema) {
    set(schema, "type", "object");
    set(schema, "x-kubernetes-embedded-resource", true);
    preserve_unknown_fields(schema);
}

/// Makes a value immutable once it is set. Adding or removing the field stays possible: make it required, or put the
/// rule on the type that contains it.
pub fn immutable(schema: &mut Schema) {
    rule(schema, "self == oldSelf".into(), "the value can't be changed".into());
}

/// Requires exactly one of these fields, by their names in JSON.
pub fn exactly_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, "== 1", "exactly one")
}

/// Allows at most one of these fields, by their names in JSON.
pub fn at_most_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, "<= 1", "at most one")
}

/// Requires at least one of these fields, by their names in JSON.
pub fn at_least_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, ">= 1", "at least one")
}

fn count(schema: &mut Schema, fields: &[&str], condition: &str, words: &str) {
    let present = fields.iter().map(|field| format!("has(self.{field})")).collect::<Vec<_>>().join(", ");
    let message = format!("{words} of the fields {} must be set", fields.join(", "));
    rule(schema, format!("[{present}].filter(present, present).size() {condition}"), message);
}
