//! Aggregated cluster roles, which take their rules from other roles selected by label
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step},
    value::{is_deleting, list},
};
use crate::object_client::ObjectPath;

const ROLE: Kind = Kind { group: "rbac.authorization.k8s.io", kind: "ClusterRole", plural: "clusterroles" };

/// The field manager of the rules.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// All cluster roles, by name.
#[derive(Debug, Default)]
pub(crate) struct Aggregation {
    roles: BTreeMap<String, Arc<Value>>,
}

impl Controller for Aggregation {
    fn reset(&mut self) {
        self.roles.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if !ROLE.is_of(change) {
            return Vec::new();
        }
        self.learn(&change.object, change.kind == ChangeKind::Deleted)
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(role) = self.roles.get(&key.name).filter(|role| is_aggregated(role) && !is_deleting(role)) else {
            return Plan::default();
        };
        let mut plan = Plan::of(&ROLE, role);
        let rules = self.rules(role);
        if list(role, "/rules") != rules {
            let address = ObjectPath { namespace: None, ..ROLE.address("", &key.name) };
            let config = json!({
                "apiVersion": ROLE.api_version(), "kind": ROLE.kind, "metadata": {"name": key.name}, "rules": rules,
            });
            plan.steps.push(Step::Apply(address, MANAGER, config));
        }
        plan
    }
}

fn is_aggregated(role: &Value) -> bool {
    !role["aggregationRule"].is_null()
}

impl Aggregation {
    /// Processes a change of a role. Any aggregated role may select it.
    fn learn(&mut self, role: &Arc<Value>, gone: bool) -> Vec<Key> {
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        if gone {
            self.roles.remove(name);
        } else {
            self.roles.insert(name.into(), role.clone());
        }
        let aggregated = self.roles.iter().filter(|(_, role)| is_aggregated(role));
        aggregated.map(|(name, _)| Key { namespace: String::new(), name: name.clone() }).collect()
    }

    /// Returns the rules of all roles that the role selects, ordered by role name, without duplicates.
    fn rules(&self, role: &Value) -> Vec<Value> {
        let mut rules: Vec<Value> = Vec::new();
        for selector in list(role, "/aggregationRule/clusterRoleSelectors") {
            let Ok(selector) = LabelSelector::from_object(selector) else { continue };
            let others = self.roles.values().filter(|other| other["metadata"]["name"] != role["metadata"]["name"]);
            for part in others.filter(|other| selector.matches_labels(&other["metadata"]["labels"])) {
                for rule in list(part, "/rules") {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_the_rules_of_those_it_selects() {
        let mut roles = Aggregation::default();
        let part = |name: &str, labels: Value, verb: &str| {
            Arc::new(json!({"metadata": {"name": name, "labels": labels}, "rules": [{"verbs": [verb]}]}))
        };
        let selectors = json!([{"matchLabels": {"for": "all"}}, {"matchLabels": {"and": "more"}}]);
        let whole = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        roles.learn(&part("b", json!({"for": "all", "and": "more"}), "list"), false);
        roles.learn(&part("a", json!({"for": "all"}), "get"), false);
        roles.learn(&part("c", json!({}), "delete"), false);
        let keys = roles.learn(&Arc::new(whole), false);
        assert_eq!(keys, [Key { namespace: String::new(), name: "all".into() }]);
        let plan = roles.decide(&keys[0], Timestamp::UNIX_EPOCH);
        let rules = json!([{"verbs": ["get"]}, {"verbs": ["list"]}]);
        let [Step::Apply(address, MANAGER, config)] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!((&address.namespace, &config["rules"]), (&None, &rules));
        let mut done = (*roles.roles["all"]).clone();
        done["rules"] = rules;
        roles.learn(&Arc::new(done), false);
        assert_eq!(roles.decide(&keys[0], Timestamp::UNIX_EPOCH).steps, []);
        roles.learn(&part("a", json!({"for": "all"}), "get"), true);
        assert_eq!(roles.decide(&keys[0], Timestamp::UNIX_EPOCH).steps.len(), 1);
    }
}
