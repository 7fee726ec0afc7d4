//! Validation of `conversion` of a CRD.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    super::{
        bundle::{has_readable_bundle, is_readable},
        status::holds,
    },
    SPEC,
};
use crate::{
    conversion::REVIEW_VERSIONS,
    registry::builtin::{
        validation::{Errors, Path, field, items, string, strings, validate_text},
        webhook::validate_client_config,
    },
};

/// Checks how objects are converted.
pub(super) fn validate_conversion(old: Option<&Value>, conversion: &Value, errors: &mut Errors) {
    const STRATEGIES: &[&str] = &["None", "Webhook"];
    let path = SPEC.child("conversion");
    let strategy = string(conversion, "strategy");
    if strategy.is_empty() {
        errors.required(&path.child("strategy"), "");
    } else if !STRATEGIES.contains(&strategy) {
        errors.not_supported(&path.child("strategy"), strategy, STRATEGIES);
    }
    // These fields are those of an older version of the API.
    let (client, reviews) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let webhook = &conversion["webhook"];
    let config = field(webhook, "clientConfig");
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.forbidden(&client, why);
        }
        if !items(webhook, "conversionReviewVersions").is_empty() {
            errors.forbidden(&reviews, why);
        }
        return;
    }
    match config {
        Some(config) => {
            validate_client_config(config, &client, errors);
            let bundle = string(config, "caBundle");
            if !old.is_none_or(allows_any_bundle) && !is_readable(bundle) {
                let why = "unable to load root certificates: unable to parse bytes as PEM block";
                errors.invalid(&client.child("caBundle"), bundle, why);
            }
        }
        None => errors.required(&client, "required when strategy is set to Webhook"),
    }
    validate_review_versions(webhook, &reviews, errors);
}

/// Returns whether the update of a CRD may set unreadable certificates: if it isn't established, or has such ones.
fn allows_any_bundle(old: &Value) -> bool {
    !holds(old, "Established") || !has_readable_bundle(old)
}

fn validate_review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions = items(webhook, "conversionReviewVersions");
    if versions.is_empty() {
        return errors.required(path, "");
    }
    for (index, version) in strings(webhook, "conversionReviewVersions").enumerate() {
        if versions[..index].iter().any(|earlier| earlier == version) {
            errors.invalid(&path.index(index), version, "duplicate version");
        } else {
            validate_text(version, name::dns1035_label, &path.index(index), errors);
        }
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.iter().any(|known| version == known)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.invalid(path, versions.to_vec(), &why);
    }
}
