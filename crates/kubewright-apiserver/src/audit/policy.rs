//! Audit policies (<https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/#audit-k8s-io-v1-Policy>).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value;

use crate::auth::{Attributes, UserInfo};

/// How much is recorded of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what, and the result.
    Metadata,
    /// The object of the request, too.
    Request,
    /// The objects of the request and of the response, too.
    RequestResponse,
}

/// The stage of a request at which an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) enum Stage {
    RequestReceived,
    /// The headers of a response that lasts as long as the client wants were sent.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// A policy of an [`AuditLog`](super::AuditLog): rules that select how much is recorded of a request. The first rule
/// that matches counts; a request that matches none isn't recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: BTreeSet<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: BTreeSet<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// What a policy says about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) level: Level,
    pub(super) omit_stages: BTreeSet<Stage>,
    pub(super) omit_managed_fields: bool,
}

/// The error about a policy that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditPolicyError {
    /// The text is no policy.
    #[error("read the audit policy: {0}")]
    Malformed(String),
    /// A rule contradicts itself, or the policy has none.
    #[error("invalid audit policy: {0}")]
    Invalid(String),
}

impl AuditPolicy {
    /// Reads a policy, an object of the kind `Policy` of `audit.k8s.io/v1`.
    ///
    /// # Errors
    /// If it is another object, has unknown fields or no rules, or if a rule can't match anything.
    pub fn from_value(policy: Value) -> Result<Self, AuditPolicyError> {
        let policy: Self =
            serde_json::from_value(policy).map_err(|error| AuditPolicyError::Malformed(error.to_string()))?;
        let (version, kind) = (&policy.api_version, &policy.kind);
        if version != "audit.k8s.io/v1" || kind != "Policy" {
            let why = format!("it is a {kind:?} of {version:?}, not a Policy of audit.k8s.io/v1");
            return Err(AuditPolicyError::Malformed(why));
        }
        if policy.rules.is_empty() {
            return Err(AuditPolicyError::Invalid("it has no rules".into()));
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check().map_err(|why| AuditPolicyError::Invalid(format!("rules[{index}].{why}")))?;
        }
        Ok(policy)
    }

    /// Returns what is recorded of a request. A request whose user isn't known has none.
    pub(super) fn select(&self, user: Option<&UserInfo>, attributes: &Attributes) -> Selection {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, attributes)) else {
            return Selection { omit_stages: self.omit_stages.clone(), ..Selection::default() };
        };
        Selection {
            level: rule.level,
            omit_stages: self.omit_stages.union(&rule.omit_stages).copied().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_of_resources && !self.non_resource_urls.is_empty() {
            return Err("nonResourceURLs: a rule can't apply to both resources and other paths".into());
        }
        for url in self.non_resource_urls.iter().filter(|url| *url != "*") {
            if !url.starts_with('/') {
                return Err(format!("nonResourceURLs: {url:?} must begin with '/'"));
            }
            if url.trim_end_matches('*').contains('*') {
                return Err(format!("nonResourceURLs: {url:?} may have '*' at the end only"));
            }
        }
        for resources in &self.resources {
            if resources.group.contains('/') {
                return Err(format!("resources.group: {:?} must not contain a version", resources.group));
            }
            if resources.resources.is_empty() && !resources.resource_names.is_empty() {
                return Err("resources.resourceNames: names require at least one resource".into());
            }
        }
        Ok(())
    }

    fn matches(&self, user: Option<&UserInfo>, attributes: &Attributes) -> bool {
        let Attributes { verb, namespace, path, .. } = attributes;
        if let Some(user) = user {
            let is_other_user = !self.users.is_empty() && !self.users.contains(&user.name);
            let is_member = |group: &String| user.groups.contains(group);
            let is_other_group = !self.user_groups.is_empty() && !self.user_groups.iter().any(is_member);
            if is_other_user || is_other_group {
                return false;
            }
        }
        if !self.verbs.is_empty() && !self.verbs.contains(verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return path.is_empty()
                && (self.namespaces.is_empty() || self.namespaces.contains(namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|one| one.matches(attributes)));
        }
        if !self.non_resource_urls.is_empty() {
            return !path.is_empty() && self.non_resource_urls.iter().any(|pattern| matches_path(pattern, path));
        }
        true
    }
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        let Attributes { group, resource, subresource, name, .. } = attributes;
        if self.group != *group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(name) {
            return false;
        }
        let whole = attributes.full_resource();
        self.resources.iter().any(|pattern| {
            let of_all = pattern.strip_prefix("*/").is_some_and(|one| !subresource.is_empty() && one == subresource);
            *pattern == whole || pattern == "*" || of_all || pattern.strip_suffix("/*") == Some(resource)
        })
    }
}

