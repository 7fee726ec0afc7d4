//! What admission needs of the server.

use std::{fmt, sync::Arc};

use super::{policies::Policies, webhooks::Webhooks};
use crate::{
    authorizer::Authorizer,
    registry::{Registry, Resource},
    webhook_client::WebhookClient,
};

/// The webhooks and policies of the server, and what they need.
pub(crate) struct Admission {
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) client: Arc<WebhookClient>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authorizer: Arc<Authorizer>,
}

impl Admission {
    /// Returns whether any webhook or policy may match a request for this resource. Without any, this is three loads.
    pub(crate) fn may_match(&self, resource: &Resource) -> bool {
        self.webhooks.may_match(resource) || self.policies.may_match(resource)
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("webhooks", &self.webhooks).finish_non_exhaustive()
    }
}
