//! The user behind a request, as strategies see it.

use super::{attributes::Attributes, authenticator::Authenticator, token::TokenError, user::UserInfo};
use crate::rbac::{Authorizer, Decision, EffectiveRules, PolicyRule};

/// The user behind a request, and what a [`Strategy`](crate::registry::Strategy) can find out about users and rights.
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

    /// The user behind the request.
    pub fn user(&self) -> &UserInfo {
        self.user
    }

    /// The user of a bearer token, and those of the audiences that it is valid for; no audiences stand for this server.
    pub(crate) fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(UserInfo, Vec<String>), TokenError> {
        self.authenticator.authenticate_token(token, audiences)
    }

    /// Whether any user may do something, and why.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.authorizer.authorize(user, attributes)
    }

    /// Whether the requester may do something.
    pub(crate) fn may(&self, attributes: &Attributes) -> bool {
        self.authorize(self.user, attributes).allowed
    }

    /// The rules bound to a user in a namespace, or with an empty one those of the whole cluster.
    pub(crate) fn effective_rules(&self, user: &UserInfo, namespace: &str) -> EffectiveRules {
        self.authorizer.effective_rules(user, namespace)
    }

    /// The rules of a role; without a namespace those of a cluster role.
    pub(crate) fn role(&self, namespace: Option<&str>, name: &str) -> Option<Vec<PolicyRule>> {
        self.authorizer.role(namespace.unwrap_or_default(), name)
    }
}
