//! Aggregated cluster roles, which take their rules from other roles selected by label
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{Change, ChangeKind, StoredObject};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step},
    value::{is_deleting, list, text},
};
use crate::object_client::ObjectPath;

const ROLE: Kind = Kind { group: "rbac.authorization.k8s.io", kind: "ClusterRole", plural: "clusterroles" };

/// The field that aggregated roles have.
const RULE: &str = "aggregationRule";

/// The field manager of the rules.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// All cluster roles, by name. Those that others select are parsed when they are needed.
#[derive(Debug, Default)]
pub(crate) struct Aggregation {
    roles: BTreeMap<String, StoredObject>,
    /// Those that have an aggregation rule.
    aggregated: BTreeMap<String, Arc<Value>>,
}

impl Controller for Aggregation {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if !ROLE.is_of(change) {
            return Vec::new();
        }
        let gone = change.kind == ChangeKind::Deleted;
        // Most roles needn't be parsed.
        let aggregated = change.stored.mentions(RULE).then(|| change.object()).filter(|role| !role[RULE].is_null());
        self.learn(text(&change.stored.outline(), "/metadata/name"), &change.stored, aggregated.filter(|_| !gone), gone)
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(role) = self.aggregated.get(&key.name).filter(|role| !is_deleting(role)) else {
            return Plan::default();
        };
        let mut plan = Plan::of(&ROLE, role);
        let rules = self.rules(role);
        if list(role, "/rules") != rules {
            let address = ObjectPath { namespace: None, ..ROLE.address("", &key.name) };
            let config = json!({
                "apiVersion": ROLE.api_version(), "kind": ROLE.kind, "metadata": {"name": key.name}, "rules": rules,
            });
            plan.steps.push(Step::Apply(address, "", MANAGER, config));
        }
        plan
    }
}

impl Aggregation {
    /// Processes a change of a role, which is passed again if it is an aggregated one. Any aggregated role may select
    /// it.
    fn learn(&mut self, name: &str, role: &StoredObject, aggregated: Option<&Arc<Value>>, gone: bool) -> Vec<Key> {
        self.roles.remove(name);
        self.aggregated.remove(name);
        if !gone {
            self.roles.insert(name.into(), role.clone());
        }
        if let Some(role) = aggregated {
            self.aggregated.insert(name.into(), role.clone());
        }
        self.aggregated.keys().map(|name| Key { namespace: String::new(), name: name.clone() }).collect()
    }

    /// Returns the rules of all roles that the role selects, ordered by role name, without duplicates.
    fn rules(&self, role: &Value) -> Vec<Value> {
        let mut rules: Vec<Value> = Vec::new();
        for selector in list(role, "/aggregationRule/clusterRoleSelectors") {
            let Ok(selector) = LabelSelector::from_object(selector) else { continue };
            let others = self.roles.iter().filter(|(name, _)| role["metadata"]["name"] != **name);
            for (_, part) in others.filter(|(_, other)| selector.matches(|key| other.label(key))) {
                for rule in list(&part.value(), "/rules") {
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
        let part = |name: &str, labels: Value, verb: &str| json!({"metadata": {"name": name, "labels": labels}, "rules": [{"verbs": [verb]}]});
        fn learn(roles: &mut Aggregation, role: Value, gone: bool) -> Vec<Key> {
            let aggregated = (!gone && !role[RULE].is_null()).then(|| Arc::new(role.clone()));
            roles.learn(text(&role, "/metadata/name"), &role.clone().into(), aggregated.as_ref(), gone)
        }
        let selectors = json!([{"matchLabels": {"for": "all"}}, {"matchLabels": {"and": "more"}}]);
        let whole = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        learn(&mut roles, part("b", json!({"for": "all", "and": "more"}), "list"), false);
        learn(&mut roles, part("a", json!({"for": "all"}), "get"), false);
        learn(&mut roles, part("c", json!({}), "delete"), false);
        let keys = learn(&mut roles, whole.clone(), false);
        assert_eq!(keys, [Key { namespace: String::new(), name: "all".into() }]);
        let plan = roles.decide(&keys[0], Timestamp::UNIX_EPOCH);
        let rules = json!([{"verbs": ["get"]}, {"verbs": ["list"]}]);
        let [Step::Apply(address, "", MANAGER, config)] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!((&address.namespace, &config["rules"]), (&None, &rules));
        let mut done = whole;
        done["rules"] = rules;
        learn(&mut roles, done, false);
        assert_eq!(roles.decide(&keys[0], Timestamp::UNIX_EPOCH).steps, []);
        learn(&mut roles, part("a", json!({"for": "all"}), "get"), true);
        assert_eq!(roles.decide(&keys[0], Timestamp::UNIX_EPOCH).steps.len(), 1);
    }
}
