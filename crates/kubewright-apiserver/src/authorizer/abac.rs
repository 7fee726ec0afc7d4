//! The authorizer of the mode `ABAC`: the policies of a file
//! (<https://kubernetes.io/docs/reference/access-authn-authz/abac/>).

use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Decision, EffectiveRules, Extension,
    rule::{ALL, PolicyRule, covers_path},
};
use crate::auth::{
    attributes::Attributes,
    user::{AUTHENTICATED, UserInfo},
};

/// The versions of a policy. Those without one are of the first.
const VERSIONS: [&str; 2] = ["abac.authorization.kubernetes.io/v0", "abac.authorization.kubernetes.io/v1beta1"];

/// The policies of a file for the authorization mode `ABAC`: each allows a user or a group something.
#[derive(Clone, Debug, Default)]
pub struct AbacPolicies(Vec<Policy>);

/// The error about a policy that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {text}: {why}")]
pub struct AbacPolicyError {
    /// The line of the policy, counted from 1.
    pub line: usize,
    text: String,
    why: String,
}

/// A policy in the form of the latest version, where empty texts match nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

/// What says how a policy is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Form {
    api_version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Latest {
    spec: Policy,
}

impl AbacPolicies {
    /// Reads policies, one object of JSON per line. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// If a line is no policy.
    pub fn from_lines(text: &str) -> Result<Self, AbacPolicyError> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let policies = lines.map(|(number, line)| {
            let failed = |why| AbacPolicyError { line: number + 1, text: line.into(), why };
            Policy::parse(line).map_err(failed)
        });
        policies.collect::<Result<_, _>>().map(Self)
    }
}

impl Policy {
    fn parse(line: &str) -> Result<Self, String> {
        let Form { api_version, kind } = from_json(line)?;
        let is_first = api_version.is_empty() || kind.is_empty() || api_version == VERSIONS[0];
        if !is_first && api_version != VERSIONS[1] || !["", "Policy"].contains(&kind.as_str()) {
            return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
        }
        let mut policy = if is_first { Self::of_first(from_json(line)?) } else { from_json::<Latest>(line)?.spec };
        if policy.user == ALL || policy.group == ALL {
            (policy.user, policy.group) = (String::new(), AUTHENTICATED.into());
        }
        Ok(policy)
    }

    /// Returns a policy of the first version in the form of the latest, where what isn't named isn't limited.
    fn of_first(policy: Self) -> Self {
        let Self { user, group, readonly, resource, namespace, .. } = policy;
        let or_all = |text: &str| if text.is_empty() { ALL.to_owned() } else { text.to_owned() };
        Self {
            group: if user.is_empty() && group.is_empty() { AUTHENTICATED.into() } else { group },
            non_resource_path: if namespace.is_empty() && resource.is_empty() { ALL.into() } else { String::new() },
            api_group: ALL.into(),
            resource: or_all(&resource),
            namespace: or_all(&namespace),
            user,
            readonly,
        }
    }

    fn is_about(&self, user: &UserInfo) -> bool {
        (!self.user.is_empty() || !self.group.is_empty())
            && (self.user.is_empty() || self.user == user.name)
            && (self.group.is_empty() || user.groups.contains(&self.group))
    }

    fn allows(&self, attributes: &Attributes) -> bool {
        let Attributes { verb, group, resource, namespace, path, .. } = attributes;
        if self.readonly && !["get", "list", "watch"].contains(&verb.as_str()) {
            return false;
        }
        if !path.is_empty() {
            return covers_path(&self.non_resource_path, path);
        }
        let is = |allowed: &str, wanted: &str| allowed == ALL || allowed == wanted;
        is(&self.namespace, namespace) && is(&self.resource, resource) && is(&self.api_group, group)
    }

