//! The rotation of certificates in a simulation, without a server.

use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use kubewright_apimachinery::clock::SharedClock;
use prometheus::Registry;

use super::{
    Registrations, WebhookServer,
    cert_rotator::{CertRotator, RotationState},
};
use crate::{
    metrics::CertificateMetrics,
    tls::{CertResolver, KeySource, authority::Keys},
};

/// The rotation of the webhooks' self-managed certificate for a simulation, with keys of a [`KeySource`]. It does what
/// the rotation of a [`WebhookServer`] does, but no server serves the certificate.
/// [`Manager::simulated_rotation`](crate::manager::Manager::simulated_rotation) makes one.
pub struct SimulatedRotation {
    rotator: CertRotator,
    interval: Duration,
}

impl fmt::Debug for SimulatedRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRotation").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl SimulatedRotation {
    pub(crate) fn new(
        registrations: &Registrations,
        server: &WebhookServer,
        (client, clock): (&Client, &SharedClock),
        keys: Arc<dyn KeySource>,
    ) -> Self {
        let rotator = CertRotator {
            client: client.clone(),
            clock: clock.clone(),
            metrics: CertificateMetrics::new(&Registry::new()),
            names: server.names(),
            namespace: server.namespace.clone().unwrap_or_else(|| client.default_namespace().into()),
            webhooks: registrations.webhooks.iter().map(|webhook| webhook.description.clone()).collect(),
            conversions: registrations.hubs.iter().map(|hub| hub.describe()).collect(),
            url: None,
            resolver: CertResolver::new("webhooks"),
            keys: Keys::Simulated(keys),
            known: RotationState::default(),
        };
        Self { rotator, interval: server.interval }
    }

    /// Returns the certificate that a server would serve, as it is at any time.
    pub fn served(&self) -> ServedCertificate {
        ServedCertificate(self.rotator.resolver.clone())
    }

    /// Rotates the certificate at each interval of the [`WebhookServer`]. It never returns.
    pub async fn run(self) {
        self.rotator.follow(self.interval, || ()).await;
    }
}

/// The certificate that a server of a simulation serves. Clones share it.
#[derive(Clone, Debug)]
pub struct ServedCertificate(CertResolver);

impl ServedCertificate {
    /// Returns the certificates in DER, from that of the server on; none before the first rotation.
    pub fn chain(&self) -> Vec<Vec<u8>> {
        let key = self.0.get();
        key.iter().flat_map(|key| key.chain()).map(|certificate| certificate.to_vec()).collect()
    }
}
