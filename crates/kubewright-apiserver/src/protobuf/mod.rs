//! Protobuf bodies of built-in kinds, as Go clients send them
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! A body is decoded to the JSON document that the same client would have sent as JSON, so only decoding depends on
//! protobuf. Responses are never protobuf, since clients also accept JSON. Custom kinds have no protobuf form.
//!
//! Messages are read by the table of types ([`crate::object_type`]), which contains the protobuf numbers of fields. The
//! messages that aren't objects in JSON have their own forms.

mod error;
mod form;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use kubewright_apimachinery::{
    depth,
    types::{Struct, Types},
};
use serde_json::{Map, Value};

use self::{
    error::{MAGIC, ProtobufError},
    message::Decoder,
    wire::{Field, Reader},
};
use crate::object_type::types;

/// The media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Decodes a body: an object of a built-in kind, or `DeleteOptions` of any group.
///
/// Unknown fields are dropped, as in Kubernetes: newer clients send new fields, and older ones send removed fields.
/// Names and values aren't validated.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?)?;
    let types = types();
    let Envelope { version, kind, raw } = envelope;
    if kind.is_empty() {
        return Err(ProtobufError::NoKind);
    }
    let Some(all) = find(types, &version, &kind) else { return Err(ProtobufError::UnknownKind { version, kind }) };
    let mut object = Map::new();
    object.insert("apiVersion".into(), version.into());
    object.insert("kind".into(), kind.into());
    Decoder { types }.fields(all, raw, &mut object, 0)?;
    let object = Value::Object(object);
    if depth::of(&object) > depth::LIMIT { Err(ProtobufError::TooDeep) } else { Ok(object) }
}

/// Returns the type of a kind: that of its group, or one that all groups have.
fn find(types: &'static Types, version: &str, kind: &str) -> Option<&'static Struct> {
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let shared = || types.kind("meta.k8s.io", "v1", kind).filter(|_| kind == "DeleteOptions");
    let ty = types.kind(group, version, kind).or_else(shared)?;
    types.get(ty).as_struct()
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
