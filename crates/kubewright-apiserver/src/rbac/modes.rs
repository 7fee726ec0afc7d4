//! The modes of authorization.

use super::{AbacPolicies, Decision, EffectiveRules, Extension, rule::PolicyRule};
use crate::auth::{attributes::Attributes, user::UserInfo};

/// A mode of authorization, as in kube-apiserver's `--authorization-mode`
/// (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#authorization-modules>).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthorizationMode {
    /// Roles and bindings.
    Rbac,
    /// Nodes are authorized by the pods that run on them: a user `system:node:NAME` in the group `system:nodes` may
    /// read the objects that its pods refer to, and write to itself and its pods
    /// (<https://kubernetes.io/docs/reference/access-authn-authz/node/>).
    Node,
    /// Policies of a file.
    Abac(AbacPolicies),
    /// All requests are allowed. As in Kubernetes, those without credentials are refused then.
    AlwaysAllow,
    /// No request is allowed.
    AlwaysDeny,
}

/// The authorizer of the mode `AlwaysAllow`.
#[derive(Debug)]
pub(crate) struct AlwaysAllow;

impl Extension for AlwaysAllow {
    fn authorize(&self, _user: &UserInfo, _attributes: &Attributes) -> Decision {
        Decision { allowed: true, reason: String::new() }
    }

    fn rules(&self, _user: &UserInfo, _namespace: &str) -> EffectiveRules {
        EffectiveRules { rules: PolicyRule::full_authority().into(), errors: Vec::new() }
    }
}

/// The authorizer of the mode `AlwaysDeny`.
#[derive(Debug)]
pub(crate) struct AlwaysDeny;

impl Extension for AlwaysDeny {
    fn authorize(&self, _user: &UserInfo, _attributes: &Attributes) -> Decision {
        Decision { allowed: false, reason: "Everything is forbidden.".into() }
    }

    fn rules(&self, _user: &UserInfo, _namespace: &str) -> EffectiveRules {
        EffectiveRules::default()
    }
}
