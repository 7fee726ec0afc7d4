//! Rights that are used, and not declared.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apimachinery::description::Rule;
use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Oracle, Seen};

/// Finds requests that the roles which `kubewright manifests` generates don't allow. On a real cluster they are
/// refused. Leases and the objects of the runtime's own features have roles of their own.
pub(super) struct Rights {
    rules: Arc<Vec<Rule>>,
    found: BTreeSet<String>,
}

impl Rights {
    pub(super) fn new(rules: Arc<Vec<Rule>>) -> Self {
        Self { rules, found: BTreeSet::new() }
    }
}

impl Oracle for Rights {
    fn name(&self) -> &'static str {
        "rights"
    }

    fn executed(&mut self, request: &ApiRequest, _: Answer, _: &Seen<'_>) -> Vec<String> {
        let verb = format!("{:?}", request.verb).to_lowercase();
        let allows = |rule: &Rule| {
            let is_named = rule.names.is_empty() || request.name.as_ref().is_some_and(|name| rule.names.contains(name));
            let is = |known: &str, wanted: &str| known == "*" || known == wanted;
            let subresource = request.resource.split_once('/').map_or("", |(_, subresource)| subresource);
            let is_resource = is(&rule.resource, &request.resource)
                || rule.resource.strip_prefix("*/").is_some_and(|known| known == subresource);
            let verbs = rule.verbs.iter().map(ToString::to_string);
            is_named
                && is(&rule.group, &request.group)
                && is_resource
                && verbs.into_iter().any(|known| is(&known, &verb))
        };
        if request.resource == "leases" || self.rules.iter().any(allows) {
            return Vec::new();
        }
        let right = match request.group.is_empty() {
            true => format!("{verb} {}", request.resource),
            false => format!("{verb} {}.{}", request.resource, request.group),
        };
        let is_new = self.found.insert(right.clone());
        is_new.then(|| format!("the operator may not {right} by its roles: declare the right")).into_iter().collect()
    }
}
