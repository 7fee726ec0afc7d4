//! The capacity that requests consume of devices, which several can share. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::quantity::Quantity;
use serde_json::Value;

use crate::controllers::value::list;

/// One, in billionths.
const ONE: i128 = 1_000_000_000;

/// A consumed amount, and its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Consumed {
    pub(super) amount: Quantity,
    pub(super) text: Value,
}

impl Consumed {
    fn of(value: &Value) -> Self {
        Self { amount: Quantity::read(value), text: value.clone() }
    }

    /// Returns a whole number.
    fn whole(number: i128) -> Self {
        let mut rest = number;
        let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
        let mut suffix = suffixes.next();
        while rest != 0 && rest % 1024 == 0 {
            let Some(next) = suffixes.next() else { break };
            (rest, suffix) = (rest / 1024, Some(next));
        }
        let text = format!("{rest}{}", suffix.unwrap_or_default()).into();
        Self { amount: Quantity::from_billionths(number.saturating_mul(ONE)), text }
    }
}

/// The amounts that a request consumes of the capacities of a device, by their names.
pub(super) type Consumption<'a> = BTreeMap<&'a str, Consumed>;

/// Returns what a request consumes of a device; `None` if the device doesn't have that. `requests` are the capacities
/// that are asked for, and `in_use` is how much others consume of a capacity.
pub(super) fn consumption<'a>(
    requests: &Value,
    device: &'a Value,
    in_use: impl Fn(&str) -> Quantity,
) -> Option<Consumption<'a>> {
    let capacities = &device["capacity"];
    let mut names = requests.as_object().into_iter().flatten().map(|(name, _)| name);
    if !names.all(|name| capacities.get(name).is_some()) {
        return None;
    }
    let mut consumption = Consumption::new();
    for (name, capacity) in capacities.as_object().into_iter().flatten() {
        let consumed = consumed(requests.get(name), capacity);
        let is_there = in_use(name).plus(consumed.amount) <= Quantity::read(&capacity["value"]);
        if !is_allowed(consumed.amount, &capacity["requestPolicy"]) || !is_there {
            return None;
        }
        consumption.insert(name, consumed);
    }
    Some(consumption)
}

/// Returns what a request consumes of a capacity: what it asks for, rounded up as the policy of the capacity says.
fn consumed(request: Option<&Value>, capacity: &Value) -> Consumed {
    let policy = &capacity["requestPolicy"];
    let Some(request) = request else {
        return Consumed::of(policy.get("default").unwrap_or(&capacity["value"]));
    };
    let wanted = Quantity::read(request);
    let range = &policy["validRange"];
    if range["min"].is_null() {
        let mut values = list(policy, "/validValues").iter();
        return Consumed::of(values.find(|value| wanted <= Quantity::read(value)).unwrap_or(request));
    }
    let least = Quantity::read(&range["min"]);
    if wanted < least {
        return Consumed::of(&range["min"]);
    }
    match step(range) {
        None => Consumed::of(request),
        Some(step) => {
            let (wanted, least) = (whole(wanted), whole(least));
            let steps = (wanted - least + step - 1).div_euclid(step);
            Consumed::whole(least + steps * step)
        }
    }
}

/// Returns whether the policy of a capacity allows an amount.
fn is_allowed(amount: Quantity, policy: &Value) -> bool {
    let is = |value: &Value| !value.is_null() && Quantity::read(value) == amount;
    let range = &policy["validRange"];
    let values = list(policy, "/validValues");
    if is(&policy["default"]) {
        true
    } else if range.is_object() {
        let is_small = range["max"].is_null() || amount <= Quantity::read(&range["max"]);
        let is_whole = |step| (whole(amount) - whole(Quantity::read(&range["min"]))).rem_euclid(step) == 0;
        is_small && step(range).is_none_or(is_whole)
    } else {
        values.is_empty() || values.iter().any(is)
    }
}

/// Returns by how much the amounts of a range differ, if that is given.
fn step(range: &Value) -> Option<i128> {
    (!range["step"].is_null()).then(|| whole(Quantity::read(&range["step"]))).filter(|step| *step > 0)
}

fn whole(amount: Quantity) -> i128 {
    amount.value().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks how much of 10Gi memory is consumed by a request, of which 4Gi are in use.
    #[track_caller]
    fn check(policy: Value, request: Value, expect: Option<&str>) {
        let mut device = json!({"capacity": {"memory": {"value": "10Gi"}}});
        if !policy.is_null() {
            device["capacity"]["memory"]["requestPolicy"] = policy;
        }
        let in_use = |_: &str| Quantity::parse("4Gi").expect("an amount");
        let consumed = consumption(&request, &device, in_use);
        assert_eq!(consumed.as_ref().map(|consumed| &consumed["memory"].text), expect.map(Value::from).as_ref());
    }

    fn memory(amount: &str) -> Value {
        json!({"memory": amount})
    }

    #[test]
    fn requests_consume_what_policies_say() {
        check(Value::Null, memory("6Gi"), Some("6Gi"));
        check(Value::Null, memory("7Gi"), None);
        check(Value::Null, json!({"cores": "1"}), None);
        check(Value::Null, Value::Null, None);
        check(json!({"default": "2Gi"}), Value::Null, Some("2Gi"));
        let values = || json!({"default": "1Gi", "validValues": ["1Gi", "3Gi"]});
        check(values(), memory("1500Mi"), Some("3Gi"));
        check(values(), memory("4Gi"), None);
        let range = |more: Value| {
            let mut range = json!({"min": "1Gi"});
            range.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
            json!({"default": "1Gi", "validRange": range})
        };
        check(range(json!({})), memory("1"), Some("1Gi"));
        check(range(json!({})), memory("1500Mi"), Some("1500Mi"));
        check(range(json!({"step": "512Mi"})), memory("1025Mi"), Some("1536Mi"));
        check(range(json!({"step": "512Mi"})), memory("2Gi"), Some("2Gi"));
        check(range(json!({"step": "1Gi", "max": "2Gi"})), memory("2049Mi"), None);
        check(range(json!({"max": "2Gi"})), memory("3Gi"), None);
    }
}
