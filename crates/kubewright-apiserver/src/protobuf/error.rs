//! The errors of decoding.

use kubewright_apimachinery::decode::DecodeError;

/// The first bytes of every body.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// The error of decoding a body. The response is 400.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    #[error("proto: unexpected end of data")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag {0}")]
    IllegalTag(u64),
    #[error("proto: wrong wire type {wire} for field {field}")]
    WireType { field: String, wire: u8 },
    #[error("proto: field {0} is not UTF-8")]
    NotUtf8(String),
    #[error("proto: field {field}: {why}")]
    Value { field: String, why: String },
    #[error("proto: field {field}: {source}")]
    Json { field: String, source: DecodeError },
    #[error("exceeded max depth")]
    TooDeep,
    #[error("the encoding {0:?} of the object is not supported")]
    Encoding(String),
    #[error("Object 'Kind' is missing")]
    NoKind,
    #[error("no kind {kind:?} is registered for version {version:?}")]
    UnknownKind { version: String, kind: String },
}

impl ProtobufError {
    /// Returns the error about a field's value.
    pub(super) fn value(field: &str, why: &str) -> Self {
        Self::Value { field: field.to_owned(), why: why.to_owned() }
    }
}
