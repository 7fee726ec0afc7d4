//! Aggregation: groups and versions that another API server serves
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/>).
//!
//! The strategy of APIServices maintains the list of [`ApiServices`]. A request below the path of a version whose
//! APIService names a Service is authenticated and authorized here, and then sent to that Service with the user in
//! headers, over a connection with the certificate of the front proxy. Discovery and OpenAPI of such versions are read
//! from their servers when a client asks for them, and kept for a short time.
//!
//! Nothing runs in the background. Whoever runs the server calls [`Aggregation::check`] when something has changed, and
//! from time to time, and writes the result to the status of the APIService.

mod availability;
mod backend;
mod documents;
mod front_proxy;
mod services;

use std::{fmt, sync::Arc};

pub use self::availability::Availability;
pub(crate) use self::{
    documents::RemoteVersion,
    front_proxy::{CLIENT_NAME, FrontProxy},
    services::{ApiService, ApiServices},
};
use crate::webhook_client::WebhookClient;

/// Access to the API servers behind the APIServices that name a Service.
#[derive(Clone)]
pub struct Aggregation {
    pub(crate) services: Arc<ApiServices>,
    pub(crate) front_proxy: Arc<FrontProxy>,
    /// The store, the time, and the endpoints of services, as for webhooks.
    pub(crate) client: Arc<WebhookClient>,
}

impl fmt::Debug for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregation").field("api_services", &self.services).finish_non_exhaustive()
    }
}

impl Aggregation {
    /// Returns the names of the APIServices that name a Service.
    pub fn remote_names(&self) -> Vec<String> {
        self.services.remote().iter().map(|service| service.name.clone()).collect()
    }

    /// Waits until an APIService names a Service. Cancel-safe.
    pub async fn any_remote(&self) {
        let mut changes = self.services.watch();
        // The list lives as long as this value, so the channel isn't closed.
        let _ = changes.wait_for(|any| *any).await;
    }
}
