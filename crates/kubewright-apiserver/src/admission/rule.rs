//! The rules of webhooks.

use serde_json::Value;

use super::attributes::Attributes;
use crate::registry::Resource;

/// One rule of a webhook.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// The names of the objects; empty for all. Only rules of policies have them.
    names: Vec<String>,
    scope: Option<bool>,
}

impl Rule {
    /// Parses a valid rule.
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
            names: texts("resourceNames"),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Some(true),
                Some("Cluster") => Some(false),
                _ => None,
            },
        }
    }

    pub(super) fn matches(&self, attributes: &Attributes, resource: &Resource) -> bool {
        let any = |all: &[String], one: &str| all.iter().any(|item| item == "*" || item == one);
        any(&self.operations, attributes.operation.as_str())
            && any(&self.groups, &resource.group)
            && any(&self.versions, &resource.version)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
            && self.scope.is_none_or(|namespaced| namespaced == resource.namespaced)
            && self.resources.iter().any(|pattern| pattern_matches(pattern, &resource.plural, &attributes.subresource))
    }
}

/// Matches a pattern of resources: `pods`, `pods/status`, `pods/*`, `*/status`, `*` (no subresources) and `*/*`
/// (everything).
fn pattern_matches(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, below) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (below == "*" || below == subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_resources_and_subresources() {
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
            let named = all.iter().enumerate().filter(|(_, (plural, below))| pattern_matches(pattern, plural, below));
            assert_eq!(named.map(|(index, _)| index).collect::<Vec<_>>(), expect, "{pattern}");
        }
    }
}
