//! Webhooks in an HTTP server of the program's own.

use std::sync::Arc;

use axum::Router;
use kubewright_apimachinery::clock::{SharedClock, SystemClock};

use super::{AdmissionWebhook, Registrations, Webhook, server};
use crate::{
    conversion::Hub,
    metrics::{Metrics, WebhookMetrics},
    object::Object,
};

/// Webhooks without a manager (controller-runtime: `StandaloneWebhook`): routes for an HTTP server that the program has
/// anyway, which also brings the certificate. Nothing is installed in a cluster, and no cluster is needed.
///
/// Panics, hanging handlers and invalid reviews are handled as in a manager. Two webhooks must not have the same path.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kubewright_runtime::{metrics::Metrics, webhook::{StandaloneWebhooks, Webhook}};
/// # async fn example(webhook: Webhook<ConfigMap>, metrics: &Metrics) -> std::io::Result<()> {
/// let routes = StandaloneWebhooks::new().webhook(webhook).router(metrics);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?; // behind a proxy that ends TLS
/// axum::serve(listener, routes).await
/// # }
/// ```
#[derive(Debug, Default)]
pub struct StandaloneWebhooks {
    registrations: Registrations,
    clock: Option<SharedClock>,
}

impl StandaloneWebhooks {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the webhooks of a kind.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Self {
        self.registrations.webhooks.extend(webhook.endpoints());
        self
    }

    /// Adds a webhook for requests of any kind.
    pub fn admission(mut self, webhook: AdmissionWebhook) -> Self {
        self.registrations.webhooks.push(webhook.endpoint());
        self
    }

    /// Adds the conversion between the versions of a kind.
    pub fn conversion<K: Object>(mut self, hub: Hub<K>) -> Self {
        self.registrations.hubs.push(Arc::new(hub));
        self
    }

    /// Sets the clock, for tests. Default: the system clock.
    pub fn clock(self, clock: SharedClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Returns the routes, which are counted in `metrics`. Call it once for each set of metrics.
    ///
    /// # Panics
    /// If two webhooks have the same path, or one isn't a valid path of [axum].
    pub fn router(self, metrics: &Metrics) -> Router {
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let metrics = WebhookMetrics::new(metrics.registry(), clock.clone());
        server::router(&self.registrations, &clock, &metrics)
    }
}
