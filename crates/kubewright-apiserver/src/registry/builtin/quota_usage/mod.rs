//! Resource quotas: what the objects of a namespace use, and what a quota allows
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! The handlers check each write, and record what it uses with the object, in one transaction. The
//! quota controller calculates it again by [`used()`]. All functions are pure.

mod admission;
mod evaluator;
mod pod;
mod scope;
#[cfg(test)]
mod tests;
mod usage;

use jiff::Timestamp;
use kubewright_apimachinery::quantity::Quantity;
use serde_json::{Map, Value};

pub(crate) use self::admission::{Write, charge};
pub use self::evaluator::Evaluator;
use self::scope::matches_scopes;
use crate::amounts::{Amounts, add};

/// Where quotas are stored.
pub(crate) const STORAGE: &str = "/resourcequotas";

/// Objects that a quota counts.
#[derive(Debug)]
pub enum Objects<'a> {
    /// Objects whose content determines what they use: see [`Evaluator::reads_objects`].
    Read(Vec<&'a Value>),
    /// The number of objects.
    Number(usize),
}

/// Returns what the objects of one kind use of a quota, by resource. Of the resources of the kind, those that no object
/// uses are zero; others are left out.
pub fn used(quota: &Value, evaluator: Evaluator<'_>, objects: &Objects<'_>, now: Timestamp) -> Map<String, Value> {
    let mut sum = Amounts::new();
    match objects {
        Objects::Read(objects) => {
            for object in objects.iter().filter(|object| matches_scopes(quota, evaluator, object)) {
                add(&mut sum, &evaluator.usage(object, now));
            }
        }
        // No scope matches them.
        Objects::Number(number) if matches_scopes(quota, evaluator, &Value::Null) => {
            sum = evaluator.usage_of_number(*number);
        }
        Objects::Number(_) => {}
    }
    let names = amount_fields(&quota["spec"], "hard").map(|(name, _)| name).filter(|name| evaluator.counts(name));
    let shown = |name: &str| sum.get(name).map_or_else(|| "0".to_owned(), |amount| amount.shown.clone());
    names.map(|name| (name.clone(), shown(name).into())).collect()
}

/// Returns whether two maps have the same amounts, however they are written.
pub fn is_equal(one: &Value, other: &Value) -> bool {
    let amounts = |map: &Value| -> Vec<_> {
        let fields = map.as_object().into_iter().flatten();
        fields.map(|(name, amount)| (name.clone(), Quantity::read(amount))).collect()
    };
    let (mut one, mut other) = (amounts(one), amounts(other));
    one.sort();
    other.sort();
    one == other
}

fn amount_fields<'a>(parent: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    parent.get(field).and_then(Value::as_object).into_iter().flatten()
}
