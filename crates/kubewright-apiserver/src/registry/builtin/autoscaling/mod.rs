//! Horizontal pod autoscalers, which `autoscaling/v1` and `autoscaling/v2` serve. They are stored in the form of `v2`.

mod columns;
mod convert;
mod validate;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

pub(super) use self::columns::columns;
use super::validation::Errors;
use crate::{
    fields::{fill, list, set, within},
    registry::Strategy,
};

/// The utilization of CPU that is wanted if no metric is given, in percent.
const DEFAULT_UTILIZATION: i64 = 80;

/// The strategy of autoscalers, by version.
#[derive(Debug)]
pub(super) enum AutoscalerStrategy {
    /// `autoscaling/v1`, which has fields for CPU only. The others are annotations.
    V1,
    /// `autoscaling/v2`
    V2,
}

impl Strategy for AutoscalerStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            fill(spec, "minReplicas", 1);
            if list(spec, "/metrics").is_empty() {
                set(spec, "metrics", json!([convert::cpu_metric(&DEFAULT_UTILIZATION.into())]));
            }
            if !spec["behavior"].is_object() {
                return;
            }
            within(spec, "behavior", |behavior| {
                let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
                within(behavior, "scaleUp", |rules| {
                    fill(rules, "stabilizationWindowSeconds", 0);
                    fill(rules, "selectPolicy", "Max");
                    fill(rules, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
                });
                within(behavior, "scaleDown", |rules| {
                    fill(rules, "selectPolicy", "Max");
                    fill(rules, "policies", json!([policy("Percent", 100)]));
                });
            });
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_autoscaler(old, new, errors))
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_status(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn decode(&self, object: &mut Value) {
        if matches!(self, Self::V1) {
            convert::from_v1(object);
        }
    }

    fn encode(&self, object: &mut Value) {
        if matches!(self, Self::V1) {
            convert::to_v1(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_type::ObjectType;

    #[test]
    fn rules_of_one_direction_bring_the_defaults_of_both() {
        let mut object = json!({"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"selectPolicy": "Min"}}}});
        AutoscalerStrategy::V2.default(&mut object);
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let expected = json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]},
            "scaleDown": {"selectPolicy": "Min", "policies": [percent]},
        });
        assert_eq!(object["spec"]["behavior"], expected);
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}});
        assert_eq!(object["spec"]["metrics"], json!([{"type": "Resource", "resource": cpu}]));
        assert_eq!(object["spec"]["minReplicas"], 1);
    }

    #[test]
    fn an_empty_list_of_policies_has_no_default() {
        let rules = json!({"scaleUp": {"policies": []}, "scaleDown": {"policies": null}});
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "behavior": rules});
        let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
        let ty = ObjectType::of("autoscaling", "v2", "HorizontalPodAutoscaler").expect("a type");
        ty.decode(&mut object).expect("an autoscaler");
        AutoscalerStrategy::V2.default(&mut object);
        let causes = AutoscalerStrategy::V2.validate(None, &object);
        let expected = "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}
