//! Authorization of requests.

use std::sync::Arc;

use kubewright_apimachinery::status::Status;

use super::{attributes::Attributes, impersonation::LastModes, user::UserInfo};
use crate::{
    authorizer::{Authorizer, Decision},
    usage::{Usage, UsageRecord},
};

/// The authorizer of requests, with the record of allowed and denied requests.
#[derive(Debug)]
pub(crate) struct Authorization {
    authorizer: Arc<Authorizer>,
    usage: UsageRecord,
    last_modes: LastModes,
}

impl Authorization {
    pub(crate) fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer, usage: UsageRecord::default(), last_modes: LastModes::default() }
    }

    /// Allows or denies a request, and records it.
    ///
    /// # Errors
    /// Returns 403 with Kubernetes' message.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), Status> {
        self.decide(user, attributes).require(user, attributes)
    }

    /// Decides about a request, and records it.
    pub(crate) fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let decision = self.authorizer.authorize(user, attributes);
        self.usage.record(user, attributes, decision.allowed);
        decision
    }

    /// Returns the authorizer, for decisions that aren't recorded.
    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// Returns how users have impersonated others.
    pub(super) fn last_modes(&self) -> &LastModes {
        &self.last_modes
    }

    /// Returns the requests of a user so far.
    pub(crate) fn usage(&self, user: &str) -> Usage {
        self.usage.of(user)
    }
}
