//! Protobuf bodies of built-in kinds, as Go clients send and accept them
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
//!
//! A body is decoded to the JSON document that the same client would have sent as JSON, and a response is encoded from
//! the document that the client would have received as JSON, so nothing else depends on protobuf. Custom kinds have no
//! protobuf form, except for their metadata.
//!
//! Messages are read and written by the table of types ([`crate::object_type`]), which contains the protobuf numbers of
//! fields. The messages that aren't objects in JSON have their own forms.

mod encode;
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
    encode::Encoder,
    error::{MAGIC, ProtobufError},
    message::Decoder,
    wire::{Field, Reader},
};
use crate::object_type::{ObjectType, types};

/// The media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The media type of watches.
pub(crate) const STREAM_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Encodes an object, or a discovery document, by its `apiVersion` and `kind`. Returns `None` for one that isn't of a
/// built-in type.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    write(ObjectType::of_document(object)?, object, &mut raw);
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    Some(encode::envelope(text("apiVersion"), text("kind"), &raw))
}

/// Encodes a list of objects of a type. They are encoded one after the other, since there may be many.
pub(crate) fn encode_list(
    (version, kind): (&str, &str),
    metadata: &Value,
    of: ObjectType,
    objects: impl IntoIterator<Item = impl AsRef<Value>>,
) -> Vec<u8> {
    // All lists have the same fields.
    const METADATA: u32 = 1;
    const ITEMS: u32 = 2;
    let (mut raw, mut message) = (Vec::new(), Vec::new());
    if let Some(ty) = types().find("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta") {
        write(ObjectType::from(ty), metadata, &mut message);
    }
    encode::bytes(METADATA, &message, &mut raw);
    for object in objects {
        message.clear();
        write(of, object.as_ref(), &mut message);
        encode::bytes(ITEMS, &message, &mut raw);
    }
    encode::envelope(version, kind, &raw)
}

/// Encodes the event of a watch, after its length. Returns `None` for an object that isn't of a built-in type.
pub(crate) fn encode_event(change: &str, object: &Value) -> Option<Vec<u8>> {
    let (mut extension, mut event) = (Vec::new(), Vec::new());
    encode::bytes(1, &encode(object)?, &mut extension);
    encode::bytes(1, change.as_bytes(), &mut event);
    encode::bytes(2, &extension, &mut event);
    let length = u32::try_from(event.len()).ok()?;
    Some([&length.to_be_bytes(), &*event].concat())
}

/// Writes the fields of an object.
fn write(of: ObjectType, object: &Value, out: &mut Vec<u8>) {
    if let (Some(all), Some(fields)) = (types().get(of.id()).as_struct(), object.as_object()) {
        Encoder { types: types() }.fields(all, fields, out);
    }
}

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
    let registered = || ObjectType::registered(group, version, kind).map(ObjectType::id);
    // Custom kinds, whose versions the table doesn't have, are deleted with options, too.
    let options = || types.kind("meta.k8s.io", "v1", kind).filter(|_| kind == "DeleteOptions");
    let ty = types.kind(group, version, kind).or_else(registered).or_else(options)?;
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
