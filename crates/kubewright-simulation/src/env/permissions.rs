//! What an operator requests, and what its role grants.

use std::collections::BTreeSet;

use kubewright_apimachinery::decode::yaml_documents;
use kubewright_cluster::faults::Faults;
use serde_json::Value;

/// Returns the permissions that the requests so far required, as `group resource verb`, with `-` for the core group.
pub fn needed(faults: &Faults) -> BTreeSet<String> {
    let seen = faults.requests().into_iter().map(|seen| seen.request);
    seen.map(|it| permission(&it.group, &it.resource, &format!("{:?}", it.verb).to_lowercase())).collect()
}

/// Returns the permissions that the roles of a manifest grant, in the form of [`needed`].
///
/// # Panics
/// If the text isn't YAML.
pub fn granted(roles: &str) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    for role in yaml_documents(roles).unwrap() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    granted.extend(texts(&rule["verbs"]).map(|verb| permission(group, resource, verb)));
                }
            }
        }
    }
    granted
}

fn permission(group: &str, resource: &str, verb: &str) -> String {
    let group = if group.is_empty() { "-" } else { group };
    format!("{group} {resource} {verb}")
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_of_a_rule_is_granted() {
        let role = "{kind: ClusterRole, rules: [{apiGroups: [\"\", apps], resources: [pods], verbs: [get, list]}]}";
        let granted: Vec<_> = granted(role).into_iter().collect();
        assert_eq!(granted, ["- pods get", "- pods list", "apps pods get", "apps pods list"]);
    }
}
