//! Webhook configurations, generated from the description of a manager.
//!
//! They are written to `config/webhook/manifests.yaml` of an operator. In development,
//! [`WebhookServer`](super::WebhookServer) installs the same with a URL. The rotation of self-managed certificates
//! needs these permissions:
//!
//! | role | resources | verbs |
//! |---|---|---|
//! | Role in the operator's namespace | `secrets` | `create` |
//! | the same, `resourceNames: [<name>-webhook-server-cert]` | `secrets` | `get`, `update` |
//! | ClusterRole, `resourceNames: [<name>-mutating-webhook-configuration, <name>-validating-webhook-configuration]` | `mutatingwebhookconfigurations`, `validatingwebhookconfigurations` of `admissionregistration.k8s.io` | `get`, `patch` |
//!
//! | with [conversions](crate::conversion): ClusterRole, `resourceNames: [<plural>.<group>]` of each | `customresourcedefinitions` of `apiextensions.k8s.io` | `get`, `patch` |
//!
//! Certificates from a directory need no permissions. With a URL, `create` and `delete` of the configurations are
//! needed too.

use std::fmt;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
};
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{AdmissionRule, Names, Policies};
use crate::object::KindName;

/// The path of all conversions, as in controller-runtime.
pub const CONVERT: &str = "/convert";

/// The role of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It may change objects.
    Mutating,
    /// It may deny requests.
    Validating,
}

impl Role {
    /// Returns the verb with which paths begin.
    fn verb(self) -> &'static str {
        match self {
            Self::Mutating => "mutate",
            Self::Validating => "validate",
        }
    }
}

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// A creation.
    Create,
    /// An update.
    Update,
    /// A deletion.
    Delete,
    /// A connection, such as of `pods/exec`. Only an [`AdmissionWebhook`](super::AdmissionWebhook) is called for it.
    Connect,
}

/// The name in rules.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        })
    }
}

/// The description of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookDescription {
    /// Its name in a configuration.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its path on the server.
    pub path: String,
    /// The requests for which it is called.
    pub rules: Vec<AdmissionRule>,
    /// The policies by which it is called.
    pub policies: Policies,
}

impl WebhookDescription {
    fn rules(&self) -> Vec<RuleWithOperations> {
        self.rules.iter().map(AdmissionRule::configured).collect()
    }
}

/// Returns the name of a kind's webhook in a configuration, as kubebuilder names it, such as `mcronjob-v1`, in the
/// domain of the group, since a manager may have two kinds of the same name.
pub(super) fn name(role: Role, kind: &KindName) -> String {
    let KindName { group, version, kind, .. } = kind;
    let domain = match group.as_str() {
        "" => "core.k8s.io".into(),
        group if group.contains('.') => group.to_owned(),
        group => format!("{group}.k8s.io"),
    };
    format!("{}{}-{version}.{domain}", &role.verb()[..1], kind.to_lowercase())
}

/// The target at which the API server calls the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Service of the cluster, on port 443.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A URL without a path, such as `https://127.0.0.1:9443`: for an operator that runs outside of the cluster.
    Url(String),
}

impl Target {
    fn client(&self, path: &str, authority: Option<&str>) -> WebhookClientConfig {
        let (service, url) = match self {
            Self::Service { namespace, name } => {
                let (namespace, name) = (namespace.clone(), name.clone());
                (Some(ServiceReference { namespace, name, path: Some(path.into()), port: None }), None)
            }
            Self::Url(url) => (None, Some(format!("{}{path}", url.trim_end_matches('/')))),
        };
        let ca_bundle = authority.map(|authority| ByteString(authority.as_bytes().to_vec()));
        WebhookClientConfig { ca_bundle, service, url }
    }
}

