//! Matching of requests against the rules of webhooks.

use std::sync::Arc;

use super::{attributes::Attributes, webhook::Webhook};
use crate::registry::Resource;

/// A webhook whose rules match a request.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) webhook: Arc<Webhook>,
    /// The version of the resource that the rules name, and in which the object is sent.
    pub(super) resource: Arc<Resource>,
}

/// Matches a webhook's rules against the resource of a request or, unless its match policy is `Exact`, against another
/// version of the same objects.
pub(super) fn match_webhook(webhook: &Arc<Webhook>, attributes: &Attributes, all: &[Arc<Resource>]) -> Option<Match> {
    let requested = &attributes.resource;
    let is_equivalent = |other: &&Arc<Resource>| {
        let same = (&other.group, &other.version) == (&requested.group, &requested.version);
        !webhook.exact && other.storage == requested.storage && !same
    };
    let mut candidates = std::iter::once(requested).chain(all.iter().filter(is_equivalent));
    let matching = candidates.find(|resource| webhook.rules.iter().any(|rule| rule.matches(attributes, resource)))?;
    Some(Match { webhook: webhook.clone(), resource: matching.clone() })
}
