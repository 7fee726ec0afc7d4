//! A webhook, compiled from its configuration: all that can be read ahead is.

use std::time::Duration;

use kubewright_apimachinery::{cel::MatchConditions, selector::LabelSelector};
use serde_json::Value;

use super::rule::Rule;
use crate::endpoint::Endpoint;

/// One webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    /// Only the versions that the rules name are meant, not others of the same objects.
    pub(super) exact: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    pub(super) conditions: MatchConditions,
    /// When it can't be asked, the request goes on.
    pub(super) optional: bool,
    pub(super) timeout: Duration,
    /// It may be asked about requests that are only rehearsed.
    pub(super) rehearses: bool,
    /// It wants to be asked again when others changed the object after it.
    pub(super) again: bool,
    pub(super) endpoint: Endpoint,
}

impl Webhook {
    /// Compiles a webhook of a configuration that has been checked and defaulted.
    ///
    /// What can't be read selects nothing, rather than everything.
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
            optional: webhook["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(seconds),
            rehearses: matches!(webhook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            again: webhook["reinvocationPolicy"] == "IfNeeded",
            endpoint: Endpoint::new(&webhook["clientConfig"], Some(seconds)),
        }
    }
}
