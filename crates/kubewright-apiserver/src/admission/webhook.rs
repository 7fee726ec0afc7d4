//! One webhook, compiled from its configuration.

use std::time::Duration;

use kubewright_apimachinery::cel::MatchConditions;
use serde_json::Value;

use super::{criteria::Criteria, response};
use crate::webhook_client::Endpoint;

/// One webhook of a configuration.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(super) name: String,
    pub(super) criteria: Criteria,
    pub(super) conditions: MatchConditions,
    /// `failurePolicy: Ignore`: the request continues if the webhook can't be called.
    pub(super) ignores_failure: bool,
    pub(super) timeout: Duration,
    /// The webhook has no side effects in dry runs.
    pub(super) supports_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`: the webhook is called again if others changed the object after it.
    pub(super) reinvoked: bool,
    /// The version of the reviews that are sent.
    pub(super) review_version: &'static str,
    pub(super) endpoint: Endpoint,
}

impl Webhook {
    /// Compiles a webhook of a valid, defaulted configuration.
    pub(crate) fn new(webhook: &Value) -> Self {
        let list = |field: &str| webhook[field].as_array().into_iter().flatten();
        let conditions = list("matchConditions").filter_map(|condition| condition["expression"].as_str());
        let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        Self {
            name: webhook["name"].as_str().unwrap_or_default().to_owned(),
            criteria: Criteria::of_webhook(webhook),
            conditions: MatchConditions::new(conditions),
            ignores_failure: webhook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(seconds),
            supports_dry_run: matches!(webhook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            reinvoked: webhook["reinvocationPolicy"] == "IfNeeded",
            review_version: list("admissionReviewVersions").find_map(review_version).unwrap_or(response::VERSION),
            endpoint: Endpoint::new(&webhook["clientConfig"], Some(seconds)),
        }
    }
}
/// Returns the name of a supported version of reviews.
fn review_version(version: &Value) -> Option<&'static str> {
    match version.as_str()? {
        "v1" => Some(response::VERSION),
        "v1beta1" => Some(response::OLD_VERSION),
        _ => None,
    }
}
