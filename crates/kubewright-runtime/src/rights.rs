//! What an operator may do beyond what its wiring says: typed, so that what is misspelt doesn't compile.
//!
//! `kubewright manifests` makes the operator's role of what its controllers watch, own, record and remember. That is:
//!
//! | wiring | rights |
//! |---|---|
//! | the kind that is reconciled | `get`, `list`, `watch`; `patch` of its `status`; `update` of its `finalizers`, which clusters ask for before a child may hold up its owner's deletion; `patch` if the reconciler has a finalizer |
//! | [`Controller::owns`] | `get`, `list`, `watch`, `create`, `patch`, `delete` |
//! | [`Controller::watches`], [`Controller::reads`] | `get`, `list`, `watch` |
//! | [`Controller::workspace`] | `get`, `create`, `patch`, `delete` of config maps |
//! | any controller | `create`, `patch` of events |
//! | [`Migrator::runnable`] | what [`Migrator::rights`] says |
//!
//! [`Controller::may`] adds to it, [`Controller::may_not`] takes away what a controller never does:
//!
//! ```
//! # use k8s_openapi::api::{apps::v1::{Deployment, ReplicaSet}, core::v1::{Pod, Secret}};
//! # use kubewright_runtime::controller::Controller;
//! use kubewright_runtime::rights::{Rights, Subresource, Verb};
//!
//! # fn example(controller: Controller<ReplicaSet>) -> Controller<ReplicaSet> {
//! controller
//!     .owns::<Deployment>()
//!     .may_not(Rights::to::<Deployment>([Verb::Delete]))
//!     .may(Rights::to::<Secret>([Verb::Get]).named("token"))
//!     .may(Rights::to::<Pod>([Verb::Create]).on(Subresource::Eviction))
//! # }
//! ```
//!
//! At run time none of it has an effect: the API server knows the roles that are bound. [`Manager::may`] is for what is done
//! beside the controllers.
//!
//! [`Controller::owns`]: crate::controller::Controller::owns
//! [`Controller::watches`]: crate::controller::Controller::watches
//! [`Controller::reads`]: crate::controller::Controller::reads
//! [`Controller::workspace`]: crate::controller::Controller::workspace
//! [`Controller::may`]: crate::controller::Controller::may
//! [`Controller::may_not`]: crate::controller::Controller::may_not
//! [`Migrator::runnable`]: crate::conversion::Migrator::runnable
//! [`Migrator::rights`]: crate::conversion::Migrator::rights
//! [`Manager::may`]: crate::manager::Manager::may

use std::{collections::BTreeMap, fmt};

pub use kubewright_apimachinery::description::Verb;
use kubewright_apimachinery::description::{Rule, Scope};

use crate::{
    conversion::ConversionDescription,
    object::{KindName, Object},
    webhook::{Role, WebhookDescription},
};

/// Some verbs on one resource or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights(Rule);

/// What is part of a resource, and has rights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subresource {
    /// `status`
    Status,
    /// `finalizers`: to let a child hold up the deletion of its owner, where a cluster asks for that.
    Finalizers,
    /// `scale`
    Scale,
    /// `eviction` of pods.
    Eviction,
    /// `binding` of pods to nodes.
    Binding,
    /// `log` of pods.
    Log,
    /// `exec` in pods.
    Exec,
    /// `attach` to pods.
    Attach,
    /// `portforward` to pods.
    PortForward,
    /// `proxy` of pods, services and nodes.
    Proxy,
    /// `ephemeralcontainers` of pods.
    EphemeralContainers,
    /// `resize` of pods.
    Resize,
    /// `token` of service accounts.
    Token,
    /// `approval` of certificate signing requests.
    Approval,
}

impl fmt::Display for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "status",
            Self::Finalizers => "finalizers",
            Self::Scale => "scale",
            Self::Eviction => "eviction",
            Self::Binding => "binding",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Token => "token",
            Self::Approval => "approval",
        })
    }
}

