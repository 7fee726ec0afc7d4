//! Fields of large types without their schemas.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// An object that is kept as written and decoded as a `T` on demand.
///
/// It is for large Kubernetes types in a spec, such as a pod template. Inlined into a CRD, the schema of a
/// `PodTemplateSpec` exceeds the 262,144 bytes that `kubectl apply` can store in its annotation
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/>). The schema of this type accepts
/// any object and keeps all fields. The API server therefore doesn't validate it: do that in a webhook, or report it in
/// a condition.
///
/// ```
/// use k8s_openapi::api::core::v1::PodTemplateSpec;
/// use kubewright_runtime::schema::AsWritten;
/// use serde_json::json;
///
/// let written = json!({"spec": {"containers": [{"name": "main", "image": "busybox"}]}});
/// let template: AsWritten<PodTemplateSpec> = serde_json::from_value(written.clone())?;
/// assert_eq!(template.read()?.spec.unwrap().containers[0].name, "main");
/// assert_eq!(serde_json::to_value(&template)?, written);
///
/// let wrong: AsWritten<PodTemplateSpec> = serde_json::from_value(json!({"spec": 7}))?;
/// assert!(wrong.read().unwrap_err().to_string().contains("invalid type: integer `7`"));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct AsWritten<T>(
    /// The object as written.
    pub Map<String, Value>,
    #[serde(skip)] PhantomData<fn() -> T>,
);

impl<T: DeserializeOwned> AsWritten<T> {
    /// Decodes the object. Each call decodes it again.
    ///
    /// # Errors
    /// If the object doesn't match `T`. The error names what was found and what is expected.
    pub fn read(&self) -> Result<T, serde_json::Error> {
        kubewright_packed::from_value(&self.0)
    }
}

impl<T> JsonSchema for AsWritten<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AsWritten".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodTemplateSpec;
    use schemars::generate::SchemaSettings;

    #[test]
    fn the_schema_of_a_pod_template_is_too_large_to_apply() {
        let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
        let whole = settings.into_generator().into_root_schema_for::<PodTemplateSpec>();
        assert!(serde_json::to_string(&whole).is_ok_and(|text| text.len() > 262_144));
    }
}
