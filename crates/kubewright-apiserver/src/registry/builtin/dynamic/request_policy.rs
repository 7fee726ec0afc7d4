//! Validation of the amounts of a capacity that may be requested.

use std::collections::BTreeSet;

use kubewright_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::{
    amounts,
    registry::builtin::validation::{Errors, Path, field, items},
};

/// The greatest number of amounts that a policy lists.
const MAX_VALUES: usize = 10;
const WHOLE: i128 = 1_000_000_000;

/// Checks the policy of a capacity. Only devices with several allocations have one.
pub(super) fn validate_capacity(capacity: &Value, is_shared: bool, path: &Path<'_>, errors: &mut Errors) {
    let (Some(policy), path) = (field(capacity, "requestPolicy"), path.child("requestPolicy")) else { return };
    if !is_shared {
        errors.forbidden(&path, "allowMultipleAllocations must be true");
        return;
    }
    let greatest = Amount::of(&capacity["value"]);
    let default = field(policy, "default").map(Amount::of);
    let missing = |list: &str| format!("required when {list} is defined");
    match (items(policy, "validValues"), field(policy, "validRange")) {
        ([], None) => {}
        ([_, ..], Some(_)) => {
            let why = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                       same time";
            errors.forbidden(&path, why);
        }
        (values @ [_, ..], None) => match default {
            None => errors.required(&path.child("default"), &missing("validValues")),
            Some(default) => validate_values(values, default, greatest, &path.child("validValues"), errors),
        },
        ([], Some(range)) => match default {
            None => errors.required(&path.child("default"), &missing("validRange")),
            Some(default) => validate_range(range, default, greatest, &path.child("validRange"), errors),
        },
    }
}

/// An amount, and its text.
#[derive(Clone, Copy)]
struct Amount<'v> {
    amount: Quantity,
    text: &'v str,
}

impl<'v> Amount<'v> {
    fn of(value: &'v Value) -> Self {
        Self { amount: Quantity::read(value), text: value.as_str().unwrap_or("0") }
    }

    /// Returns the amount as an integer, rounded up.
    fn whole(self) -> i128 {
        let billionths = self.amount.billionths();
        billionths.div_euclid(WHOLE) + i128::from(billionths.rem_euclid(WHOLE) != 0)
    }
}

fn validate_values(values: &[Value], default: Amount<'_>, greatest: Amount<'_>, path: &Path<'_>, errors: &mut Errors) {
    let amounts: Vec<_> = values.iter().map(Amount::of).collect();
    for (index, pair) in amounts.windows(2).enumerate() {
        if pair[0].amount > pair[1].amount {
            errors.invalid(&path.index(index + 1), pair[1].text, "values must be sorted in ascending order");
        }
    }
    if amounts.len() > MAX_VALUES {
        errors.too_many(path, amounts.len(), MAX_VALUES);
    } else {
        for (index, value) in amounts.iter().enumerate().filter(|(_, value)| value.amount > greatest.amount) {
            let why = format!("option is larger than capacity value: {}", greatest.text);
            errors.invalid(&path.index(index), value.text, &why);
        }
        let mut seen = BTreeSet::new();
        for (index, value) in amounts.iter().enumerate() {
            if !seen.insert(value.whole()) {
                errors.duplicate(&path.index(index), value.whole().to_string());
            }
        }
    }
    if amounts.len() > MAX_VALUES || !amounts.iter().any(|value| value.amount == default.amount) {
        errors.invalid(path, default.text, "default value is not valid according to the requestPolicy");
    }
}

