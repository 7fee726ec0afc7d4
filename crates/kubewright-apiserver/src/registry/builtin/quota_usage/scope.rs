//! The scopes of quotas, which select the objects that a quota counts.

use serde_json::Value;

use super::{evaluator::Evaluator, pod};
use crate::fields::{list, text};

/// Returns whether all scopes of a quota select an object.
pub(super) fn matches_scopes(quota: &Value, evaluator: Evaluator<'_>, object: &Value) -> bool {
    let scopes = list(quota, "/spec/scopes").iter().filter_map(Value::as_str);
    let selectors = list(quota, "/spec/scopeSelector/matchExpressions");
    scopes
        .map(|scope| Requirement { scope, operator: "Exists", values: &[] })
        .chain(selectors.iter().map(Requirement::of))
        .all(|requirement| {
            if evaluator.is_pods() {
                requirement.selects_pod(object)
            } else {
                evaluator.is_claims() && requirement.selects_claim(object)
            }
        })
}

/// A scope, and what it requires.
struct Requirement<'a> {
    scope: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

impl<'a> Requirement<'a> {
    fn of(selector: &'a Value) -> Self {
        Self {
            scope: text(selector, "/scopeName"),
            operator: text(selector, "/operator"),
            values: list(selector, "/values"),
        }
    }

    fn selects_pod(&self, pod: &Value) -> bool {
        match self.scope {
            "Terminating" => pod::ends_by_deadline(pod),
            "NotTerminating" => !pod::ends_by_deadline(pod),
            "BestEffort" => pod::is_best_effort(pod),
            "NotBestEffort" => !pod::is_best_effort(pod),
            "PriorityClass" => self.selects(&[pod::priority_class(pod)]),
            "CrossNamespacePodAffinity" => pod::has_affinity_across_namespaces(pod),
            _ => false,
        }
    }

    fn selects_claim(&self, claim: &Value) -> bool {
        let classes = [
            "/spec/volumeAttributesClassName",
            "/status/currentVolumeAttributesClassName",
            "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
        ];
        self.scope == "VolumeAttributesClass" && self.selects(&classes.map(|pointer| text(claim, pointer)))
    }

    /// Returns whether any of these classes, of which empty ones are absent, is selected.
    fn selects(&self, classes: &[&str]) -> bool {
        let mut present = classes.iter().filter(|class| !class.is_empty());
        let is_listed = |class: &&str| self.values.iter().any(|value| value.as_str() == Some(*class));
        match self.operator {
            "Exists" => present.next().is_some(),
            "DoesNotExist" => present.next().is_none(),
            "In" => present.any(is_listed),
            "NotIn" => {
                let mut present = present.peekable();
                present.peek().is_none() || present.any(|class| !is_listed(class))
            }
            _ => false,
        }
    }
}
