//! The rules of a controller, from what it watches, owns, records and remembers.

use std::collections::BTreeSet;

use kubewright_apimachinery::description::{Controller, Description, Relation, Resource, Rule, Use, Verb};
use serde_json::Value;

use super::RoleError;

const READ: [Verb; 3] = [Verb::Get, Verb::List, Verb::Watch];
const WRITE: [Verb; 3] = [Verb::Create, Verb::Patch, Verb::Delete];

/// The built-in kinds without the status subresource that can be watched, by group, as of Kubernetes 1.36.
const WITHOUT_STATUS: [(&str, &[&str]); 12] = [
    ("", &["configmaps", "endpoints", "events", "limitranges", "podtemplates", "secrets", "serviceaccounts"]),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("apps", &["controllerrevisions"]),
    ("coordination.k8s.io", &["leasecandidates", "leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("events.k8s.io", &["events"]),
    ("networking.k8s.io", &["ingressclasses", "ipaddresses", "networkpolicies"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
    ("resource.k8s.io", &["deviceclasses", "resourceclaimtemplates", "resourceslices"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    (
        "storage.k8s.io",
        &["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattributesclasses"],
    ),
];

/// Returns the derived and declared rules of a controller, without the excluded ones.
pub(super) fn of(controller: &Controller, description: &Description) -> Result<Vec<Rule>, RoleError> {
    let mut rules: Vec<_> = controller.uses.iter().flat_map(|used| used_by(controller, used, description)).collect();
    if controller.workspace {
        rules.push(rule("", "configmaps", true, [Verb::Get, Verb::Create, Verb::Patch, Verb::Delete]));
    }
    // Each context has a recorder.
    rules.push(rule("events.k8s.io", "events", true, [Verb::Create, Verb::Patch]));
    rules.extend(controller.may.iter().cloned());
    for away in &controller.may_not {
        take(&mut rules, away)
            .then_some(())
            .ok_or_else(|| RoleError::Idle(controller.name.clone(), away.to_string()))?;
    }
    Ok(rules)
}

fn used_by(controller: &Controller, used: &Use, description: &Description) -> Vec<Rule> {
    let Resource { group, plural, namespaced, .. } = &used.resource;
    let on = |part: &str, verbs: &[Verb]| rule(group, &format!("{plural}{part}"), *namespaced, verbs.iter().copied());
    let mut rules = vec![on("", &READ)];
    match used.relation {
        Relation::For => {
            if has_status(&used.resource, description) {
                rules.push(on("/status", &[Verb::Patch]));
            }
            // Required by the admission plugin OwnerReferencesPermissionEnforcement, since children block the deletion
            // of their owner.
            rules.push(on("/finalizers", &[Verb::Update]));
            rules.extend(controller.finalizer.iter().map(|_| on("", &[Verb::Patch])));
        }
        Relation::Owns => rules.push(on("", &WRITE)),
        _ => {}
    }
    rules
}

/// Returns whether a kind has the status subresource. Kinds that neither the operator nor Kubernetes defines are
/// assumed to have it.
fn has_status(resource: &Resource, description: &Description) -> bool {
    let is_its = |(group, _): &&(&str, &[&str])| *group == &*resource.group;
    if WITHOUT_STATUS.iter().find(is_its).is_some_and(|(_, plurals)| plurals.contains(&&*resource.plural)) {
        return false;
    }
    let versions = description.kinds.iter().flat_map(|kind| &kind.versions);
    let mut of_it = versions.filter(|definition| {
        let spec = &definition["spec"];
        spec["group"] == *resource.group && spec["names"]["plural"] == *resource.plural
    });
    let parts = |definition: &Value| definition.pointer("/spec/versions").and_then(Value::as_array).cloned();
    let version = of_it
        .find_map(|definition| parts(definition)?.into_iter().find(|version| version["name"] == *resource.version));
    version.is_none_or(|version| version.pointer("/subresources/status").is_some())
}

fn rule(group: &str, resource: &str, namespaced: bool, verbs: impl IntoIterator<Item = Verb>) -> Rule {
    let mut rule = Rule::default();
    rule.group = group.into();
    rule.resource = resource.into();
    rule.namespaced = namespaced;
    rule.verbs = verbs.into_iter().collect();
    rule
}

/// Removes verbs from the rules of a resource. Returns whether each of them was there.
fn take(rules: &mut Vec<Rule>, away: &Rule) -> bool {
    let mut taken = BTreeSet::new();
    let same = |rule: &Rule| {
        (&rule.group, &rule.resource, &rule.names, &rule.url, rule.scope, &rule.role)
            == (&away.group, &away.resource, &away.names, &away.url, away.scope, &away.role)
    };
    for rule in rules.iter_mut().filter(|rule| same(rule)) {
        taken.extend(rule.verbs.intersection(&away.verbs).copied());
        rule.verbs.retain(|verb| !away.verbs.contains(verb));
    }
    rules.retain(|rule| !rule.verbs.is_empty());
    !taken.is_empty() && taken == away.verbs
}
