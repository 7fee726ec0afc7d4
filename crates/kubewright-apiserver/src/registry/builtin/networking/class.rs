//! Ingress classes.

use std::sync::Arc;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use crate::{
    fields::{fill, has, present, text, within},
    registry::{
        Column, Strategy,
        builtin::{
            columns::{NONE, age, marked_name, name as name_column, string},
            default_class::{Classes, OF_INGRESSES},
            validation::{
                Errors, IMMUTABLE, Path, field, optional_string, string as text_field, validate_domain_prefixed_path,
                validate_required_name, validate_text,
            },
        },
    },
};

/// The greatest length of a controller's name.
const MAX_CONTROLLER: usize = 250;

/// The strategy of ingress classes.
#[derive(Debug)]
pub(in crate::registry::builtin) struct IngressClassStrategy {
    /// The classes of ingresses, which this strategy keeps up to date.
    pub(in crate::registry::builtin) classes: Arc<Classes>,
}

impl Strategy for IngressClassStrategy {
    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.classes.replace(OF_INGRESSES, before, after);
    }

    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| present(spec, "parameters", |parameters| fill(parameters, "scope", "Cluster")));
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let (spec, path) = (&new["spec"], Path::new("spec.controller"));
            let controller = text_field(spec, "controller");
            if old.is_some_and(|old| text_field(&old["spec"], "controller") != controller) {
                errors.invalid(&path, controller, IMMUTABLE);
            }
            if controller.len() > MAX_CONTROLLER {
                errors.too_long(&path, MAX_CONTROLLER);
            }
            validate_domain_prefixed_path(controller, &path, errors);
            if let Some(parameters) = field(spec, "parameters") {
                validate_parameters(parameters, &Path::new("spec.parameters"), errors);
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

fn validate_parameters(parameters: &Value, path: &Path<'_>, errors: &mut Errors) {
    const SCOPES: &[&str] = &["Cluster", "Namespace"];
    if let Some(group) = optional_string(parameters, "apiGroup") {
        validate_text(group, name::dns1123_subdomain, &path.child("apiGroup"), errors);
    }
    for field in ["kind", "name"] {
        validate_required_name(text_field(parameters, field), name::path_segment, &path.child(field), errors);
    }
    let at = path.child("namespace");
    match (text_field(parameters, "scope"), optional_string(parameters, "namespace")) {
        ("Namespace", None) => errors.required(&at, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(namespace)) => validate_text(namespace, name::dns1123_label, &at, errors),
        ("Cluster", Some(_)) => errors.forbidden(&at, "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", None) => {}
        (other, _) => errors.not_supported(&path.child("scope"), other, SCOPES),
    }
}

pub(in crate::registry::builtin) fn ingress_class_columns() -> Vec<Column> {
    vec![
        name_column(|object, _| marked_name(object, OF_INGRESSES)),
        string("Controller", |object, _| text(object, "/spec/controller").into()),
        string("Parameters", |object, _| {
            let Some(parameters) = field(&object["spec"], "parameters") else { return NONE.into() };
            let mut shown = text_field(parameters, "kind").to_owned();
            if has(parameters, "/apiGroup") {
                shown += &format!(".{}", text_field(parameters, "apiGroup"));
            }
            format!("{shown}/{}", text_field(parameters, "name")).into()
        }),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_have_a_namespace_if_their_scope_is_one() {
        let check = |parameters: Value, expect: &[&str]| {
            let mut class = json!({"spec": {"controller": "example.com/c", "parameters": parameters}});
            let strategy = IngressClassStrategy { classes: Arc::default() };
            strategy.default(&mut class);
            let found: Vec<_> = strategy.validate(None, &class).iter().map(ToString::to_string).collect();
            assert_eq!(found, expect);
        };
        check(json!({"kind": "K", "name": "n"}), &[]);
        check(
            json!({"kind": "K", "name": "n", "scope": "Namespace"}),
            &["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        );
        check(
            json!({"kind": "K", "name": "n", "namespace": "x"}),
            &["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
        );
    }
}
