//! Which requests a webhook's rules mean.

use std::sync::Arc;

use serde_json::Value;

use super::{Attributes, Webhook};
use crate::registry::Resource;

/// One rule of a webhook.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<bool>,
}

impl Rule {
    /// Reads a rule that has been checked.
    pub(super) fn new(rule: &Value) -> Self {
        let texts = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Some(true),
                Some("Cluster") => Some(false),
                _ => None,
            },
        }
    }

    fn matches(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let any = |all: &[String], one: &str| all.iter().any(|item| item == "*" || item == one);
        any(&self.operations, attributes.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && self.scope.is_none_or(|namespaced| namespaced == resource.namespaced)
            && self.resources.iter().any(|pattern| names(pattern, &resource.plural, &attributes.subresource))
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*` (no subresources) and `*/*` (everything).
fn names(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, below) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (below == "*" || below == subresource)
}

/// A webhook that wants a request.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) webhook: Arc<Webhook>,
    /// The version of the resource in which it wants to see the object.
    pub(super) face: Arc<Resource>,
}

/// Whether a webhook wants a request: for the resource as it was asked for or, unless it is exact, for another version of
/// the same objects.
pub(super) fn matches(webhook: &Arc<Webhook>, attributes: &Attributes, all: &[Arc<Resource>]) -> Option<Match> {
    let asked = &attributes.resource;
    let equivalent = |face: &&Arc<Resource>| {
        let same = (&face.group, &face.version) == (&asked.group, &asked.version);
        !webhook.exact && face.storage == asked.storage && !same
    };
    let faces = std::iter::once(asked).chain(all.iter().filter(equivalent));
    let mut wanted = faces.filter(|face| webhook.rules.iter().any(|rule| rule.matches(attributes, face)));
    wanted.next().map(|face| Match { webhook: webhook.clone(), face: face.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_resources_and_subresources() {
        let all = [("pods", ""), ("pods", "status"), ("pods", "log"), ("jobs", ""), ("jobs", "status")];
        for (pattern, expect) in [
            ("pods", vec![0]),
            ("pods/status", vec![1]),
            ("pods/*", vec![0, 1, 2]),
            ("*", vec![0, 3]),
            ("*/status", vec![1, 4]),
            ("*/*", vec![0, 1, 2, 3, 4]),
            ("", vec![]),
        ] {
            let named = all.iter().enumerate().filter(|(_, (plural, below))| names(pattern, plural, below));
            assert_eq!(named.map(|(index, _)| index).collect::<Vec<_>>(), expect, "{pattern}");
        }
    }
}
