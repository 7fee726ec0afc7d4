//! Digests of documents.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};

/// Returns the first bytes of the SHA-256 digest of the version in which objects of a kind are stored, in base64. It
/// changes with the version, so that clients notice a migration.
pub(crate) fn storage_version(group: &str, version: &str, kind: &str) -> String {
    let digest = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    STANDARD.encode(&digest.as_ref()[..8])
}

/// Returns the SHA-256 digest of a document in hexadecimal, as used in entity tags and OpenAPI addresses.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