/// A resource for which there is no type. Make it in a constant, so that a name that can't be one doesn't compile; whether there
/// is such a resource, only the cluster knows.
///
/// ```
/// use kubewright_runtime::rights::{NamedResource, Rights, Verb};
///
/// const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "certificates");
///
/// let rights = Rights::to_resource(CERTIFICATES, [Verb::Get, Verb::Create]);
/// ```
///
/// ```compile_fail
/// # use kubewright_runtime::rights::NamedResource;
/// const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "Certificates");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedResource {
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
}

impl NamedResource {
    /// A resource whose objects live in namespaces: its group, empty for the core group, and what many are called.
    ///
    /// # Panics
    /// If one of them is no name: at compile time, in a constant.
    pub const fn namespaced(group: &'static str, plural: &'static str) -> Self {
        assert!(group.is_empty() || is_name(group, true), "the group must be a DNS name in lower case");
        assert!(is_name(plural, false), "the resource must be its plural in lower case, such as certificates");
        Self { group, plural, namespaced: true }
    }

    /// A resource whose objects live in no namespace.
    ///
    /// # Panics
    /// As [`NamedResource::namespaced`].
    pub const fn cluster(group: &'static str, plural: &'static str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, plural) }
    }
}

/// Whether a text is made of letters, digits and dashes, with dots between if it may have several parts, each beginning and ending with
/// a letter or digit.
const fn is_name(text: &str, has_dots: bool) -> bool {
    let bytes = text.as_bytes();
    let (mut index, mut after_letter) = (0, false);
    while index < bytes.len() {
        let is_letter = bytes[index].is_ascii_lowercase() || bytes[index].is_ascii_digit();
        let is_between = (bytes[index] == b'-' || bytes[index] == b'.' && has_dots) && index > 0;
        // A dash may follow a dash, a dot only a letter.
        if !is_letter && (!is_between || (bytes[index] == b'.' || bytes[index - 1] == b'.') && !after_letter) {
            return false;
        }
        after_letter = is_letter;
        index += 1;
    }
    after_letter && text.len() < 254
}

impl Rights {
    /// Rights to objects of kind `K`.
    pub fn to<K: Object>(verbs: impl IntoIterator<Item = Verb>) -> Self {
        let kind = KindName::of::<K>();
        Self::new(&kind.group, &kind.plural, K::is_namespaced(), verbs)
    }

    /// Rights to objects for whose kind there is no type.
    pub fn to_resource(resource: NamedResource, verbs: impl IntoIterator<Item = Verb>) -> Self {
        Self::new(resource.group, resource.plural, resource.namespaced, verbs)
    }

    /// Rights to a path that is none of a resource, such as `/metrics`, or all below one: `/healthz/*`.
    pub fn to_url(url: &str, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let mut rights = Self::new("", "", false, verbs);
        rights.0.url = url.into();
        rights
    }

    pub(crate) fn new(group: &str, resource: &str, namespaced: bool, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let mut rule = Rule::default();
        rule.group = group.into();
        rule.resource = resource.into();
        rule.namespaced = namespaced;
        rule.verbs = verbs.into_iter().collect();
        Self(rule)
    }

    /// To a part of the resource instead.
    pub fn on(mut self, subresource: Subresource) -> Self {
        let resource = self.0.resource.split('/').next().unwrap_or_default();
        self.0.resource = format!("{resource}/{subresource}");
        self
    }

    /// Only to the object of this name; called again, to that one too. Creations and lists can't be told by name.
    pub fn named(mut self, name: &str) -> Self {
        self.0.names.insert(name.into());
        self
    }

    /// Only in the namespace that the operator itself runs in.
    pub fn in_own_namespace(mut self) -> Self {
        self.0.scope = Scope::Own;
        self
    }

    /// In a role of this name, instead of the operator's main one; it is bound to the operator too.
    pub fn role(mut self, name: &str) -> Self {
        self.0.role = name.into();
        self
    }

