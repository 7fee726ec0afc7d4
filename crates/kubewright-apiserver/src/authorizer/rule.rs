//! The rules of roles.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::auth::attributes::Attributes;

/// The wildcard.
pub(super) const ALL: &str = "*";

/// One rule of a role (<https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/role-v1/>).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyRule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    /// Object names; empty for all objects.
    pub(crate) names: Vec<String>,
    pub(crate) paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

impl PolicyRule {
    /// Returns the rules that together allow everything: all resources and all paths.
    pub(crate) fn full_authority() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        let objects = Self { verbs: all(), groups: all(), resources: all(), ..Self::default() };
        [objects, Self { verbs: all(), paths: all(), ..Self::default() }]
    }

    /// Parses a rule of a role.
    pub(crate) fn parse(rule: &Value) -> Self {
        let list = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    fn fields(&self) -> [(&'static str, &[String]); 5] {
        let Self { verbs, groups, resources, names, paths } = self;
        [
            ("verbs", verbs.as_slice()),
            ("apiGroups", groups),
            ("resources", resources),
            ("resourceNames", names),
            ("nonResourceURLs", paths),
        ]
    }

    /// Converts the rule to JSON, the inverse of [`PolicyRule::parse`].
    pub(crate) fn to_value(&self) -> Value {
        let present = self.fields().into_iter().filter(|(_, list)| !list.is_empty());
        Value::Object(present.map(|(field, list)| (field.to_owned(), list.into())).collect::<Map<_, _>>())
    }

    /// Returns whether the rule is for paths instead of resources.
    pub(crate) fn is_non_resource(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns whether the rule by itself allows a request.
    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_all(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.path.is_empty() {
            return self.paths.iter().any(|path| covers_path(path, &attributes.path));
        }
        has_or_all(&self.groups, &attributes.group)
            && self.names_resource(attributes)
            && (self.names.is_empty() || has(&self.names, &attributes.name))
    }

    /// Returns whether the rule is for the resource of a request. An access review may name a subresource in the
    /// resource itself (`pods/log`), and rules match it as they match the two parts.
    fn names_resource(&self, attributes: &Attributes) -> bool {
        let Attributes { resource, subresource, .. } = attributes;
        self.resources.iter().any(|one| {
            if subresource.is_empty() {
                return one == ALL || one == resource;
            }
            let of_all = one.strip_prefix("*/");
            let of_one = one.strip_prefix(resource.as_str()).and_then(|rest| rest.strip_prefix('/'));
            one == ALL || of_all == Some(subresource) || of_one == Some(subresource)
        })
    }

    /// Splits the rule into rules with a single verb, group, resource and name each, or a single verb and path.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            let verb = Self { verbs: one(verb), ..Self::default() };
            parts.extend(self.paths.iter().map(|path| Self { paths: one(path), ..verb.clone() }));
            for (group, resource) in
                self.groups.iter().flat_map(|group| self.resources.iter().map(move |it| (group, it)))
            {
                let part = Self { groups: one(group), resources: one(resource), ..verb.clone() };
                if self.names.is_empty() {
                    parts.push(part);
                } else {
                    parts.extend(self.names.iter().map(|name| Self { names: one(name), ..part.clone() }));
                }
            }
        }
        parts
    }

    /// Returns whether this rule covers a [part](Self::parts) of another.
    fn covers(&self, part: &Self) -> bool {
        let all = |mine: &[String], theirs: &[String]| has(mine, ALL) || theirs.iter().all(|one| has(mine, one));
        let resource = |wanted: &String| {
            let below = wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
            has_or_all(&self.resources, wanted) || below.is_some_and(|below| has(&self.resources, &below))
        };
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(resource)
            && (self.names.is_empty() || !part.names.is_empty() && part.names.iter().all(|name| has(&self.names, name)))
            && part.paths.iter().all(|path| self.paths.iter().any(|mine| covers_path(mine, path)))
    }

    /// Formats the rule as messages show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn description(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown =
            fields.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}:{}", quoted(list)));
        format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
    }
}