/// Returns the `spec.conversion` of a CustomResourceDefinition; `authority` as for [`configurations`].
pub fn conversion(target: &Target, authority: Option<&str>) -> apiextensions::CustomResourceConversion {
    let WebhookClientConfig { ca_bundle, service, url } = target.client(CONVERT, authority);
    let service = service.map(|ServiceReference { name, namespace, path, port }| apiextensions::ServiceReference {
        name,
        namespace,
        path,
        port,
    });
    let client = apiextensions::WebhookClientConfig { ca_bundle, service, url };
    let webhook =
        apiextensions::WebhookConversion { client_config: Some(client), conversion_review_versions: vec!["v1".into()] };
    apiextensions::CustomResourceConversion { strategy: "Webhook".into(), webhook: Some(webhook) }
}

/// The configurations of a manager's webhooks. Empty ones are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configurations {
    /// The defaulters.
    pub mutating: Option<MutatingWebhookConfiguration>,
    /// The validators.
    pub validating: Option<ValidatingWebhookConfiguration>,
}

/// Returns kubebuilder's path of a webhook: `/mutate-batch-tutorial-kubebuilder-io-v1-cronjob`.
pub fn path(role: Role, kind: &KindName) -> String {
    format!("/{}-{}-{}-{}", role.verb(), kind.group.replace('.', "-"), kind.version, kind.kind.to_lowercase())
}

