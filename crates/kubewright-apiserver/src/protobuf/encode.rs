//! Encoding of objects of built-in kinds as protobuf, byte for byte as Go does: the fields of a message in the order of
//! their numbers, those that aren't pointers even if they are empty, and the entries of maps in the order of their
//! keys.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::types::{Field, Numbered, Shape, Struct, TypeId, Types};
use serde_json::{Map, Value};

use super::{error::MAGIC, form};
use crate::object_type;

/// The wire types of fields.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Returns the bytes of an object with an envelope, which names its type.
pub(super) fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    bytes(1, version.as_bytes(), &mut type_meta);
    bytes(2, kind.as_bytes(), &mut type_meta);
    let mut out = Vec::with_capacity(MAGIC.len() + type_meta.len() + raw.len() + 16);
    out.extend_from_slice(MAGIC);
    bytes(1, &type_meta, &mut out);
    bytes(2, raw, &mut out);
    // The encoding and the type of the content, which are the default ones.
    bytes(3, b"", &mut out);
    bytes(4, b"", &mut out);
    out
}

/// Writes a field of bytes.
pub(super) fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    tag(number, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Writes a field with a number.
pub(super) fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    tag(number, VARINT, out);
    #[expect(clippy::cast_sign_loss, reason = "two's complement is how they are written")]
    varint(value as u64, out);
}

fn tag(number: u32, wire: u8, out: &mut Vec<u8>) {
    varint(u64::from(number << 3) | u64::from(wire), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Encodes messages.
#[derive(Clone, Copy)]
pub(super) struct Encoder {
    pub(super) types: &'static Types,
}

impl Encoder {
    /// Writes the fields of a message.
    pub(super) fn fields(self, all: &Struct, object: &Map<String, Value>, out: &mut Vec<u8>) {
        for (number, numbered) in all.numbered_fields() {
            match numbered {
                Numbered::Field(index) => {
                    let field = &all.fields()[usize::from(index)];
                    self.field(number, field, object.get(field.name()).unwrap_or(&Value::Null), out);
                }
                Numbered::Embedded(ty) => {
                    if let Some(inner) = self.types.get(ty).as_struct() {
                        let mut message = Vec::new();
                        self.fields(inner, object, &mut message);
                        bytes(number, &message, out);
                    }
                }
            }
        }
    }

    fn field(self, number: u32, field: &Field, value: &Value, out: &mut Vec<u8>) {
        let ty = self.types.get(field.ty());
        match (ty.shape(), value) {
            (Shape::List(_), Value::Array(_)) if ty.is_message() => self.one(number, field.ty(), value, out),
            (Shape::List(of), Value::Array(items)) => items.iter().for_each(|item| self.one(number, *of, item, out)),
            (Shape::Map(of), Value::Object(entries)) => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    bytes(1, key.as_bytes(), &mut entry);
                    self.one(2, *of, value, &mut entry);
                    bytes(number, &entry, out);
                }
            }
            // An absent list, map or slice of bytes is nil in Go.
            (Shape::List(_) | Shape::Map(_) | Shape::Bytes, _) if !value.is_string() => {}
            _ if value.is_null() && field.is_pointer() => {}
            _ => self.one(number, field.ty(), value, out),
        }
    }

    /// Writes a value that isn't nil. Null stands for the zero value.
    fn one(self, number: u32, ty: TypeId, value: &Value, out: &mut Vec<u8>) {
        match self.types.get(ty).shape() {
            Shape::String => bytes(number, value.as_str().unwrap_or_default().as_bytes(), out),
            Shape::Bytes => {
                bytes(number, &STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default(), out)
            }
            Shape::Bool => integer(number, i64::from(value.as_bool().unwrap_or_default()), out),
            Shape::Int32 | Shape::Int64 => integer(number, value.as_i64().unwrap_or_default(), out),
            Shape::Float64 => {
                tag(number, FIXED64, out);
                out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            _ => {
                let mut message = Vec::new();
                self.message(ty, value, &mut message);
                bytes(number, &message, out);
            }
        }
    }

    /// Writes the content of a message.
    fn message(self, ty: TypeId, value: &Value, out: &mut Vec<u8>) {
        match (self.types.get(ty).shape(), value) {
            (Shape::Struct(all), Value::Object(fields)) => self.fields(all, fields, out),
            (Shape::Struct(all), _) => self.fields(all, &Map::new(), out),
            // A list in a list or map is a message of its own.
            (Shape::List(of), Value::Array(items)) => items.iter().for_each(|item| self.one(1, *of, item, out)),
            (Shape::Time, Value::String(text)) => form::write_time(text, false, out),
            (Shape::MicroTime, Value::String(text)) => form::write_time(text, true, out),
            (Shape::Quantity, Value::String(text)) => bytes(1, text.as_bytes(), out),
            (Shape::Quantity, _) => bytes(1, b"0", out),
            (Shape::IntOrString, _) => {
                let text = value.as_str();
                integer(1, i64::from(text.is_some()), out);
                integer(2, value.as_i64().unwrap_or_default(), out);
                bytes(3, text.unwrap_or_default().as_bytes(), out);
            }
            (Shape::Any, Value::Null) => {}
            (Shape::Any, _) => bytes(1, &object_type::to_vec(value), out),
            (Shape::SchemaOrArray(schema), Value::Array(items)) => {
                items.iter().for_each(|item| self.one(2, *schema, item, out));
            }
            (Shape::SchemaOrBool(_), Value::Bool(allows)) => integer(1, i64::from(*allows), out),
            (Shape::SchemaOrBool(schema), _) => {
                integer(1, 1, out);
                self.one(2, *schema, value, out);
            }
            (Shape::SchemaOrStrings(_), Value::Array(items)) => {
                let texts = items.iter().filter_map(Value::as_str);
                texts.for_each(|text| bytes(2, text.as_bytes(), out));
            }
            (Shape::SchemaOrArray(schema) | Shape::SchemaOrStrings(schema), _) => self.one(1, *schema, value, out),
            _ => {}
        }
    }
}
