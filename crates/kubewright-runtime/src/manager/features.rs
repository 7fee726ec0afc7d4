//! RBAC rules for the manager's own features.

use std::collections::BTreeMap;

use kubewright_apimachinery::description::Rule;

use crate::{
    conversion::ConversionDescription,
    rbac::{PolicyRule, Verb},
    webhook::{Role, WebhookDescription},
};

/// Returns the rules of the manager's own features, by role: `leader-election`, `metrics-auth`, `metrics-reader` (for
/// clients that read the metrics) and, with webhooks or conversions, `webhook` (for self-managed certificates). Object
/// names are without the prefix that kustomize adds.
pub(super) fn rules(
    webhooks: &[WebhookDescription],
    conversions: &[ConversionDescription],
) -> BTreeMap<String, Vec<Rule>> {
    use Verb::{Create, Get, Patch, Update};
    let own = |rule: PolicyRule| rule.in_own_namespace().rule();
    let to = |group, resource, verbs: &[Verb]| PolicyRule::new(group, resource, true, verbs.to_vec());
    let review = |group, resource| PolicyRule::new(group, resource, false, [Create]).rule();
    let mut features = BTreeMap::from([
        ("leader-election", vec![own(to("coordination.k8s.io", "leases", &[Get, Create, Update]))]),
        (
            "metrics-auth",
            vec![
                review("authentication.k8s.io", "tokenreviews"),
                review("authorization.k8s.io", "subjectaccessreviews"),
            ],
        ),
        ("metrics-reader", vec![PolicyRule::non_resource_url("/metrics", [Get]).rule()]),
    ]);
    let secrets =
        [to("", "secrets", &[Create]), to("", "secrets", &[Get, Update]).resource_name("webhook-server-cert")];
    let kinds = [(Role::Mutating, "mutating"), (Role::Validating, "validating")].into_iter();
    let configurations = kinds.filter(|(role, _)| webhooks.iter().any(|webhook| webhook.role == *role));
    let configurations = configurations.map(|(_, kind)| {
        let resource = format!("{kind}webhookconfigurations");
        let rule = PolicyRule::new("admissionregistration.k8s.io", &resource, false, [Get, Patch]);
        rule.resource_name(&format!("{kind}-webhook-configuration")).rule()
    });
    let definitions = conversions.iter().map(|conversion| {
        let rule = PolicyRule::new("apiextensions.k8s.io", "customresourcedefinitions", false, [Get, Patch]);
        rule.resource_name(&conversion.definition()).rule()
    });
    if !webhooks.is_empty() || !conversions.is_empty() {
        let rules = secrets.into_iter().map(own).chain(configurations).chain(definitions);
        features.insert("webhook", rules.collect());
    }
    features.into_iter().map(|(name, rules)| (name.to_owned(), rules)).collect()
}
