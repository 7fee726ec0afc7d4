//! The operator's RBAC rules beyond those that its wiring implies. They are typed, so that a misspelt name doesn't
//! compile.
//!
//! `kubewright manifests` generates the operator's role from what its controllers declare:
//!
//! | declaration | rules |
//! |---|---|
//! | the reconciled kind | `get`, `list`, `watch`; `patch` of its `status`; `update` of its `finalizers`, which some clusters require before a child may block its owner's deletion; `patch` if the reconciler has a finalizer |
//! | [`Controller::owns`] | `get`, `list`, `watch`, `create`, `patch`, `delete` |
//! | [`Controller::watches`], [`Controller::reads`] | `get`, `list`, `watch` |
//! | [`Permissions::workspace`] | `get`, `create`, `patch`, `delete` of config maps |
//! | any controller | `create`, `patch` of events |
//! | [`Manager::cached`], [`Manager::on_change`], [`Manager::index`] | `get`, `list`, `watch` |
//! | [`Manager::recorder`] | `create`, `patch` of events |
//! | [`Migrator::runnable`] | [`Migrator::policy_rules`] |
//!
//! [`Controller::rbac`] adds rules, and omits rules for what a controller never does:
//!
//! ```
//! # use k8s_openapi::api::{apps::v1::{Deployment, ReplicaSet}, core::v1::{Pod, Secret}};
//! # use kubewright_runtime::controller::Controller;
//! use kubewright_runtime::rbac::{PolicyRule, Subresource, Verb};
//!
//! # fn example(controller: Controller<ReplicaSet>) -> Controller<ReplicaSet> {
//! controller.owns::<Deployment>().rbac(|role| {
//!     role.omit(PolicyRule::of::<Deployment>([Verb::Delete]))
//!         .allow(PolicyRule::of::<Secret>([Verb::Get]).resource_name("token"))
//!         .allow(PolicyRule::of::<Pod>([Verb::Create]).subresource(Subresource::Eviction))
//! })
//! # }
//! ```
//!
//! None of it has an effect at run time: the API server enforces the roles that are bound. [`Manager::policy_rule`] is
//! for requests that the program makes outside its controllers.
//!
//! [`Controller::owns`]: crate::controller::Controller::owns
//! [`Controller::watches`]: crate::controller::Controller::watches
//! [`Controller::reads`]: crate::controller::Controller::reads
//! [`Controller::rbac`]: crate::controller::Controller::rbac
//! [`Migrator::runnable`]: crate::conversion::Migrator::runnable
//! [`Migrator::policy_rules`]: crate::conversion::Migrator::policy_rules
//! [`Manager::cached`]: crate::manager::Manager::cached
//! [`Manager::index`]: crate::manager::Manager::index
//! [`Manager::on_change`]: crate::manager::Manager::on_change
//! [`Manager::policy_rule`]: crate::manager::Manager::policy_rule
//! [`Manager::recorder`]: crate::manager::Manager::recorder

use std::fmt;

pub use kubewright_apimachinery::description::Verb;
use kubewright_apimachinery::description::{Rule, Scope};

use crate::object::{KindName, Object};

/// A controller's changes to the rules that its wiring implies, for
/// [`Controller::rbac`](crate::controller::Controller::rbac).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Permissions {
    pub(crate) allowed: Vec<PolicyRule>,
    pub(crate) omitted: Vec<PolicyRule>,
    pub(crate) workspace: bool,
}

impl Permissions {
    /// Adds a rule.
    pub fn allow(mut self, rule: PolicyRule) -> Self {
        self.allowed.push(rule);
        self
    }

    /// Omits a rule that the wiring implies, such as the deletion of children or the creation of events. RBAC has no
    /// rules that deny: another controller of the manager may still bring the rule into the role.
    ///
    /// `kubewright manifests` fails if the wiring doesn't imply the rule.
    pub fn omit(mut self, rule: PolicyRule) -> Self {
        self.omitted.push(rule);
        self
    }

    /// Adds the rules that [`Context::workspace`](crate::context::Context::workspace) needs.
    pub fn workspace(self) -> Self {
        Self { workspace: true, ..self }
    }
}

/// Verbs on one resource, or on one path that is no resource: a rule of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct PolicyRule(Rule);

/// A subresource. A rule for a resource doesn't include its subresources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subresource {
    /// `status`
    Status,
    /// `finalizers`: lets a child block the deletion of its owner, where the cluster checks that.
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
    /// Another subresource by its name, such as `restart` of KubeVirt's virtual machines.
    Named(&'static str),
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
            Self::Named(name) => name,
        })
    }
}

/// A resource without a Rust type. Define it as a constant: then an invalid name doesn't compile. Whether the resource
/// exists isn't checked.
///
/// ```
/// use kubewright_runtime::rbac::{NamedResource, PolicyRule, Verb};
///
/// const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "certificates");
///
/// let rule = PolicyRule::of_resource(CERTIFICATES, [Verb::Get, Verb::Create]);
/// ```
///
/// `*` stands for all resources of a group with their subresources, or for all groups. An operator that handles kinds
/// which its users choose needs that:
///
/// ```
/// # use kubewright_runtime::rbac::{NamedResource, PolicyRule, Subresource, Verb};
/// const ALL: NamedResource = NamedResource::namespaced("*", "*");
///
/// let read_all = PolicyRule::of_resource(ALL, [Verb::Get, Verb::List, Verb::Watch]);
/// let scale_all = PolicyRule::of_resource(ALL, [Verb::Patch]).subresource(Subresource::Scale);
/// ```
///
/// ```compile_fail
/// # use kubewright_runtime::rbac::NamedResource;
/// const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "Certificates");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedResource {
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
}

