//! Admission policies and their bindings
//! (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>). They are stored and
//! checked, but not evaluated.

mod validate;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

use super::{
    columns::{age, count, integer, string},
    validation::{Errors, entries, field, items, string as text_field, strings},
};
use crate::{
    fields::{each, fill, fill_zero, present, text, within},
    registry::{Column, Strategy},
};

/// What a policy does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is refused or accepted.
    Validate,
    /// It is changed.
    Mutate,
}

/// The strategy of policies.
#[derive(Debug)]
pub(super) struct PolicyStrategy(pub(super) Purpose);

impl Strategy for PolicyStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill(spec, "failurePolicy", "Fail");
            present(spec, "matchConstraints", default_match_resources);
        });
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_policy(self.0, new, errors))
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_status(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }
}

/// The strategy of bindings.
#[derive(Debug)]
pub(super) struct BindingStrategy(pub(super) Purpose);

impl Strategy for BindingStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| present(spec, "matchResources", default_match_resources));
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_binding(self.0, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }
}

fn default_match_resources(resources: &mut Value) {
    fill_zero(resources, "matchPolicy", "Equivalent");
    fill(resources, "namespaceSelector", json!({}));
    fill(resources, "objectSelector", json!({}));
    for name in ["resourceRules", "excludeResourceRules"] {
        each(resources, name).for_each(|rule| fill(rule, "scope", "*"));
    }
}

fn parameter_kind() -> Column {
    string("ParamKind", |object, _| match field(&object["spec"], "paramKind") {
        None => "<unset>".into(),
        Some(kind) => format!("{}/{}", text_field(kind, "apiVersion"), text_field(kind, "kind")).into(),
    })
}

pub(super) fn validating_columns() -> Vec<Column> {
    vec![integer("Validations", |object, _| count(object, &["/spec/validations"])), parameter_kind(), age()]
}

pub(super) fn mutating_columns() -> Vec<Column> {
    vec![integer("Mutations", |object, _| count(object, &["/spec/mutations"])), parameter_kind(), age()]
}

pub(super) fn binding_columns() -> Vec<Column> {
    vec![
        string("PolicyName", |object, _| text(object, "/spec/policyName").into()),
        string("ParamRef", |object, _| parameter(object).into()),
        age(),
    ]
}

fn parameter(binding: &Value) -> String {
    let Some(reference) = field(&binding["spec"], "paramRef") else { return "<unset>".into() };
    match (text_field(reference, "namespace"), text_field(reference, "name")) {
        ("", "") | (_, "") => field(reference, "selector").map_or("<unset>".into(), shown_selector),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Shows a selector as Go prints it.
fn shown_selector(selector: &Value) -> String {
    let labels: String = entries(selector, "matchLabels")
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let requirements: String = items(selector, "matchExpressions")
        .iter()
        .map(|one| {
            let values = strings(one, "values").collect::<Vec<_>>().join(" ");
            let (key, operator) = (text_field(one, "key"), text_field(one, "operator"));
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{\
         {requirements}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_bindings_get_their_published_defaults() {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut policy = json!({"spec": {"matchConstraints": {"resourceRules": [rule]}}});
        PolicyStrategy(Purpose::Validate).default(&mut policy);
        let constraints = &policy["spec"]["matchConstraints"];
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        assert_eq!(constraints["matchPolicy"], "Equivalent");
        assert_eq!(constraints["resourceRules"][0]["scope"], "*");
        let mut binding = json!({"spec": {"matchResources": {}}});
        BindingStrategy(Purpose::Mutate).default(&mut binding);
        assert_eq!(binding["spec"]["matchResources"]["objectSelector"], json!({}));
    }

    #[test]
    fn bindings_show_their_parameters() {
        let shown = |reference: Value| parameter(&json!({"spec": {"paramRef": reference}}));
        assert_eq!(shown(json!({"name": "a"})), "*/a");
        assert_eq!(shown(json!({"name": "a", "namespace": "b"})), "b/a");
        assert_eq!(
            shown(json!({"selector": {"matchLabels": {"a": "b"}}})),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
        assert_eq!(parameter(&json!({})), "<unset>");
    }
}
