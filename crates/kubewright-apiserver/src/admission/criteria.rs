//! The requests that webhooks and policies are for: rules and selectors.

use std::sync::Arc;

use kubewright_apimachinery::{selector::LabelSelector, status::Status};
use serde_json::Value;

use super::{
    attributes::{Attributes, NAMESPACES},
    rule::Rule,
};
use crate::{
    registry::Resource,
    storage::{Key, Store},
};

/// The new and the old state of the object. A creation has no old state, a deletion no new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects<'a> {
    pub(super) new: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
}

/// Rules and selectors that a request must match.
#[derive(Debug)]
pub(super) struct Criteria {
    rules: Vec<Rule>,
    /// Rules that exclude requests.
    excluded: Vec<Rule>,
    /// No rules match every request.
    open: bool,
    /// `matchPolicy: Exact`: the rules match only the versions that they name, not other versions of the same objects.
    exact: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Criteria {
    /// Compiles the rules and selectors of a valid, defaulted webhook.
    pub(super) fn of_webhook(webhook: &Value) -> Self {
        Self::new(webhook, "rules", false)
    }

    /// Compiles valid, defaulted match resources of a policy or binding. If there are no rules, all requests match.
    pub(super) fn of_match_resources(resources: &Value) -> Self {
        Self::new(resources, "resourceRules", true)
    }

    /// A selector that can't be parsed matches nothing.
    fn new(object: &Value, rules: &str, open: bool) -> Self {
        let selector = |field: &str| match object.get(field).filter(|value| !value.is_null()) {
            Some(selector) => LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing()),
            None => LabelSelector::default(),
        };
        let list = |field: &str| object[field].as_array().into_iter().flatten().map(Rule::new).collect::<Vec<_>>();
        let rules = list(rules);
        Self {
            open: open && rules.is_empty(),
            rules,
            excluded: list("excludeResourceRules"),
            exact: object["matchPolicy"] == "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Returns the resource of a request or, unless the match policy is `Exact`, another version of the same objects
    /// that the rules name. `all` contains all served resources.
    pub(super) fn find(&self, attributes: &Attributes, all: &[Arc<Resource>]) -> Option<Arc<Resource>> {
        if self.find_in(&self.excluded, attributes, all).is_some() {
            return None;
        }
        if self.open { Some(attributes.resource.clone()) } else { self.find_in(&self.rules, attributes, all) }
    }

    fn find_in(&self, rules: &[Rule], attributes: &Attributes, all: &[Arc<Resource>]) -> Option<Arc<Resource>> {
        if rules.is_empty() {
            return None;
        }
        let requested = &attributes.resource;
        let is_equivalent = |other: &&Arc<Resource>| {
            let same = (&other.group, &other.version) == (&requested.group, &requested.version);
            !self.exact && other.storage == requested.storage && !same
        };
        let mut candidates = std::iter::once(requested).chain(all.iter().filter(is_equivalent));
        candidates.find(|resource| rules.iter().any(|rule| rule.matches(attributes, resource))).cloned()
    }

    /// Returns whether the selectors match a request.
    pub(super) fn selects(&self, store: &Store, attributes: &Attributes, objects: Objects<'_>) -> Result<bool, Status> {
        let by_labels = |selector: &LabelSelector| {
            let mut states = [objects.new, objects.old].into_iter().flatten();
            selector.is_empty() || states.any(|state| selector.matches_labels(&state["metadata"]["labels"]))
        };
        let Attributes { resource, namespace, .. } = attributes;
        let in_namespace = if self.namespaces.is_empty() {
            true
        } else if &*resource.storage == NAMESPACES {
            by_labels(&self.namespaces)
        } else if namespace.is_empty() {
            true
        } else {
            let stored = store.get(NAMESPACES, &Key::new("", namespace));
            let stored = stored.ok_or_else(|| Status::not_found("", "namespaces", namespace))?;
            self.namespaces.matches(|key| stored.label(key))
        };
        Ok(in_namespace && by_labels(&self.objects))
    }
}