impl NamedResource {
    /// A namespaced resource, by its group (empty for the core group) and its plural name.
    ///
    /// # Panics
    /// If one of them is invalid. In a constant that is an error at compile time.
    pub const fn namespaced(group: &'static str, plural: &'static str) -> Self {
        assert!(
            group.is_empty() || is_all(group) || is_name(group, true),
            "the group must be a DNS name in lower case"
        );
        assert!(
            is_all(plural) || is_name(plural, false),
            "the resource must be its plural in lower case, such as certificates"
        );
        Self { group, plural, namespaced: true }
    }

    /// A cluster-scoped resource.
    ///
    /// # Panics
    /// As [`NamedResource::namespaced`].
    pub const fn cluster(group: &'static str, plural: &'static str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, plural) }
    }
}

/// Returns whether a text stands for all groups or resources.
const fn is_all(text: &str) -> bool {
    matches!(text.as_bytes(), [b'*'])
}

/// Returns whether a text consists of lower-case letters, digits and dashes, and begins and ends with a letter or
/// digit. With `has_dots` it may have several such parts with dots between them.
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

impl PolicyRule {
    /// A rule for the resource of kind `K`.
    pub fn of<K: Object>(verbs: impl IntoIterator<Item = Verb>) -> Self {
        let kind = KindName::of::<K>();
        Self::new(&kind.group, &kind.plural, K::is_namespaced(), verbs)
    }

    /// A rule for a resource without a Rust type.
    pub fn of_resource(resource: NamedResource, verbs: impl IntoIterator<Item = Verb>) -> Self {
        Self::new(resource.group, resource.plural, resource.namespaced, verbs)
    }

    /// A rule for a path that is no resource, such as `/metrics`, or for all paths below one: `/healthz/*`.
    pub fn non_resource_url(url: &str, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let mut rule = Self::new("", "", false, verbs);
        rule.0.url = url.into();
        rule
    }

    pub(crate) fn new(group: &str, resource: &str, namespaced: bool, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let mut rule = Rule::default();
        rule.group = group.into();
        rule.resource = resource.into();
        rule.namespaced = namespaced;
        rule.verbs = verbs.into_iter().collect();
        Self(rule)
    }

    /// Applies the rule to a subresource instead of the resource.
    pub fn subresource(mut self, subresource: Subresource) -> Self {
        let resource = self.0.resource.split('/').next().unwrap_or_default();
        self.0.resource = format!("{resource}/{subresource}");
        self
    }

    /// Limits the rule to the object of this name. Each call adds a name. Creations and lists can't be limited by name.
    pub fn resource_name(mut self, name: &str) -> Self {
        self.0.names.insert(name.into());
        self
    }

    /// Limits the rule to the namespace that the operator runs in.
    pub fn in_own_namespace(mut self) -> Self {
        self.0.scope = Scope::Own;
        self
    }

    /// Puts the rule into a role of this name instead of the operator's main role. That role is bound to the operator
    /// too.
    pub fn role(mut self, name: &str) -> Self {
        self.0.role = name.into();
        self
    }

    pub(crate) fn rule(&self) -> Rule {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Pod};

    use super::*;

    #[test]
    fn rules_display_verbs_resource_and_names() {
        let evict = PolicyRule::of::<Pod>([Verb::Create]).subresource(Subresource::Eviction).rule();
        assert_eq!((evict.to_string().as_str(), evict.namespaced), ("create pods/eviction", true));
        let two = PolicyRule::of::<Namespace>([Verb::Patch, Verb::Get]).resource_name("b").resource_name("a").rule();
        assert_eq!((two.to_string().as_str(), two.namespaced), ("get, patch namespaces \"a\" \"b\"", false));
        assert_eq!(PolicyRule::non_resource_url("/metrics", [Verb::Get]).rule().to_string(), "get /metrics");
        let certificates = NamedResource::cluster("cert-manager.io", "clusterissuers");
        let own = PolicyRule::of_resource(certificates, [Verb::Get]).in_own_namespace().role("issuers").rule();
        assert_eq!(
            (own.to_string().as_str(), own.scope, &*own.role),
            ("get clusterissuers.cert-manager.io", Scope::Own, "issuers")
        );
    }

    #[test]
    fn rules_can_be_for_all() {
        let all = NamedResource::namespaced("*", "*");
        assert_eq!(PolicyRule::of_resource(all, [Verb::All]).rule().to_string(), "* *.*");
        let scales = PolicyRule::of_resource(all, [Verb::Patch]).subresource(Subresource::Scale).rule();
        assert_eq!(scales.to_string(), "patch */scale.*");
        let of_group = NamedResource::cluster("kubevirt.io", "*");
        let restarts = PolicyRule::of_resource(of_group, [Verb::Update]).subresource(Subresource::Named("restart"));
        assert_eq!(restarts.rule().to_string(), "update */restart.kubevirt.io");
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
