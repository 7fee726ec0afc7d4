//! Roles: what an operator may do, from what it says it does.

mod derive;
mod join;

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::description::{Description, Rule, Scope, Verb};
use serde_json::{Value, json};
use thiserror::Error;

use self::join::join;

/// What stands before the objects of a file.
pub(crate) struct Roles {
    /// The file.
    pub(crate) path: &'static str,
    /// A comment.
    pub(crate) comment: &'static str,
    /// Roles, and bindings of those that have none elsewhere.
    pub(crate) objects: Vec<Value>,
}

/// Why no role can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RoleError {
    /// A controller omits a rule that it doesn't have.
    #[error("controller {0} omits the rule to {1}, which its wiring doesn't imply: remove that rule from its .rbac(…)")]
    Idle(String, String),
    /// A creation or a list is limited to names.
    #[error(
        "the rule to {0} can't be limited to names, because the API server doesn't know the names of created and listed objects: declare it without resource_name"
    )]
    Named(String),
    /// An invalid path.
    #[error("invalid rule to {0}: a path begins with a slash, and has neither a subresource nor a namespace")]
    Url(String),
    /// A rule without a verb.
    #[error("the rule for {0:?} has no verb")]
    NoVerb(String),
}

/// Where roles are bound: the names of the scaffold.
const ACCOUNT: &str = "controller-manager";
/// The namespace before kustomize gives it its name.
const NAMESPACE: &str = "system";

/// The roles of an operator. `prefix` is what kustomize puts before the names of objects, which it doesn't do in rules;
/// `namespaced` gives it rights in its own namespace only.
///
/// # Errors
/// If a declaration can't be.
pub(crate) fn roles(description: &Description, prefix: &str, namespaced: bool) -> Result<Vec<Roles>, RoleError> {
    let mut rules = description.rights.clone();
    for controller in &description.controllers {
        rules.extend(derive::of(controller, description)?);
    }
    rules.iter().try_for_each(check)?;
    let mut files = vec![Roles {
        path: "config/rbac/role.yaml",
        comment: "# What the operator does, by its own account: kubewright manifests writes this file.\n",
        objects: main(rules, namespaced),
    }];
    let features = [
        (
            "leader-election",
            "leader-election-role",
            "config/rbac/leader_election_role.yaml",
            "# For --leader-elect, in the operator's own namespace.\n",
        ),
        (
            "metrics-auth",
            "metrics-auth-role",
            "config/rbac/metrics_auth_role.yaml",
            "# The metrics are for those whose token may get them: the operator asks the API server who that is.\n",
        ),
        (
            "metrics-reader",
            "metrics-reader",
            "config/rbac/metrics_reader_role.yaml",
            "# For whoever scrapes the metrics: bind it to their service account.\n",
        ),
        (
            "webhook",
            "webhook-role",
            "config/webhook/role.yaml",
            "# For the certificate that the operator makes for its webhooks; not needed with --webhook-cert-path. The names in rules are\n\
             # those that the objects have with the prefix of config/default.\n",
        ),
    ];
    for (feature, name, path, comment) in features {
        let Some(rules) = description.features.get(feature) else { continue };
        let (own, others): (Vec<_>, Vec<_>) =
            rules.iter().map(|rule| prefixed(rule, prefix)).partition(|rule| rule.scope == Scope::Own);
        let objects = [role(name, true, own), role(name, false, others)].into_iter().flatten().collect();
        files.push(Roles { path, comment, objects });
    }
    Ok(files)
}

/// The operator's main role and those it names, all bound but the main one, whose binding is the scaffold's.
fn main(rules: Vec<Rule>, namespaced: bool) -> Vec<Value> {
    let mut roles: BTreeMap<(String, bool), Vec<Rule>> = BTreeMap::from([((String::new(), namespaced), Vec::new())]);
    for rule in rules {
        let is_own = rule.scope == Scope::Own || namespaced && rule.namespaced;
        roles.entry((rule.role.clone(), is_own)).or_default().push(rule);
    }
    let mut objects = Vec::new();
    for ((name, is_own), rules) in roles {
        let is_bound_elsewhere = name.is_empty() && is_own == namespaced;
        let name = match (name.as_str(), is_own) {
            _ if is_bound_elsewhere => "manager-role",
            ("", true) => "manager-own-role",
            ("", false) => "manager-cluster-role",
            (name, _) => name,
        };
        let made = role(name, is_own, rules);
        match made {
            // Its binding would else lead nowhere.
            None if is_bound_elsewhere => objects.push(empty(name, is_own)),
            None => {}
            Some(made) => {
                objects.push(made);
                objects.extend((!is_bound_elsewhere).then(|| binding(name, is_own)));
            }
        }
    }
    objects
}

fn empty(name: &str, is_own: bool) -> Value {
    let (kind, metadata) = match is_own {
        true => ("Role", json!({"name": name, "namespace": NAMESPACE})),
        false => ("ClusterRole", json!({"name": name})),
    };
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": []})
}

fn role(name: &str, is_own: bool, rules: Vec<Rule>) -> Option<Value> {
    let mut role = empty(name, is_own);
    role["rules"] = Value::Array(join(rules));
    role["rules"].as_array().is_some_and(|rules| !rules.is_empty()).then_some(role)
}

fn binding(name: &str, is_own: bool) -> Value {
    let group = "rbac.authorization.k8s.io";
    let kind = if is_own { "Role" } else { "ClusterRole" };
    let mut binding = empty(&format!("{name}binding"), is_own);
    binding["kind"] = json!(format!("{kind}Binding"));
    binding["roleRef"] = json!({"apiGroup": group, "kind": kind, "name": name});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]);
    if let Some(binding) = binding.as_object_mut() {
        binding.remove("rules");
    }
    binding
}

fn prefixed(rule: &Rule, prefix: &str) -> Rule {
    let mut rule = rule.clone();
    // Definitions are named by their kind, which kustomize knows.
    if rule.group == "apiextensions.k8s.io" {
        return rule;
    }
    rule.names = rule.names.iter().map(|name| format!("{prefix}{name}")).collect();
    rule
}

fn check(rule: &Rule) -> Result<(), RoleError> {
    let unnamed = BTreeSet::from([Verb::Create, Verb::DeleteCollection, Verb::List, Verb::Watch]);
    // A subresource is made of an object that has a name.
    let has_name = rule.resource.contains('/');
    if rule.verbs.is_empty() {
        return Err(RoleError::NoVerb(rule.to_string().trim().into()));
    }
    if !rule.names.is_empty() && !has_name && !rule.verbs.is_disjoint(&unnamed) {
        return Err(RoleError::Named(rule.to_string()));
    }
    let is_path = rule.url.starts_with('/') && rule.resource.is_empty() && rule.names.is_empty();
    if !rule.url.is_empty() && (!is_path || rule.scope == Scope::Own) {
        return Err(RoleError::Url(rule.to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
