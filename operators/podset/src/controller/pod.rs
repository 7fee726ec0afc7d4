//! The pods of a PodSet, created from its template.

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;
use kubewright::random::Random;
use thiserror::Error;

use super::flavour::Flavour;

/// The template is malformed.
#[derive(Debug, Error)]
#[error("invalid pod template in spec.template: {0}")]
pub(crate) struct TemplateError(#[from] serde_json::Error);

/// Returns the template of a PodSet's pods, with the labels that select them.
///
/// Only labels and annotations of the metadata are used, as in Kubernetes' own controllers.
///
/// # Errors
/// If the template is malformed.
pub(crate) fn template<K: Flavour>(set: &K) -> Result<PodTemplateSpec, TemplateError> {
    let PodTemplateSpec { metadata, spec } = match set.template() {
        Some(template) => template.read()?,
        None => PodTemplateSpec { metadata: None, spec: Some(default_spec()) },
    };
    let ObjectMeta { labels, annotations, .. } = metadata.unwrap_or_default();
    let labels = labels.into_iter().flatten().chain(set.pod_labels()).collect();
    let metadata = ObjectMeta { labels: Some(labels), annotations, ..ObjectMeta::default() };
    Ok(PodTemplateSpec { metadata: Some(metadata), spec })
}

/// Returns a pod with a unique name and without an owner reference.
pub(crate) fn pod<K: Flavour>(set: &K, template: &PodTemplateSpec, random: &Random) -> Pod {
    let (name, generate_name) = set.pod_name(random);
    let metadata = ObjectMeta {
        name: Some(name),
        generate_name,
        namespace: set.namespace(),
        ..template.metadata.clone().unwrap_or_default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Returns the spec of a pod without a template.
fn default_spec() -> PodSpec {
    let container = Container {
        name: "busybox".into(),
        image: Some("busybox".into()),
        command: Some(vec!["sleep".into(), "3600".into()]),
        ..Container::default()
    };
    PodSpec { containers: vec![container], ..PodSpec::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::app::v1alpha1::{PodSet, PodSetSpec};

    fn set(template: Option<Value>) -> PodSet {
        let template = template.map(|value| serde_json::from_value(value).unwrap());
        let mut set = PodSet::new("web", PodSetSpec { replicas: 1, template });
        set.metadata.namespace = Some("default".into());
        set
    }

    #[test]
    fn a_pod_without_a_template_sleeps() {
        let set = set(None);
        let pod = pod(&set, &template(&set).unwrap(), &Random::seeded(1));
        let name = pod.name_any();
        let expect = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "generateName": "web-pod",
                "namespace": "default",
                "labels": {"app": "web", "version": "v0.1"},
            },
            "spec": {"containers": [{"name": "busybox", "image": "busybox", "command": ["sleep", "3600"]}]},
        });
        assert_eq!(serde_json::to_value(pod).unwrap(), expect);
    }

    #[test]
    fn a_template_is_taken_with_the_labels_forced() {
        let set = set(Some(json!({
            "metadata": {"name": "not-taken", "labels": {"app": "other", "tier": "front"}, "annotations": {"a": "b"}},
            "spec": {"containers": [{"name": "web", "image": "busybox", "command": ["httpd", "-f"]}]},
        })));
        let pod = pod(&set, &template(&set).unwrap(), &Random::seeded(1));
        assert!(pod.name_any().starts_with("web-pod"));
        let labels = [("app", "web"), ("tier", "front"), ("version", "v0.1")];
        assert_eq!(pod.labels(), &labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(pod.annotations()["a"], "b");
        assert_eq!(pod.spec.unwrap().containers[0].name, "web");
    }

    #[test]
    fn a_template_that_is_none_is_an_error() {
        let error = template(&set(Some(json!({"spec": {"containers": "many"}})))).unwrap_err().to_string();
        assert!(error.starts_with("invalid pod template in spec.template: "), "{error}");
    }
}
