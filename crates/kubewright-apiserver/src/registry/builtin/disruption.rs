//! Pod disruption budgets.

use kubewright_apimachinery::{name, status::Cause};
use serde_json::Value;

use super::{
    validation::{
        Errors, Path, Shown, field, int, items, optional_string, validate_conditions, validate_label_selector,
        validate_nonnegative,
    },
    workload::{validate_not_more_than_whole, validate_positive_int_or_percent},
};
use crate::registry::Strategy;

/// The strategy of pod disruption budgets.
#[derive(Debug)]
pub(super) struct DisruptionBudgetStrategy;

impl Strategy for DisruptionBudgetStrategy {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_spec(&new["spec"], errors))
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        let path = Path::new("status");
        Errors::collect(|errors| {
            validate_conditions(items(&new["status"], "conditions"), &path.child("conditions"), errors);
            for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                validate_nonnegative(int(&new["status"], name), &path.child(name), errors);
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::path_segment
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["AlwaysAllow", "IfHealthyBudget"];
    let path = Path::new("spec");
    let numbers = ["minAvailable", "maxUnavailable"];
    if numbers.iter().all(|name| field(spec, name).is_some()) {
        errors.invalid(&path, internal(spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for name in numbers {
        if let Some(number) = field(spec, name) {
            validate_positive_int_or_percent(number, &path.child(name), errors);
            validate_not_more_than_whole(number, &path.child(name), errors);
        }
    }
    if let Some(selector) = field(spec, "selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
    let policy = optional_string(spec, "unhealthyPodEvictionPolicy");
    if let Some(policy) = policy.filter(|policy| !POLICIES.contains(policy)) {
        errors.not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, POLICIES);
    }
}

/// Shows a spec in the form of Kubernetes' internal type.
fn internal(spec: &Value) -> Shown {
    Shown::object([
        ("MinAvailable", Shown::nullable(spec.get("minAvailable"))),
        ("Selector", field(spec, "selector").map_or_else(|| Value::Null.into(), Shown::selector)),
        ("MaxUnavailable", Shown::nullable(spec.get("maxUnavailable"))),
        ("UnhealthyPodEvictionPolicy", Shown::nullable(spec.get("unhealthyPodEvictionPolicy"))),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_conditions_of_a_budget_are_checked() {
        let new = json!({"status": {"conditions": [{"type": "A", "status": "X"}], "currentHealthy": -1}});
        let causes = DisruptionBudgetStrategy.validate_status(&json!({}), &new);
        let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        let condition = ["status", "lastTransitionTime", "reason"].map(|name| format!("status.conditions[0].{name}"));
        assert_eq!(fields, [&*condition[0], &*condition[1], &*condition[2], "status.currentHealthy"]);
    }

    #[test]
    fn a_budget_has_one_number() {
        let check = |spec: Value, expected: &[&str]| {
            let causes = DisruptionBudgetStrategy.validate(None, &json!({"spec": spec}));
            assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        };
        check(json!({"minAvailable": "50%", "selector": {}}), &[]);
        check(
            json!({"maxUnavailable": "150%"}),
            &["spec.maxUnavailable: Invalid value: \"150%\": must not be greater than 100%"],
        );
        check(
            json!({"minAvailable": 1, "maxUnavailable": 1}),
            &["spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":1,\
             \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"],
        );
    }
}
