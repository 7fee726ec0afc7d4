//! Decisions about requests: the modes of authorization, which are asked in an order
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/>).
//!
//! * [`modes`]: the modes
//! * [`rbac`]: roles and bindings
//! * [`abac`]: policies of a file
//! * [`rule`]: the rules of roles, and what they cover

mod abac;
mod modes;
mod rbac;
mod rule;

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::status::Status;

pub use self::{
    abac::{AbacPolicies, AbacPolicyError},
    modes::{AccessReview, AccessReviewer, AuthorizationMode},
};
pub(crate) use self::{
    modes::{AlwaysAllow, AlwaysDeny, Reviewed},
    rbac::{Binding, RoleKey, Roles, Subject},
    rule::{PolicyRule, quoted, uncovered},
};
use crate::auth::{attributes::Attributes, user::UserInfo};

/// The decision about a request, and its reason, which may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// Whether no other authorizer may allow the request.
    pub(crate) denied: bool,
    pub(crate) reason: String,
    /// Why an authorizer couldn't decide; often empty.
    pub(crate) error: String,
}

impl Decision {
    /// Returns the decision that a request is allowed.
    pub(crate) fn allow(reason: impl Into<String>) -> Self {
        Self { allowed: true, reason: reason.into(), ..Self::default() }
    }

    /// Returns whether the request of a user is allowed.
    ///
    /// # Errors
    /// Returns 403 with Kubernetes' message, or 500 if an authorizer couldn't decide.
    pub(crate) fn require(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), Status> {
        match self.error.as_str() {
            _ if self.allowed => Ok(()),
            "" => Err(attributes.forbidden(user, &self.reason)),
            error => Err(Status::internal(error)),
        }
    }

    /// Returns the decision of an authorizer that doesn't allow a request, which others may.
    pub(crate) fn no_opinion(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }
}

/// All rules that apply to a user in a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectiveRules {
    pub(crate) rules: Vec<PolicyRule>,
    /// An error for each bound role that doesn't exist.
    pub(crate) errors: Vec<String>,
}

/// An authorizer beside the roles. What it doesn't allow, others may allow.
pub(crate) trait Extension: Debug + Send + Sync {
    /// Decides whether a user is allowed to make a request.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;

    /// Returns the rules of a user in a namespace that come from this authorizer, or an error if they can't be listed.
    fn rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules;
}

/// One of the authorizers that are asked about a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// Roles and bindings.
    Roles,
    /// Another one.
    Extension(Arc<dyn Extension>),
}

/// Authorizes requests: by roles and bindings, and by other authorizers, in an order.
#[derive(Debug, Default)]
pub(crate) struct Authorizer {
    roles: Roles,
    steps: OnceLock<Vec<Step>>,
}

impl Authorizer {
    /// Sets the authorizers that are asked from now on, of which the first that allows a request decides. Can be set
    /// once; by default, roles decide.
    pub(crate) fn set_steps(&self, steps: Vec<Step>) {
        self.steps.get_or_init(|| steps);
    }

    /// Returns the roles and bindings.
    pub(crate) fn roles(&self) -> &Roles {
        &self.roles
    }

    fn steps(&self) -> &[Step] {
        self.steps.get().map_or(&[Step::Roles], Vec::as_slice)
    }

    /// Decides whether a user is allowed to make a request.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.is_unrestricted() {
            return Decision::allow("");
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for step in self.steps() {
            let decision = match step {
                Step::Roles => self.roles.authorize(user, attributes),
                Step::Extension(extension) => extension.authorize(user, attributes),
            };
            if decision.allowed {
                return decision;
            }
            reasons.extend(Some(decision.reason).filter(|reason| !reason.is_empty()));
            errors.extend(Some(decision.error).filter(|error| !error.is_empty()));
            if decision.denied {
                return Decision { denied: true, ..undecided(&reasons, &errors) };
            }
        }
        undecided(&reasons, &errors)
    }

    /// Returns the rules of a user in a namespace, or in the whole cluster if it is empty.
    pub(crate) fn effective_rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules {
        let mut effective = EffectiveRules::default();
        for step in self.steps() {
            let EffectiveRules { rules, errors } = match step {
                Step::Roles => self.roles.rules(user, namespace),
                Step::Extension(extension) => extension.rules(user, namespace),
            };
            effective.rules.extend(rules);
            effective.errors.extend(errors);
        }
        effective
    }
}

/// Returns the decision that no authorizer allows a request.
fn undecided(reasons: &[String], errors: &[String]) -> Decision {
    let error = match errors {
        [one] => one.clone(),
        [] => String::new(),
        many => format!("[{}]", many.join(", ")),
    };
    Decision { error, ..Decision::no_opinion(reasons.join("\n")) }
}

#[cfg(test)]
mod tests;
