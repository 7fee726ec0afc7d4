//! The check of a write against the quotas of its namespace.

use jiff::Timestamp;
use serde_json::Value;

use super::{amount_fields, evaluator::Evaluator, pod, scope::matches_scopes};
use crate::{
    amounts::{Amount, Amounts, amounts},
    fields::text,
};

/// A write of an object.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) evaluator: Evaluator<'a>,
    /// The subresource, empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The object before an update.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
    pub(crate) now: Timestamp,
}

/// Returns the new `status.used` of each quota that a write changes, with the place of the quota.
///
/// # Errors
/// Returns the reason why a quota forbids the write. Only quotas with a status forbid anything.
pub(crate) fn charge<'a>(
    write: &Write<'_>,
    quotas: impl Iterator<Item = &'a Value>,
) -> Result<Vec<(usize, Value)>, String> {
    let Write { evaluator, subresource, old, new, now } = *write;
    if !evaluator.handles(subresource, old, new) {
        return Ok(Vec::new());
    }
    let mut matching = Vec::new();
    for (place, quota) in quotas.enumerate() {
        if concerns(quota, evaluator, new)? {
            matching.push((place, quota));
        }
    }
    if matching.is_empty() {
        return Ok(Vec::new());
    }
    let usage = evaluator.usage(new, now);
    let negative: Vec<_> = usage.iter().filter(|(_, used)| used.amount.is_negative()).collect();
    if !negative.is_empty() {
        let names: Vec<_> = negative.into_iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!("quota usage is negative for resource(s): {}", names.join(",")));
    }
    let before = old.map(|old| evaluator.usage(old, now));
    let mut charged = Vec::new();
    for (place, quota) in matching {
        let counted = before.as_ref().filter(|_| old.is_some_and(|old| matches_quota(quota, evaluator, old)));
        let mut more = usage.clone();
        if let Some(counted) = counted {
            subtract(&mut more, counted);
        }
        more.retain(|name, amount| !amount.amount.is_zero() && quota["status"]["hard"].get(name).is_some());
        if !more.is_empty() {
            charged.push((place, add_to(quota, &more, subresource != "status")?));
        }
    }
    Ok(charged)
}

/// Returns whether a quota limits what an object uses.
fn matches_quota(quota: &Value, evaluator: Evaluator<'_>, object: &Value) -> bool {
    amount_fields(&quota["status"], "hard").any(|(name, _)| evaluator.counts(name))
        && matches_scopes(quota, evaluator, object)
}

/// Returns whether a quota limits what a new object uses.
///
/// # Errors
/// Returns the reason why that is unknown.
fn concerns(quota: &Value, evaluator: Evaluator<'_>, new: &Value) -> Result<bool, String> {
    if !matches_quota(quota, evaluator, new) {
        return Ok(false);
    }
    let name = text(quota, "/metadata/name");
    let limited =
        || amount_fields(&quota["status"], "hard").map(|(name, _)| name).filter(|name| evaluator.counts(name));
    if evaluator.is_pods()
        && let Some(why) = pod::missing(new, limited())
    {
        return Err(format!("failed quota: {name}: {why}"));
    }
    if limited().any(|name| quota["status"]["used"].get(name).is_none()) {
        let mut names: Vec<_> = limited().map(String::as_str).collect();
        names.sort_unstable();
        return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
    }
    Ok(true)
}

fn subtract(amounts: &mut Amounts, others: &Amounts) {
    for (name, amount) in amounts {
        if let Some(other) = others.get(name) {
            amount.subtract(other);
        }
    }
}

/// Returns `status.used` of a quota with more amounts, which must be within the limits if `limited`.
fn add_to(quota: &Value, more: &Amounts, limited: bool) -> Result<Value, String> {
    let (used, hard) = (amounts(&quota["status"], "used"), amounts(&quota["status"], "hard"));
    let mut after = used.clone();
    let mut exceeded = Vec::new();
    for (name, more) in more {
        let sum = after.entry(name.clone()).or_insert_with(|| Amount::whole(0));
        sum.add(more);
        if limited && hard.get(name).is_some_and(|hard| sum.amount > hard.amount) {
            exceeded.push(name);
        }
    }
    if exceeded.is_empty() {
        return Ok(after.into_iter().map(|(name, amount)| (name, Value::from(amount.shown))).collect());
    }
    let shown = |amounts: &Amounts| {
        let of_name = |name: &&String| amounts.get(*name).map(|amount| format!("{name}={}", amount.shown));
        exceeded.iter().filter_map(of_name).collect::<Vec<_>>().join(",")
    };
    let name = text(quota, "/metadata/name");
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(more),
        shown(&used),
        shown(&hard)
    ))
}
