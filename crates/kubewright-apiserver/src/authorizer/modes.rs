//! The modes of authorization.

use std::{fmt::Debug, sync::Arc};

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
    /// Another program.
    Webhook(Arc<dyn AccessReviewer>),
    /// All requests are allowed. As in Kubernetes, those without credentials are refused then.
    AlwaysAllow,
    /// No request is allowed.
    AlwaysDeny,
}

/// Decides about requests in the mode `Webhook`.
pub trait AccessReviewer: Debug + Send + Sync + 'static {
    /// Decides about a request of a user. The request waits for the return: an implementation that blocks must let the
    /// other tasks of its thread continue, for example by `tokio::task::block_in_place`.
    fn review(&self, user: &UserInfo, attributes: &Attributes) -> AccessReview;
}

/// The decision of an [`AccessReviewer`], as in the status of a `SubjectAccessReview`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessReview {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Whether no other mode may allow it.
    pub denied: bool,
    /// The reason, which may be empty.
    pub reason: String,
    /// The error because of which there is no decision, or because of which the request is denied; otherwise empty.
    pub evaluation_error: String,
}

/// The authorizer of the mode `Webhook`.
#[derive(Debug)]
pub(crate) struct Reviewed(pub(crate) Arc<dyn AccessReviewer>);

impl Extension for Reviewed {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        const BOTH: &str = "webhook subject access review returned both allow and deny response";
        let AccessReview { allowed, denied, reason, evaluation_error } = self.0.review(user, attributes);
        let error = if allowed && denied { BOTH.into() } else { evaluation_error };
        Decision { allowed: allowed && !denied, denied, reason, error }
    }

    fn rules(&self, _user: &UserInfo, _namespace: &str) -> EffectiveRules {
        let error = "webhook authorizer does not support user rule resolution".to_owned();
        EffectiveRules { rules: Vec::new(), errors: vec![error] }
    }
}

/// The authorizer of the mode `AlwaysAllow`.
#[derive(Debug)]
pub(crate) struct AlwaysAllow;

impl Extension for AlwaysAllow {
    fn authorize(&self, _user: &UserInfo, _attributes: &Attributes) -> Decision {
        Decision::allow("")
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
        Decision::no_opinion("Everything is forbidden.")
    }

    fn rules(&self, _user: &UserInfo, _namespace: &str) -> EffectiveRules {
        EffectiveRules::default()
    }
}