fn validate_range(range: &Value, default: Amount<'_>, greatest: Amount<'_>, path: &Path<'_>, errors: &mut Errors) {
    let bound = |name: &str| field(range, name).map(Amount::of);
    let Some(min) = bound("min") else {
        errors.required(&path.child("min"), "required when validRange is defined");
        return;
    };
    let mut check = |holds: bool, name: &str, value: Amount<'_>, why: String| {
        if !holds {
            errors.invalid(&path.child(name), value.text, &why);
        }
    };
    let limit = greatest.text;
    check(min.amount <= greatest.amount, "min", min, format!("min is larger than capacity value: {limit}"));
    check(default.amount >= min.amount, "default", default, format!("default is less than min: {}", min.text));
    let max = bound("max");
    if let Some(max) = max {
        check(min.amount <= max.amount, "max", min, format!("min is larger than max: {}", max.text));
        check(max.amount <= greatest.amount, "max", max, format!("max is larger than capacity value: {limit}"));
        check(default.amount <= max.amount, "default", default, format!("default is more than max: {}", max.text));
    }
    let Some(step) = bound("step") else { return };
    if step.amount <= Quantity::default() {
        check(false, "step", step, "must be greater than zero".to_owned());
        return;
    }
    let mut first = amounts::Amount::of(&range["min"]);
    first.add(&amounts::Amount::of(&range["step"]));
    let why = format!("one step {} is larger than capacity value: {limit}", first.shown);
    check(first.amount <= greatest.amount, "step", step, why);
    for value in [Some(default), max].into_iter().flatten() {
        let is_multiple = step.whole() != 0 && (value.whole() - min.whole()) % step.whole() == 0;
        let why = format!("value is not a multiple of a given step ({}) from ({})", step.text, min.text);
        check(is_multiple, "step", value, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(capacity: Value, is_shared: bool) -> Vec<String> {
        let path = Path::new("c");
        let causes = Errors::collect(|errors| validate_capacity(&capacity, is_shared, &path, errors));
        causes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn listed_amounts_are_checked() {
        let policy = |policy: Value| json!({"value": "1Gi", "requestPolicy": policy});
        let valid = policy(json!({"default": "1Gi", "validValues": ["512Mi", "1Gi"]}));
        assert_eq!(texts(valid.clone(), true), [""; 0]);
        assert_eq!(texts(valid, false), ["c.requestPolicy: Forbidden: allowMultipleAllocations must be true"]);
        assert_eq!(
            texts(policy(json!({"validValues": ["1Gi"]})), true),
            ["c.requestPolicy.default: Required value: required when validValues is defined"]
        );
        assert_eq!(
            texts(policy(json!({"default": "5", "validValues": ["2Gi", "1Gi", "1Gi"]})), true),
            [
                "c.requestPolicy.validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order",
                "c.requestPolicy.validValues[0]: Invalid value: \"2Gi\": option is larger than capacity value: 1Gi",
                "c.requestPolicy.validValues[2]: Duplicate value: \"1073741824\"",
                "c.requestPolicy.validValues: Invalid value: \"5\": default value is not valid according to the \
                 requestPolicy",
            ]
        );
    }

    #[test]
    fn ranges_are_checked() {
        let range = |range: Value| json!({"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": range}});
        assert_eq!(texts(range(json!({"min": "1Gi", "max": "8Gi", "step": "1Gi"})), true), [""; 0]);
        assert_eq!(
            texts(range(json!({"min": "2Gi", "max": "20Gi", "step": "9Gi"})), true),
            [
                "c.requestPolicy.validRange.default: Invalid value: \"1Gi\": default is less than min: 2Gi",
                "c.requestPolicy.validRange.max: Invalid value: \"20Gi\": max is larger than capacity value: 10Gi",
                "c.requestPolicy.validRange.step: Invalid value: \"9Gi\": one step 11Gi is larger than capacity value: \
                 10Gi",
                "c.requestPolicy.validRange.step: Invalid value: \"1Gi\": value is not a multiple of a given step (9Gi) \
                 from (2Gi)",
            ]
        );
        assert_eq!(
            texts(range(json!({"max": "8Gi"})), true),
            ["c.requestPolicy.validRange.min: Required value: required when validRange is defined"]
        );
        let both = json!({"value": "1", "requestPolicy": {"default": "1", "validValues": ["1"], "validRange": {}}});
        assert_eq!(texts(both, true).len(), 1);
    }
}
