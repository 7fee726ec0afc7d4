//! The user of a request, as available to strategies.

use super::{
    attributes::Attributes,
    authenticator::{Authenticator, Identified},
    token::TokenError,
    user::UserInfo,
};
use crate::authorizer::{Authorizer, Decision, EffectiveRules, PolicyRule};

/// The user of a request, and lookups of users and permissions for a [`Strategy`](crate::registry::Strategy).
#[derive(Debug)]
pub struct Requester<'a> {
    user: &'a UserInfo,
    authenticator: &'a Authenticator,
    authorizer: &'a Authorizer,
}

impl<'a> Requester<'a> {
    pub(crate) fn new(user: &'a UserInfo, authenticator: &'a Authenticator, authorizer: &'a Authorizer) -> Self {
        Self { user, authenticator, authorizer }
    }

    /// Returns the user of the request.
    pub fn user(&self) -> &UserInfo {
        self.user
    }

    /// Returns the user of a bearer token, and those of the given audiences for which it is valid. Without any, they
    /// are those of this server.
    pub(crate) fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Identified, TokenError> {
        self.authenticator.authenticate_token(token, audiences)
    }

    /// Returns whether a user is allowed to make a request, and the reason.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.authorizer.authorize(user, attributes)
    }

    /// Returns whether the requester is allowed to make a request.
    pub(crate) fn may(&self, attributes: &Attributes) -> bool {
        self.authorize(self.user, attributes).allowed
    }

    /// Returns the rules bound to a user in a namespace, or in the whole cluster if it is empty.
    pub(crate) fn effective_rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules {
        self.authorizer.effective_rules(user, namespace)
    }

    /// Returns the rules of a role, or of a cluster role if there is no namespace.
    pub(crate) fn role(&self, namespace: Option<&str>, name: &str) -> Option<Vec<PolicyRule>> {
        self.authorizer.roles().role(namespace.unwrap_or_default(), name)
    }
}
