//! Limit ranges and resource quotas.

mod limit_range;
mod resource_quota;

use std::sync::Arc;

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

use self::{
    limit_range::validate_limit_range,
    resource_quota::{validate_resource_quota, validate_resource_quota_status},
};
use super::{limit_ranges::LimitRanges, validation::Errors};
use crate::{
    fields::{each, fill, text, within},
    registry::Strategy,
};

/// The strategy of limit ranges.
#[derive(Debug)]
pub(super) struct LimitRangeStrategy {
    /// The limit ranges that pods and claims are admitted by, which this strategy keeps up to date.
    pub(super) ranges: Arc<LimitRanges>,
}

impl Strategy for LimitRangeStrategy {
    /// Sets the default limits of containers to the maximum, and the default requests to these or to the minimum.
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            for item in each(spec, "limits").filter(|item| text(item, "/type") == "Container") {
                fill_amounts(item, "default", "max");
                fill_amounts(item, "defaultRequest", "default");
                fill_amounts(item, "defaultRequest", "min");
            }
        });
    }

    fn names_itself(&self) -> bool {
        true
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_limit_range(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        self.ranges.replace(before, after);
    }
}

/// Sets the amounts that a field lacks to those of another field.
fn fill_amounts(item: &mut Value, field: &str, source: &str) {
    let Some(Value::Object(amounts)) = item.get(source).cloned() else { return };
    if amounts.is_empty() {
        return;
    }
    within(item, field, |present| {
        for (name, amount) in amounts {
            fill(present, &name, amount);
        }
    });
}

/// The strategy of resource quotas.
#[derive(Debug)]
pub(super) struct ResourceQuotaStrategy;

impl Strategy for ResourceQuotaStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_resource_quota(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn validate_status(&self, _old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate_resource_quota_status(new, errors))
    }

    fn has_generation(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_of_containers_have_defaults() {
        let mut object = json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"}},
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        let pod = object["spec"]["limits"][1].clone();
        LimitRangeStrategy { ranges: Arc::default() }.default(&mut object);
        let [container, after] = object["spec"]["limits"].as_array().unwrap().as_slice() else { panic!() };
        assert_eq!(container["default"], json!({"cpu": "2"}));
        assert_eq!(container["defaultRequest"], json!({"cpu": "2", "memory": "1Gi"}));
        assert_eq!(*after, pod);
    }
}