fn matches_path(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(rules: &Value) -> Result<AuditPolicy, AuditPolicyError> {
        AuditPolicy::from_value(json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    }

    fn pods(subresource: &str, namespace: &str, name: &str) -> Attributes {
        Attributes {
            verb: "get".into(),
            resource: "pods".into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Attributes::default()
        }
    }

    #[track_caller]
    fn check(mut rule: Value, attributes: &Attributes, expect: bool) {
        rule["level"] = json!("Metadata");
        let user = UserInfo::new("jane", ["dev"]);
        let level = policy(&json!([rule])).unwrap().select(Some(&user), attributes).level;
        assert_eq!(level == Level::Metadata, expect, "{rule} {attributes:?}");
    }

    #[test]
    fn rules_select_resources() {
        let log = pods("log", "shop", "a");
        let plain = pods("", "shop", "a");
        for (resources, of_log, of_plain) in [
            (json!([]), true, true),
            (json!(["pods"]), false, true),
            (json!(["pods/log"]), true, false),
            (json!(["*"]), true, true),
            (json!(["*/log"]), true, false),
            (json!(["pods/*"]), true, true),
            (json!(["services"]), false, false),
        ] {
            let rule = json!({"resources": [{"group": "", "resources": resources}]});
            check(rule.clone(), &log, of_log);
            check(rule, &plain, of_plain);
        }
        check(json!({"resources": [{"group": "apps"}]}), &plain, false);
        check(json!({"resources": [{"resources": ["pods"], "resourceNames": ["b"]}]}), &plain, false);
        check(json!({"resources": [{"resources": ["pods"], "resourceNames": ["a"]}]}), &plain, true);
        check(json!({"namespaces": ["shop"]}), &plain, true);
        check(json!({"namespaces": [""]}), &plain, false);
        check(json!({"verbs": ["list"]}), &plain, false);
        check(json!({"users": ["jane"]}), &plain, true);
        check(json!({"users": ["joe"]}), &plain, false);
        check(json!({"userGroups": ["ops", "dev"]}), &plain, true);
        check(json!({"nonResourceURLs": ["*"]}), &plain, false);
    }

    #[test]
    fn rules_select_paths() {
        let path = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        check(json!({"nonResourceURLs": ["/healthz*"]}), &path("/healthz/ping"), true);
        check(json!({"nonResourceURLs": ["/healthz"]}), &path("/healthz/ping"), false);
        check(json!({"nonResourceURLs": ["*"]}), &path("/version"), true);
        check(json!({"resources": [{"group": ""}]}), &path("/version"), false);
        check(json!({}), &path("/version"), true);
    }

    #[test]
    fn the_first_rule_counts_and_stages_add_up() {
        let policy = AuditPolicy::from_value(json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "metadata": {"name": "p"},
            "omitStages": ["RequestReceived"], "omitManagedFields": true,
            "rules": [
                {"level": "None", "verbs": ["get"], "omitManagedFields": false},
                {"level": "Request", "verbs": ["get", "list"], "omitStages": ["Panic"]},
            ],
        }))
        .unwrap();
        let mut attributes = pods("", "shop", "a");
        assert_eq!(policy.select(None, &attributes).level, Level::None);
        attributes.verb = "list".into();
        let selected = policy.select(None, &attributes);
        let stages = [Stage::RequestReceived, Stage::Panic].into();
        assert_eq!(selected, Selection { level: Level::Request, omit_stages: stages, omit_managed_fields: true });
        attributes.verb = "watch".into();
        assert_eq!(policy.select(None, &attributes).level, Level::None);
    }

    #[test]
    fn malformed_policies_are_refused() {
        for (rules, expect) in [
            (json!([]), "it has no rules"),
            (json!([{"level": "All"}]), "unknown variant `All`"),
            (json!([{"level": "None", "user": []}]), "unknown field `user`"),
            (json!([{"level": "None", "nonResourceURLs": ["healthz"]}]), "must begin with '/'"),
            (json!([{"level": "None", "nonResourceURLs": ["/a*b"]}]), "at the end only"),
            (
                json!([{"level": "None", "nonResourceURLs": ["*"], "namespaces": ["a"]}]),
                "both resources and other paths",
            ),
            (json!([{"level": "None", "resources": [{"group": "apps/v1"}]}]), "must not contain a version"),
            (json!([{"level": "None", "resources": [{"resourceNames": ["a"]}]}]), "require at least one resource"),
        ] {
            let error = policy(&rules).unwrap_err().to_string();
            assert!(error.contains(expect), "{rules}: {error}");
        }
        let error = AuditPolicy::from_value(json!({"kind": "Pod", "apiVersion": "v1"})).unwrap_err().to_string();
        assert!(error.contains("not a Policy of audit.k8s.io/v1"), "{error}");
    }
}