    pub(crate) fn rule(&self) -> Rule {
        self.0.clone()
    }
}

/// What the manager's own features need, for roles of their own: `leader-election`, `metrics-auth`, `metrics-reader` (for whoever reads
/// them) and, if there are webhooks or conversions, `webhook` (for certificates that it makes itself). Names of objects lack what kustomize puts before them.
pub(crate) fn of_features(
    webhooks: &[WebhookDescription],
    conversions: &[ConversionDescription],
) -> BTreeMap<String, Vec<Rule>> {
    use Verb::{Create, Get, Patch, Update};
    let own = |rights: Rights| rights.in_own_namespace().rule();
    let to = |group, resource, verbs: &[Verb]| Rights::new(group, resource, true, verbs.to_vec());
    let review = |group, resource| Rights::new(group, resource, false, [Create]).rule();
    let mut features = BTreeMap::from([
        ("leader-election", vec![own(to("coordination.k8s.io", "leases", &[Get, Create, Update]))]),
        (
            "metrics-auth",
            vec![
                review("authentication.k8s.io", "tokenreviews"),
                review("authorization.k8s.io", "subjectaccessreviews"),
            ],
        ),
        ("metrics-reader", vec![Rights::to_url("/metrics", [Get]).rule()]),
    ]);
    let secrets = [to("", "secrets", &[Create]), to("", "secrets", &[Get, Update]).named("webhook-server-cert")];
    let kinds = [(Role::Mutating, "mutating"), (Role::Validating, "validating")].into_iter();
    let configurations = kinds.filter(|(role, _)| webhooks.iter().any(|webhook| webhook.role == *role));
    let configurations = configurations.map(|(_, kind)| {
        let resource = format!("{kind}webhookconfigurations");
        let rights = Rights::new("admissionregistration.k8s.io", &resource, false, [Get, Patch]);
        rights.named(&format!("{kind}-webhook-configuration")).rule()
    });
    let definitions = conversions.iter().map(|conversion| {
        let rights = Rights::new("apiextensions.k8s.io", "customresourcedefinitions", false, [Get, Patch]);
        rights.named(&conversion.definition()).rule()
    });
    if !webhooks.is_empty() || !conversions.is_empty() {
        let rules = secrets.into_iter().map(own).chain(configurations).chain(definitions);
        features.insert("webhook", rules.collect());
    }
    features.into_iter().map(|(name, rules)| (name.to_owned(), rules)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Pod};

    use super::*;

    #[test]
    fn rights_say_what_they_are() {
        let evict = Rights::to::<Pod>([Verb::Create]).on(Subresource::Eviction).rule();
        assert_eq!((evict.to_string().as_str(), evict.namespaced), ("create pods/eviction", true));
        let two = Rights::to::<Namespace>([Verb::Patch, Verb::Get]).named("b").named("a").rule();
        assert_eq!((two.to_string().as_str(), two.namespaced), ("get, patch namespaces \"a\" \"b\"", false));
        assert_eq!(Rights::to_url("/metrics", [Verb::Get]).rule().to_string(), "get /metrics");
        let certificates = NamedResource::cluster("cert-manager.io", "clusterissuers");
        let own = Rights::to_resource(certificates, [Verb::Get]).in_own_namespace().role("issuers").rule();
        assert_eq!(
            (own.to_string().as_str(), own.scope, &*own.role),
            ("get clusterissuers.cert-manager.io", Scope::Own, "issuers")
        );
    }

    #[test]
    fn names_are_dns_names() {
        for (text, has_dots, expected) in [
            ("certificates", false, true),
            ("a--b", false, true),
            ("a-.b", true, false),
            ("a.-b", true, false),
            ("cert-manager.io", true, true),
            ("cert-manager.io", false, false),
            ("Certificates", false, false),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", true, false),
            (".a", true, false),
            ("a.", true, false),
            ("pods/log", false, false),
        ] {
            assert_eq!(is_name(text, has_dots), expected, "{text}");
        }
    }
}
