//! Webhooks and conversions of a manager, and the server of both.

use std::sync::Arc;

use axum::Router;

use super::{Connection, Manager, ManagerError};
use crate::{
    conversion::Hub,
    object::Object,
    webhook::{self, AdmissionWebhook, KeySource, SimulatedRotation, Webhook, WebhookServer},
};

impl Manager {
    /// Adds the webhooks of a kind. They are served by the server set with [`Manager::webhook_server`] or by flags.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Self {
        self.webhooks.webhooks.extend(webhook.endpoints());
        self
    }

    /// Adds a webhook for requests of any kind, such as subresources and connections.
    pub fn admission(mut self, webhook: AdmissionWebhook) -> Self {
        self.webhooks.webhooks.push(webhook.endpoint());
        self
    }

    /// Adds the conversion between the versions of a kind. It is served by the webhook server.
    pub fn conversion<K: Object>(mut self, hub: Hub<K>) -> Self {
        self.webhooks.hubs.push(Arc::new(hub));
        self
    }

    /// Sets the webhook server. By default, a manager that wasn't created from flags serves no webhooks.
    pub fn webhook_server(self, server: WebhookServer) -> Self {
        Self { webhook_server: Some(server), ..self }
    }

    /// Returns the routes of the webhooks and conversions, or `None` for a manager without any. Tests send reviews to
    /// them without a connection and a certificate. The metrics of the manager don't count these requests.
    ///
    /// # Errors
    /// If a path is malformed, or used twice.
    pub fn webhook_routes(&self) -> Result<Option<Router>, ManagerError> {
        self.check_webhook_paths()?;
        let is_empty = self.webhooks.is_empty();
        Ok((!is_empty).then(|| webhook::uncounted_router(&self.webhooks, &self.clock)))
    }

    /// Returns the rotation of the certificate with which `server` would serve the webhooks and conversions, with keys
    /// of a source of its own: for a simulation, which calls the [routes](Self::webhook_routes) itself. `None` for a
    /// manager without webhooks, or with a client that flags describe.
    pub fn simulated_rotation(&self, server: &WebhookServer, keys: Arc<dyn KeySource>) -> Option<SimulatedRotation> {
        let Connection::Client(client) = &self.connection else { return None };
        let client = self.requests.client(client, &self.clock);
        let is_empty = self.webhooks.is_empty();
        (!is_empty).then(|| SimulatedRotation::new(&self.webhooks, server, (&client, &self.clock), keys))
    }
}