/// Formats a list as Go's `%q` does.
pub(crate) fn quoted(list: &[String]) -> String {
    let items: Vec<_> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

pub(super) fn covers_path(rule: &str, path: &str) -> bool {
    rule == ALL || rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// Returns the parts of `wanted` that `held` doesn't cover, merged by verb and formatted as in messages, one rule per
/// line. Empty if everything is covered.
pub(crate) fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> String {
    let mut lacking: Vec<PolicyRule> = Vec::new();
    let parts = wanted.iter().flat_map(PolicyRule::parts);
    for part in parts.filter(|part| !held.iter().any(|rule| rule.covers(part))) {
        let alike = |other: &&mut PolicyRule| {
            let PolicyRule { groups, resources, names, paths, .. } = &part;
            (groups, resources, names, paths) == (&other.groups, &other.resources, &other.names, &other.paths)
        };
        match lacking.iter_mut().find(alike) {
            Some(same) if has(&same.verbs, &part.verbs[0]) => {}
            Some(same) => same.verbs.extend(part.verbs),
            None => lacking.push(part),
        }
    }
    let lines: BTreeSet<_> = lacking.iter().map(PolicyRule::description).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> PolicyRule {
        PolicyRule::parse(&value)
    }

    fn attributes(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [verb, group, resource, subresource, name] = [verb, group, resource, subresource, name].map(String::from);
        Attributes { verb, group, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn a_rule_allows_the_resources_that_it_names() {
        let check = |resources: &[&str], names: &[&str], wanted: &str, name: &str, expect: bool| {
            let rule = rule(json!({
                "verbs": ["get"], "apiGroups": [""], "resources": resources, "resourceNames": names,
            }));
            assert_eq!(rule.allows(&attributes("get", "", wanted, name)), expect, "{rule:?} {wanted} {name}");
            assert!(
                !rule.allows(&attributes("list", "", wanted, name))
                    && !rule.allows(&attributes("get", "x", wanted, name))
            );
        };
        check(&["pods"], &[], "pods", "a", true);
        check(&["pods"], &[], "pods/log", "a", false);
        check(&["pods/log"], &[], "pods", "a", false);
        check(&["pods/log"], &[], "pods/log", "a", true);
        check(&["*"], &[], "pods/log", "a", true);
        check(&["*/log"], &[], "pods/log", "a", true);
        check(&["*/scale"], &[], "pods/log", "a", false);
        check(&["*/log"], &[], "pods", "a", false);
        check(&["pods"], &["a"], "pods", "a", true);
        check(&["pods"], &["a"], "pods", "b", false);
        check(&["pods"], &["a"], "pods", "", false);
        assert!(
            rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}))
                .allows(&attributes("x", "y", "z/w", ""))
        );
    }

    #[test]
    fn an_access_review_may_name_a_subresource_in_the_resource() {
        let check = |resources: &[&str], expect: bool| {
            let rule = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": resources}));
            let attributes = Attributes { resource: "pods/log".into(), ..attributes("get", "", "", "a") };
            assert_eq!(rule.allows(&attributes), expect, "{resources:?}");
        };
        check(&["pods/log"], true);
        check(&["*"], true);
        check(&["pods"], false);
        check(&["*/log"], false);
    }

    #[test]
    fn only_a_trailing_star_of_a_path_is_a_wildcard() {
        let check = |paths: &[&str], path: &str, expect: bool| {
            let attributes = Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
            let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": paths}));
            assert_eq!(rule.allows(&attributes), expect, "{paths:?} {path}");
        };
        check(&["/healthz"], "/healthz", true);
        check(&["/healthz"], "/healthz/a", false);
        check(&["/healthz/*"], "/healthz/a", true);
        check(&["/apis*"], "/apis/x", true);
        check(&["*"], "/", true);
        check(&["/a*b"], "/axb", false);
    }

    #[test]
    fn uncovered_parts_are_merged_by_verb() {
        let held = [rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]}))];
        let check = |wanted: Value, expect: &str| assert_eq!(uncovered(&held, &[rule(wanted)]), expect);
        check(
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "x/scale"], "resourceNames": ["a"]}),
            "",
        );
        check(
            json!({"verbs": ["get", "create", "delete"], "apiGroups": [""], "resources": ["pods"]}),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["create" "delete"]}"#,
        );
        check(json!({"verbs": ["*"], "nonResourceURLs": ["/x"]}), r#"{NonResourceURLs:["/x"], Verbs:["*"]}"#);
        assert_eq!(uncovered(&PolicyRule::full_authority(), &PolicyRule::full_authority()), "");
        let named = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}))];
        assert_ne!(uncovered(&named, &held), "", "one object is less than all");
    }
}
