//! The source of the private keys of self-managed certificates.

use std::{fmt, sync::Arc};

use rcgen::KeyPair;

/// A source of private keys for a [simulation](crate::webhook::SimulatedRotation), in which the same seed has to make
/// the same certificates.
///
/// A manager that serves its webhooks never uses one: its keys come from the operating system.
pub trait KeySource: Send + Sync + 'static {
    /// Returns the next private key, in the DER encoding of PKCS#8. The signatures of Ed25519 keys (RFC 8032) are
    /// deterministic, so the same keys sign the same certificates.
    fn next_key(&self) -> Vec<u8>;
}

/// Where the private keys of certificates come from.
#[derive(Clone)]
pub(crate) enum Keys {
    /// ECDSA P-256 keys of the operating system's random numbers: whatever serves TLS uses them.
    System,
    /// The keys of a simulation.
    Simulated(Arc<dyn KeySource>),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Simulated(_) => "Simulated",
        })
    }
}

impl Keys {
    /// Returns a new key.
    pub(super) fn next(&self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::System => KeyPair::generate(),
            Self::Simulated(source) => KeyPair::try_from(source.next_key().as_slice()),
        }
    }
}
