//! Digests of documents.

use sha2::{Digest, Sha256};

/// The SHA-256 digest of a document in hexadecimal, as entity tags and OpenAPI addresses carry it.
pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}
