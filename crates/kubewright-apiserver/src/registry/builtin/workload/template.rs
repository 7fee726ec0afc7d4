//! Pod templates as objects of their own.

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

use super::default_template;
use crate::registry::{
    Column, Strategy,
    builtin::{
        columns::{container_fields, labels, string},
        pod::{template_warnings, validate_pod_template},
        validation::{Errors, Path},
    },
};

/// The strategy of pod templates.
#[derive(Debug)]
pub(in crate::registry::builtin) struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn default(&self, object: &mut Value) {
        default_template(object);
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_pod_template(&new["template"], &Path::new("template"), errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let unchanged = old.is_some_and(|old| old["template"] == new["template"]);
        if unchanged { Vec::new() } else { template_warnings(&new["template"], &Path::new("template")) }
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

pub(in crate::registry::builtin) fn pod_template_columns() -> Vec<Column> {
    vec![
        string("Containers", |object, _| container_fields(object, "/template/spec/containers", "name")),
        string("Images", |object, _| container_fields(object, "/template/spec/containers", "image")),
        string("Pod Labels", |object, _| labels(object, "/template/metadata/labels")),
    ]
}
