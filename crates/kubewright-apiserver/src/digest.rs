//! Digests of documents.

use ring::digest::{SHA256, digest};

/// Returns the SHA-256 digest of a document in hexadecimal, as used in entity tags and OpenAPI addresses.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
