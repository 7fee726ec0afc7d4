//! Validation of limit ranges.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::{
    pod::{is_overcommit_allowed, validate_container_resource_name, validate_resource_name},
    validation::{Errors, Path, Quantity, entries, items, string},
};

/// Checks a limit range.
pub(super) fn validate_limit_range(object: &Value, errors: &mut Errors) {
    let path = Path::new("spec.limits");
    let mut kinds = BTreeSet::new();
    for (index, limit) in items(&object["spec"], "limits").iter().enumerate() {
        let path = path.index(index);
        let kind = string(limit, "type");
        validate_limit_type(kind, &path.child("type"), errors);
        if !kinds.insert(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        validate_names(limit, kind, &path, errors);
        let names: BTreeSet<_> = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
            .into_iter()
            .filter(|side| kind != "Pod" || !side.starts_with("default"))
            .flat_map(|side| entries(limit, side))
            .map(|(name, _)| name)
            .collect();
        for name in names {
            validate_amounts(limit, kind, name, &path, errors);
        }
    }
}

fn validate_limit_type(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let wrong = name::label_key(kind);
    errors.invalid_text(path, kind, &wrong);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"];
    if wrong.is_empty() && !kind.contains('/') && !standard.contains(&kind) {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
}

fn validate_names(limit: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let check = |side: &str, errors: &mut Errors| {
        let path = path.child(side);
        for (name, _) in entries(limit, side) {
            if matches!(kind, "Pod" | "Container") {
                validate_container_resource_name(name, &path.key(name), errors);
            } else {
                validate_resource_name(name, &path.key(name), errors);
            }
        }
    };
    check("max", errors);
    check("min", errors);
    for side in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check(side, errors);
        } else if entries(limit, side).next().is_some() {
            errors.forbidden(&path.child(side), "may not be specified when `type` is 'Pod'");
        }
    }
    let has_storage = |side: &str| limit[side].get("storage").is_some();
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), why);
    }
    check("maxLimitRequestRatio", errors);
}

/// Checks the amounts of one resource against each other.
fn validate_amounts(limit: &Value, kind: &str, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let amount = |side: &str| {
        let value = limit[side].get(name)?;
        Some((value.as_str().map_or_else(|| value.to_string(), String::from), Quantity::read(value)))
    };
    let default = |side| if kind == "Pod" { None } else { amount(side) };
    let (min, max, ratio) = (amount("min"), amount("max"), amount("maxLimitRequestRatio"));
    let (limits, requests) = (default("default"), default("defaultRequest"));
    // The field and the words of a message, and whether it shows the lesser one.
    let comparisons = [
        (&min, &max, "min", ["min", "max"], true),
        (&min, &requests, "defaultRequest", ["min", "default request"], false),
        (&requests, &max, "defaultRequest", ["default request", "max"], true),
        (&requests, &limits, "defaultRequest", ["default request", "default limit"], true),
        (&min, &limits, "default", ["min", "default"], true),
        (&limits, &max, "default", ["default", "max"], false),
    ];
    for (low, high, side, words, shows_low) in comparisons {
        if let (Some((low, least)), Some((high, most))) = (low, high)
            && least > most
        {
            let [low_word, high_word] = words;
            let why = format!("{low_word} value {low} is greater than {high_word} value {high}");
            let path = path.child(side);
            errors.invalid(&path.key(name), if shows_low { low.as_str() } else { high.as_str() }, &why);
        }
    }
    if let Some((text, value)) = &ratio {
        validate_ratio(text, *value, min.map(|min| min.1), max.map(|max| max.1), name, path, errors);
    }
    if let (Some((limit, most)), Some((request, least))) = (&limits, &requests)
        && most != least
        && !is_overcommit_allowed(name)
    {
        let why = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        let path = path.child("defaultRequest");
        errors.invalid(&path.key(name), request.as_str(), &why);
    }
}

fn validate_ratio(
    text: &str,
    ratio: Quantity,
    min: Option<Quantity>,
    max: Option<Quantity>,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("maxLimitRequestRatio");
    let path = path.key(name);
    if Quantity::parse("1").is_some_and(|one| ratio < one) {
        errors.invalid(&path, text, &format!("ratio {text} is less than 1"));
    }
    let (Some(min), Some(max)) = (min, max) else { return };
    let most = as_float(max) / as_float(min);
    if as_float(ratio) > most {
        errors.invalid(&path, text, &format!("ratio {text} is greater than max/min = {most:.6}"));
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio is shown with six places")]
fn as_float(amount: Quantity) -> f64 {
    amount.thousandths() as f64 / 1000.0
}