/// Returns the configurations of webhooks. `name` is that of [`WebhookServer::name`](super::WebhookServer::name), or
/// empty if something else, such as kustomize, adds a prefix. `authority` is the certificate authority of the server in
/// PEM; without it, whatever manages the certificate adds it.
///
/// Each is called by its [`Policies`]. By default, a request is refused if its webhook can't be called within ten
/// seconds.
pub fn configurations(
    webhooks: &[WebhookDescription],
    name: &str,
    target: &Target,
    authority: Option<&str>,
) -> Configurations {
    let names = Names::of(name);
    let metadata = |name: String| ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    let of = |role| webhooks.iter().filter(move |webhook| webhook.role == role);
    let versions = || vec!["v1".to_owned()];
    let mutating: Vec<_> = of(Role::Mutating)
        .map(|webhook| MutatingWebhook {
            admission_review_versions: versions(),
            client_config: target.client(&webhook.path, authority),
            failure_policy: Some(webhook.policies.failure.to_string()),
            match_conditions: webhook.policies.conditions(),
            match_policy: webhook.policies.match_policy(),
            name: webhook.name.clone(),
            namespace_selector: webhook.policies.namespaces.clone().map(Into::into),
            object_selector: webhook.policies.objects.clone().map(Into::into),
            reinvocation_policy: webhook.policies.reinvoke.then(|| "IfNeeded".into()),
            rules: Some(webhook.rules()),
            side_effects: webhook.policies.side_effects().into(),
            timeout_seconds: Some(webhook.policies.timeout_seconds()),
        })
        .collect();
    let validating: Vec<_> = of(Role::Validating)
        .map(|webhook| ValidatingWebhook {
            admission_review_versions: versions(),
            client_config: target.client(&webhook.path, authority),
            failure_policy: Some(webhook.policies.failure.to_string()),
            match_conditions: webhook.policies.conditions(),
            match_policy: webhook.policies.match_policy(),
            name: webhook.name.clone(),
            namespace_selector: webhook.policies.namespaces.clone().map(Into::into),
            object_selector: webhook.policies.objects.clone().map(Into::into),
            rules: Some(webhook.rules()),
            side_effects: webhook.policies.side_effects().into(),
            timeout_seconds: Some(webhook.policies.timeout_seconds()),
        })
        .collect();
    Configurations {
        mutating: (!mutating.is_empty())
            .then(|| MutatingWebhookConfiguration { metadata: metadata(names.mutating()), webhooks: Some(mutating) }),
        validating: (!validating.is_empty()).then(|| ValidatingWebhookConfiguration {
            metadata: metadata(names.validating()),
            webhooks: Some(validating),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Expression;

    use super::*;
    use crate::webhook::FailurePolicy;

    fn webhook(group: &str, role: Role) -> WebhookDescription {
        let kind =
            KindName { group: group.into(), version: "v1".into(), kind: "CronJob".into(), plural: "cronjobs".into() };
        let (name, rules) = (name(role, &kind), vec![AdmissionRule::kind(&kind)]);
        WebhookDescription { name, path: path(role, &kind), role, rules, policies: Policies::default() }
    }

    #[test]
    fn names_and_paths_are_kubebuilders() {
        let webhook = webhook("batch.tutorial.kubebuilder.io", Role::Mutating);
        assert_eq!(webhook.path, "/mutate-batch-tutorial-kubebuilder-io-v1-cronjob");
        assert_eq!(webhook.name, "mcronjob-v1.batch.tutorial.kubebuilder.io");
        assert_eq!(super::tests::webhook("batch", Role::Validating).name, "vcronjob-v1.batch.k8s.io");
        assert_eq!(super::tests::webhook("", Role::Validating).path, "/validate--v1-cronjob");
    }

    #[test]
    fn all_conversions_use_the_same_path() {
        let service = Target::Service { namespace: "ns".into(), name: "svc".into() };
        let made = serde_json::to_value(conversion(&service, Some("PEM"))).unwrap();
        let service = serde_json::json!({"namespace": "ns", "name": "svc", "path": "/convert"});
        let webhook = serde_json::json!({
            "clientConfig": {"service": service, "caBundle": "UEVN"}, "conversionReviewVersions": ["v1"],
        });
        assert_eq!(made, serde_json::json!({"strategy": "Webhook", "webhook": webhook}));
    }

    #[test]
    fn policies_are_those_of_the_webhook() {
        let quiet = webhook("a.b", Role::Mutating);
        let policies = Policies {
            failure: FailurePolicy::Ignore,
            timeout: Duration::from_secs(90),
            has_side_effects: true,
            reinvoke: true,
            exact: true,
            namespaces: Some(Expression::Equal("team".into(), "a".into()).into()),
            objects: None,
            conditions: vec![("not-ours".into(), "request.userInfo.username != 'us'".into())],
        };
        let asked = WebhookDescription { policies, ..quiet.clone() };
        let target = Target::Url("https://a".into());
        let mut made = serde_json::to_value(configurations(&[quiet, asked], "n", &target, None).mutating).unwrap();
        let mut policies = |number: usize| {
            let mut webhook = made["webhooks"][number].take();
            for other in ["admissionReviewVersions", "clientConfig", "name", "rules"] {
                webhook.as_object_mut().unwrap().remove(other);
            }
            webhook
        };
        let usual = serde_json::json!({"failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 10});
        assert_eq!(policies(0), usual, "the API server sets its own defaults");
        let condition = serde_json::json!({"name": "not-ours", "expression": "request.userInfo.username != 'us'"});
        let expected = serde_json::json!({
            "failurePolicy": "Ignore", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 30, "matchPolicy": "Exact",
            "reinvocationPolicy": "IfNeeded", "matchConditions": [condition],
            "namespaceSelector": {"matchLabels": {"team": "a"}},
        });
        assert_eq!(policies(1), expected);
    }

    #[test]
    fn a_configuration_for_a_service_and_for_a_url() {
        let webhooks = [webhook("a.b", Role::Validating)];
        let service = Target::Service { namespace: "ns".into(), name: "svc".into() };
        let made = configurations(&webhooks, "cronjob", &service, None);
        assert_eq!(made.mutating, None);
        let made = serde_json::to_value(made.validating).unwrap();
        assert_eq!(made["metadata"]["name"], "cronjob-validating-webhook-configuration");
        let client =
            serde_json::json!({"service": {"namespace": "ns", "name": "svc", "path": "/validate-a-b-v1-cronjob"}});
        assert_eq!(made["webhooks"][0]["clientConfig"], client);
        let made = configurations(&webhooks, "cronjob", &Target::Url("https://127.0.0.1:9443/".into()), Some("PEM"));
        let made = serde_json::to_value(made.validating).unwrap();
        let client = serde_json::json!({"url": "https://127.0.0.1:9443/validate-a-b-v1-cronjob", "caBundle": "UEVN"});
        assert_eq!(made["webhooks"][0]["clientConfig"], client);
    }
}
