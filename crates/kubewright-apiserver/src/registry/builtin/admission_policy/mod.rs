//! Admission policies and their bindings
//! (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>). Their expressions are
//! parsed, but not type-checked.

mod validate;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

use super::{
    columns::{age, count, integer, string},
    validation::{Errors, entries, field, items, string as text_field, strings},
};
use crate::{
    admission::{Phase, Policies, Policy, PolicyBinding},
    fields::{each, fill, present, text, within},
    registry::{Column, Strategy},
};

/// The strategy of policies. It maintains the list of policies.
#[derive(Debug)]
pub(super) struct PolicyStrategy {
    pub(super) phase: Phase,
    pub(super) policies: Arc<Policies>,
}

impl Strategy for PolicyStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill(spec, "failurePolicy", "Fail");
            present(spec, "matchConstraints", default_match_resources);
        });
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_policy(self.phase, new, errors))
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

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(object) = after.or(before) else { return };
        if before.map(|before| &before["spec"]) == after.map(|after| &after["spec"]) {
            return;
        }
        let compiled = after.map(|policy| Policy::new(self.phase, policy));
        self.policies.set_policy(self.phase, text(object, "/metadata/name"), compiled);
    }
}

/// The strategy of bindings. It maintains the list of bindings.
#[derive(Debug)]
pub(super) struct BindingStrategy {
    pub(super) phase: Phase,
    pub(super) policies: Arc<Policies>,
}

impl Strategy for BindingStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| present(spec, "matchResources", default_match_resources));
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_binding(self.phase, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn is_admitted(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        let Some(object) = after.or(before) else { return };
        if before.map(|before| &before["spec"]) == after.map(|after| &after["spec"]) {
            return;
        }
        let compiled = after.map(PolicyBinding::new);
        self.policies.set_binding(self.phase, text(object, "/metadata/name"), compiled);
    }
}

fn default_match_resources(resources: &mut Value) {
    fill(resources, "matchPolicy", "Equivalent");
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
        PolicyStrategy { phase: Phase::Validating, policies: Arc::default() }.default(&mut policy);
        let constraints = &policy["spec"]["matchConstraints"];
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        assert_eq!(constraints["matchPolicy"], "Equivalent");
        assert_eq!(constraints["resourceRules"][0]["scope"], "*");
        let mut binding = json!({"spec": {"matchResources": {}}});
        BindingStrategy { phase: Phase::Mutating, policies: Arc::default() }.default(&mut binding);
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
