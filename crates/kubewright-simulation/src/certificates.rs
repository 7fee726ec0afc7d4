//! The rotation of the certificates of webhooks, with keys of the seed.

use std::{sync::Arc, time::Duration};

use kubewright_apimachinery::random::Random;
use kubewright_runtime::{
    manager::Manager,
    webhook::{KeySource, SimulatedRotation, WebhookServer},
};

/// The namespace of the service of the webhooks, as descriptions have it.
pub(crate) const SERVICE_NAMESPACE: &str = "system";
/// The interval at which a process checks its certificate. With the default one, these requests would be most of a run.
const ROTATION: Duration = Duration::from_secs(600);
/// What precedes the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410).
const ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The certificates of processes, each in DER and from that of the server on, by the numbers of the processes.
pub(crate) type Certificates = Vec<(u64, Vec<Vec<u8>>)>;

/// Returns the certificates of the processes that serve webhooks, as they are now.
pub(crate) type Served = Arc<dyn Fn() -> Certificates + Send + Sync>;

/// The keys of a process, by the seed of the run.
struct SeededKeys(Random);

impl KeySource for SeededKeys {
    fn next_key(&self) -> Vec<u8> {
        let secret = (0..4).flat_map(|_| self.0.u64().to_be_bytes());
        ED25519.into_iter().chain(secret).collect()
    }
}

/// Returns the rotation of the certificate of a process, which has a seed and a number.
pub(crate) fn rotation_of(manager: &Manager, (seed, process): (u64, u64)) -> Option<SimulatedRotation> {
    let server = WebhookServer::local().name("").namespace(SERVICE_NAMESPACE).interval(ROTATION);
    // Not the numbers of the manager, so that a run is the same with and without certificates but for these.
    let keys = Random::seeded(!seed.wrapping_mul(31).wrapping_add(process));
    manager.simulated_rotation(&server, Arc::new(SeededKeys(keys)))
}
