//! The permissions that a service account uses, for tests that an operator's role grants neither too little nor too
//! much.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::{Api, ResourceExt, api::ListParams};
use kubewright_apiserver::Attributes;

use crate::Cluster;

/// The permissions of a service account, each as `group resource verb`, with `-` for the core group, or as `path verb`.
/// Namespaces and object names are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RightsUsage {
    /// The permissions that were denied.
    pub denied: BTreeSet<String>,
    /// The permissions that were used.
    pub used: BTreeSet<String>,
    /// The permissions that the account's roles grant.
    pub granted: BTreeSet<String>,
}

impl RightsUsage {
    /// Returns the permissions that were granted but not used. One with `*` is used if any permission that it includes
    /// is.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let is_used = |granted: &&String| {
            self.used.contains(*granted)
                || granted.contains('*') && self.used.iter().any(|used| includes(granted, used))
        };
        self.granted.iter().filter(move |granted| !is_used(granted)).map(String::as_str)
    }
}

impl Cluster {
    /// Returns the permissions that a service account has and those that it has used so far. Roles that are bound to
    /// groups of accounts are ignored.
    ///
    /// ```
    /// # use kubewright_cluster::{Cluster, Pods};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
    /// let rights = cluster.rights_of("cow-system", "cow-controller-manager").await?;
    /// assert!(rights.denied.is_empty(), "the operator was denied {:?}", rights.denied);
    /// assert_eq!(rights.unused().collect::<Vec<_>>(), Vec::<&str>::new(), "its role allows too much");
    /// # cluster.shutdown().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If roles and bindings can't be listed.
    pub async fn rights_of(&self, namespace: &str, account: &str) -> Result<RightsUsage, kube::Error> {
        let usage = self.api().usage(&format!("system:serviceaccount:{namespace}:{account}"));
        let tried = |attempts: &BTreeMap<Attributes, u64>| {
            let right = |attempt: &Attributes| match attempt.path.as_str() {
                "" => right(&attempt.group, &attempt.full_resource(), &attempt.verb),
                path => format!("{path} {}", attempt.verb),
            };
            attempts.keys().map(right).collect()
        };
        let granted = self.granted(namespace, account).await?;
        Ok(RightsUsage { denied: tried(&usage.denied), used: tried(&usage.allowed), granted })
    }

    async fn granted(&self, namespace: &str, account: &str) -> Result<BTreeSet<String>, kube::Error> {
        let (client, all) = (self.client(), ListParams::default());
        let roles = Api::<Role>::all(client.clone()).list(&all).await?.items;
        let cluster_roles = Api::<ClusterRole>::all(client.clone()).list(&all).await?.items;
        let rules_of = |reference: &RoleRef, place: Option<String>| -> Vec<PolicyRule> {
            let rules = match reference.kind.as_str() {
                "Role" => roles
                    .iter()
                    .find(|role| role.name_any() == reference.name && role.namespace() == place)
                    .and_then(|role| role.rules.clone()),
                _ => cluster_roles
                    .iter()
                    .find(|role| role.name_any() == reference.name)
                    .and_then(|role| role.rules.clone()),
            };
            rules.unwrap_or_default()
        };
        let is_it = |subjects: &Option<Vec<Subject>>| {
            subjects.iter().flatten().any(|subject| {
                subject.kind == "ServiceAccount"
                    && subject.name == account
                    && subject.namespace.as_deref() == Some(namespace)
            })
        };
        let mut rules = Vec::new();
        for binding in Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await? {
            rules.extend(is_it(&binding.subjects).then(|| rules_of(&binding.role_ref, None)).into_iter().flatten());
        }
        for binding in Api::<RoleBinding>::all(client).list(&all).await? {
            let of_it = is_it(&binding.subjects).then(|| rules_of(&binding.role_ref, binding.namespace()));
            rules.extend(of_it.into_iter().flatten());
        }
        Ok(rules.iter().flat_map(rights).collect())
    }
}

/// Returns whether a permission with `*` includes another one.
fn includes(granted: &str, used: &str) -> bool {
    let parts = |right: &str| right.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (granted, used) = (parts(granted), parts(used));
    let part = |(granted, used): (&String, &String)| {
        let of_all = granted.strip_prefix("*/").zip(used.split_once('/'));
        granted == "*" || granted == used || of_all.is_some_and(|(granted, (_, used))| granted == used)
    };
    granted.len() == used.len() && granted.iter().zip(&used).all(part)
}

/// Returns the permissions that a rule grants.
fn rights(rule: &PolicyRule) -> Vec<String> {
    let mut rights = Vec::new();
    for verb in &rule.verbs {
        rights.extend(rule.non_resource_urls.iter().flatten().map(|path| format!("{path} {verb}")));
        for group in rule.api_groups.iter().flatten() {
            rights.extend(rule.resources.iter().flatten().map(|resource| right(group, resource, verb)));
        }
    }
    rights
}

fn right(group: &str, resource: &str, verb: &str) -> String {
    format!("{} {resource} {verb}", if group.is_empty() { "-" } else { group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_for_all_is_used_by_any() {
        let rights = |all: &[&str]| all.iter().map(|right| (*right).to_owned()).collect();
        let granted = ["* * get", "* */scale patch", "apps * *", "- secrets get", "/metrics get", "- * delete"];
        let used = ["apps deployments get", "apps deployments/scale patch", "- pods get", "/metrics get"];
        let usage = RightsUsage { denied: BTreeSet::new(), used: rights(&used), granted: rights(&granted) };
        assert_eq!(usage.unused().collect::<Vec<_>>(), ["- * delete", "- secrets get"]);
    }
}
