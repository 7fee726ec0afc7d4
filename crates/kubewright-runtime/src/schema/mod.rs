//! What a CRD's schema can say and the derives of kube and schemars don't, by name.
//!
//! Most of it they do say: `#[kube(…)]` what the kind is called and shown as, serde what is optional and what its default
//! is, `#[schemars(range, length, regex, title, example)]` the bounds, kube's `KubeSchema` the rules in CEL and how lists
//! and maps are merged. What is left are transforms of a field's or a type's schema:
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
//! A name that is misspelt is an error of the compiler. That a transform fits its field isn't seen before the API server, or
//! `kubewright manifests`, looks at the CRD.
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
//! | `resource`, `printcolumn`, `subresource:status`, `subresource:scale`, `selectablefield`, `storageversion`, `unservedversion`, `deprecatedversion`, `metadata` | `#[kube(…)]`. Without `status` it leaves out `scale`, silently |

mod written;

use schemars::{Schema, transform::Transform};
use serde_json::{Value, json};

pub use self::written::AsWritten;

/// Where rules in CEL are (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>).
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

/// A number is larger than this.
pub fn exclusive_minimum(bound: f64) -> impl Transform {
    move |schema: &mut Schema| {
        set(schema, "minimum", bound);
        // A boolean, as in the OpenAPI 3.0 of CRDs.
        set(schema, "exclusiveMinimum", true);
    }
}

/// A number is smaller than this.
pub fn exclusive_maximum(bound: f64) -> impl Transform {
    move |schema: &mut Schema| {
        set(schema, "maximum", bound);
        set(schema, "exclusiveMaximum", true);
    }
}

/// A number divided by this, which is larger than 0, is a whole one.
pub fn multiple_of(divisor: f64) -> impl Transform {
    move |schema: &mut Schema| set(schema, "multipleOf", divisor)
}

/// A map has so many entries at least.
pub fn min_properties(entries: u32) -> impl Transform {
    move |schema: &mut Schema| set(schema, "minProperties", entries)
}

/// A map has so many entries at most.
pub fn max_properties(entries: u32) -> impl Transform {
    move |schema: &mut Schema| set(schema, "maxProperties", entries)
}

/// A string has this form, such as `date-time`, `duration` or `ipv4`. The API server doesn't look at forms it doesn't know
/// (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation>).
pub fn format(form: &'static str) -> impl Transform {
    move |schema: &mut Schema| set(schema, "format", form)
}

/// Where more is said of it.
pub fn external_docs(url: &'static str, description: &'static str) -> impl Transform {
    move |schema: &mut Schema| set(schema, "externalDocs", json!({"url": url, "description": description}))
}

/// `null` is a value: it isn't dropped, and no default takes its place.
pub fn nullable(schema: &mut Schema) {
    set(schema, "nullable", true);
}

/// A number or a string.
pub fn int_or_string(schema: &mut Schema) {
    schema.remove("type");
    schema.remove("format");
    set(schema, "x-kubernetes-int-or-string", true);
}

/// An object keeps the fields that the schema doesn't know.
pub fn preserve_unknown_fields(schema: &mut Schema) {
    set(schema, "x-kubernetes-preserve-unknown-fields", true);
}

/// A whole object of Kubernetes: its `apiVersion`, `kind` and `metadata` are checked, the rest is kept as it is.
pub fn embedded_resource(schema: &mut Schema) {
    set(schema, "type", "object");
    set(schema, "x-kubernetes-embedded-resource", true);
    preserve_unknown_fields(schema);
}

/// A value can't be changed once it is there. That it is taken away or comes later is not seen: make the field required, or
/// put the rule on the type it is in.
pub fn immutable(schema: &mut Schema) {
    rule(schema, "self == oldSelf".into(), "the value can't be changed".into());
}

/// Exactly one of these fields, by their names in JSON, is there.
pub fn exactly_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, "== 1", "exactly one")
}

/// One of these fields, by their names in JSON, is there, or none.
pub fn at_most_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, "<= 1", "at most one")
}

/// One or more of these fields, by their names in JSON, are there.
pub fn at_least_one_of(fields: &'static [&'static str]) -> impl Transform {
    move |schema: &mut Schema| count(schema, fields, ">= 1", "at least one")
}

fn count(schema: &mut Schema, fields: &[&str], condition: &str, words: &str) {
    let present = fields.iter().map(|field| format!("has(self.{field})")).collect::<Vec<_>>().join(", ");
    let message = format!("{words} of the fields {} must be set", fields.join(", "));
    rule(schema, format!("[{present}].filter(present, present).size() {condition}"), message);
}
