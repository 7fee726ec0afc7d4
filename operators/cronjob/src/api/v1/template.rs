//! The template of a Job inside a spec.

use std::borrow::Cow;

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A `batch/v1` JobTemplateSpec as it was written.
///
/// The schema takes any object: inlined, as a CRD must, the schema of a Job's template is larger than the 262,144 bytes
/// that `kubectl apply` can put into its annotation. A template that is none is told in a condition, and one that makes
/// no valid Job with the API server's own words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobTemplate(pub Map<String, Value>);

impl JobTemplate {
    /// The template.
    ///
    /// # Errors
    /// If a field of it has the wrong type; the error names the field.
    pub fn read(&self) -> Result<JobTemplateSpec, serde_json::Error> {
        serde_json::from_value(Value::Object(self.0.clone()))
    }
}

impl JsonSchema for JobTemplate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "JobTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

#[cfg(test)]
mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;

    #[test]
    fn the_whole_schema_would_be_too_large_to_apply() {
        let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
        let whole = settings.into_generator().into_root_schema_for::<JobTemplateSpec>();
        assert!(serde_json::to_string(&whole).unwrap().len() > 262_144);
    }
}
