//! Protobuf bodies of built-in kinds, as Go clients send them
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! A body becomes the JSON document that the same client would have sent as JSON, so nothing after decoding knows of
//! protobuf. Answers are never protobuf: clients accept JSON beside it. Custom kinds have no protobuf form.
//!
//! # The table
//!
//! `data/protobuf.json` holds facts about the Go types of `k8s.io/api`, `k8s.io/apimachinery` and
//! `k8s.io/apiextensions-apiserver`, in the version that it names. To renew it, fetch the modules (`go mod download`),
//! walk the types that each group's `AddToScheme` registers by reflection, and write down for every field
//!
//! * its number, from the tag `protobuf`;
//! * its name, from the tag `json`; `.` where the tag says `inline`: in JSON such a message's fields belong to its parent;
//! * its type: `string`, `bytes`, `bool`, `int32`, `int64`, `double`, or a message, by its OpenAPI name, without the
//!   package if that is the parent's; `[]` before a repeated one, `map:` before the values of a map;
//! * `?` if it is `omitempty` and no pointer. Go writes such a field even if it is zero, and its JSON leaves it out then.
//!
//! `forms` lists the messages that are no objects in JSON; they implement `json.Marshaler` or are named slices. The type
//! `json` stands for bytes that are JSON themselves. A test compares the table with the schemas of all registered kinds.

mod form;
mod message;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use kubewright_apimachinery::{decode::DecodeError, depth};
use serde_json::{Map, Value};

use self::{
    message::Decoder,
    table::Table,
    wire::{Field, Reader},
};

/// The media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body can't be decoded: a 400 answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
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

/// Decodes a body: an object of a built-in kind, or `DeleteOptions` of any group.
///
/// Unknown fields are dropped, as Kubernetes does: a newer client writes its new fields, and an older one the empty
/// fields that are gone. Names aren't checked here, nor is what the fields say.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?)?;
    let table = Table::shared();
    let Envelope { version, kind, raw } = envelope;
    if kind.is_empty() {
        return Err(ProtobufError::NoKind);
    }
    let Some(index) = table.index(&version, &kind) else { return Err(ProtobufError::UnknownKind { version, kind }) };
    let mut object = Map::new();
    object.insert("apiVersion".into(), version.into());
    object.insert("kind".into(), kind.into());
    Decoder { table }.fields(table.message(index), raw, &mut object, 0)?;
    let object = Value::Object(object);
    if depth::of(&object) > depth::LIMIT { Err(ProtobufError::TooDeep) } else { Ok(object) }
}

/// `runtime.Unknown`: the type of an object, and the object.
#[derive(Default)]
struct Envelope<'a> {
    version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some(Field { number, payload }) = reader.field()? {
            match number {
                1 => {
                    let mut reader = Reader::new(payload.bytes("typeMeta")?);
                    while let Some(Field { number, payload }) = reader.field()? {
                        match number {
                            1 => envelope.version = payload.text("apiVersion")?.to_owned(),
                            2 => envelope.kind = payload.text("kind")?.to_owned(),
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = payload.bytes("raw")?,
                3 | 4 => {
                    let text = payload.text("contentType")?;
                    if !text.is_empty() && (number, text) != (4, MEDIA_TYPE) {
                        return Err(ProtobufError::Encoding(text.to_owned()));
                    }
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}
