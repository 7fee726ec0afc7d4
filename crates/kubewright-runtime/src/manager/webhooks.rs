//! Webhooks and conversions of a manager, and the server of both.

use std::sync::Arc;

use super::Manager;
use crate::{
    conversion::Hub,
    object::Object,
    webhook::{AdmissionWebhook, Webhook, WebhookServer},
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
}
