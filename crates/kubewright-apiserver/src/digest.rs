//! Digests of documents.

use ring::digest::{SHA256, digest};

/// The SHA-256 digest of a document in hexadecimal, as entity tags and OpenAPI addresses carry it.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
