//! Protobuf bodies of built-in kinds, as Go clients send them
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! A body is decoded to the JSON document that the same client would have sent as JSON, so only decoding depends on
//! protobuf. Responses are never protobuf, since clients also accept JSON. Custom kinds have no protobuf form.
//!
//! # The table
//!
//! `data/protobuf.json` describes the Go types of `k8s.io/api`, `k8s.io/apimachinery` and
//! `k8s.io/apiextensions-apiserver`, in the version that it names. To update it, fetch the modules (`go mod download`),
//! walk the types that each group's `AddToScheme` registers by reflection, and write down for every field
//!
//! * its number, from the tag `protobuf`;
//! * its name, from the tag `json`; `.` if the tag contains `inline`: in JSON such a message's fields belong to its
//!   parent;
//! * its type: `string`, `bytes`, `bool`, `int32`, `int64`, `double`, or a message, by its OpenAPI name, without the
//!   package if that is the parent's; `[]` before a repeated one, `map:` before the values of a map;
//! * `?` if it is `omitempty` and not a pointer. Go encodes such a field in protobuf even if it is zero, and omits it in JSON.
//!
//! `forms` lists the messages that aren't objects in JSON; they implement `json.Marshaler` or are named slices. The type
//! `json` stands for bytes that contain JSON. A test compares the table with the schemas of all registered kinds.

mod error;
mod form;
mod message;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use kubewright_apimachinery::depth;
use serde_json::{Map, Value};

use self::{
    error::{MAGIC, ProtobufError},
    message::Decoder,
    table::Table,
    wire::{Field, Reader},
};

/// The media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Decodes a body: an object of a built-in kind, or `DeleteOptions` of any group.
///
/// Unknown fields are dropped, as in Kubernetes: newer clients send new fields, and older ones send removed fields.
/// Names and values aren't validated.
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

/// `runtime.Unknown`: the type of an object, and its encoding.
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