    /// Returns what the policy allows in a namespace, as rules of roles.
    fn rules(&self, namespace: &str) -> Vec<PolicyRule> {
        if self.namespace != ALL && self.namespace != namespace {
            return Vec::new();
        }
        let verbs = if self.readonly { vec!["get", "list", "watch"] } else { vec![ALL] };
        let verbs = || verbs.iter().map(|&verb| verb.to_owned()).collect();
        let one = |text: &String| vec![text.clone()];
        let mut rules = Vec::new();
        if !self.resource.is_empty() {
            let (groups, resources) = (one(&self.api_group), one(&self.resource));
            rules.push(PolicyRule { verbs: verbs(), groups, resources, ..PolicyRule::default() });
        }
        if !self.non_resource_path.is_empty() {
            let paths = one(&self.non_resource_path);
            rules.push(PolicyRule { verbs: verbs(), paths, ..PolicyRule::default() });
        }
        rules
    }
}

impl Extension for AbacPolicies {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let allowed = self.0.iter().any(|policy| policy.is_about(user) && policy.allows(attributes));
        if allowed { Decision::allow("") } else { Decision::no_opinion("No policy matched.") }
    }

    fn rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules {
        let rules = self.0.iter().filter(|policy| policy.is_about(user)).flat_map(|policy| policy.rules(namespace));
        EffectiveRules { rules: rules.collect(), errors: Vec::new() }
    }
}

fn from_json<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(policies: &AbacPolicies, user: &UserInfo, verb: &str, group: &str, resource: &str, path: &str) -> bool {
        let [verb, group, resource, path] = [verb, group, resource, path].map(String::from);
        let namespace = if path.is_empty() { "shop".into() } else { String::new() };
        let attributes = Attributes { verb, group, resource, path, namespace, ..Attributes::default() };
        policies.authorize(user, &attributes).allowed
    }

    #[test]
    fn policies_of_both_versions_allow_what_they_name() {
        let policies = AbacPolicies::from_lines(concat!(
            "# those of the shop\n\n",
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ann","#,
            r#""namespace":"shop","resource":"pods","readonly":true}}"#,
            "\n",
            r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"*","#,
            r#""nonResourcePath":"/open/*"}}"#,
            "\n",
            r#"{"user":"bob","namespace":"shop"}"#,
            "\n",
            r#"{"kind":"Policy","user":"eve","readonly":true}"#,
        ))
        .unwrap();
        let user = |name: &str| UserInfo::new(name, [AUTHENTICATED]);
        let (ann, bob, eve) = (user("ann"), user("bob"), user("eve"));
        assert!(allows(&policies, &ann, "list", "", "pods", ""));
        assert!(
            !allows(&policies, &ann, "create", "", "pods", "") && !allows(&policies, &ann, "get", "apps", "pods", "")
        );
        assert!(allows(&policies, &ann, "get", "", "", "/open/a") && !allows(&policies, &ann, "get", "", "", "/api"));
        assert!(!allows(&policies, &UserInfo::anonymous(), "get", "", "", "/open/a"));
        assert!(allows(&policies, &bob, "create", "apps", "deployments", ""));
        assert!(!allows(&policies, &bob, "get", "", "", "/api"), "a namespace limits the policy to objects");
        assert!(allows(&policies, &eve, "get", "", "", "/api") && !allows(&policies, &eve, "create", "", "pods", ""));
        let verbs = |user: &UserInfo, namespace| {
            let effective = policies.rules(user, namespace);
            effective
                .rules
                .into_iter()
                .filter(|rule| !rule.is_non_resource())
                .map(|rule| rule.verbs)
                .collect::<Vec<_>>()
        };
        assert_eq!(verbs(&ann, "shop"), [["get", "list", "watch"]]);
        assert_eq!(verbs(&ann, "other"), [[""; 0]; 0]);
        assert_eq!(verbs(&bob, "shop"), [["*"]]);
    }

    #[test]
    fn other_lines_are_errors() {
        for (line, expect) in [
            ("not json", "line 2: not json: "),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, "no kind \"Pod\" is registered for version \"v1\""),
            (r#"{"user":7}"#, "invalid type"),
        ] {
            let error = AbacPolicies::from_lines(&format!("#\n{line}")).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
