//! A pod template inside a spec.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A pod template as it was written.
///
/// The schema takes any object, because the whole schema of a pod would make the CRD too large for `kubectl apply`. A
/// template that is none is told in a condition, and one that makes no valid pod with the API server's own words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(pub Map<String, Value>);

impl Template {
    /// The template.
    ///
    /// # Errors
    /// If a field of it has the wrong type; the error names the field.
    pub fn read(&self) -> Result<PodTemplateSpec, serde_json::Error> {
        serde_json::from_value(Value::Object(self.0.clone()))
    }
}

impl JsonSchema for Template {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}
