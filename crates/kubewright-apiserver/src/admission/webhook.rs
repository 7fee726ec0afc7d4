//! One webhook, compiled from its configuration.

use std::time::Duration;

use kubewright_apimachinery::{cel::MatchConditions, selector::LabelSelector};
use serde_json::Value;

use super::{response, rule::Rule};
use crate::webhook_client::Endpoint;

/// One webhook of a configuration.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    /// `matchPolicy: Exact`: the rules match only the versions that they name, not other versions of the same objects.
    pub(super) exact: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
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
    /// Compiles a webhook of a valid, defaulted configuration. A selector that can't be parsed matches nothing.
    pub(crate) fn new(webhook: &Value) -> Self {
        let selector = |field: &str| match webhook.get(field).filter(|value| !value.is_null()) {
            Some(selector) => LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing()),
            None => LabelSelector::default(),
        };
        let list = |field: &str| webhook[field].as_array().into_iter().flatten();
        let conditions = list("matchConditions")
            .filter_map(|condition| Some((condition["name"].as_str()?, condition["expression"].as_str()?)));
        let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        Self {
            name: webhook["name"].as_str().unwrap_or_default().to_owned(),
            rules: list("rules").map(Rule::new).collect(),
            exact: webhook["matchPolicy"] == "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
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
