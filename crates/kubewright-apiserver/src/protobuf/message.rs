//! Table-driven decoding of messages to JSON.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::{decode, depth};
use serde_json::{Map, Number, Value};

use super::{
    error::ProtobufError,
    form::Form,
    table::{Cardinality, Field, Kind, Message, Table},
    wire::{self, Payload, Reader},
};

/// The maximum nesting of messages. Only messages that are objects in JSON also nest there.
const DEPTH_LIMIT: usize = 2 * depth::LIMIT;

/// Decodes messages.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    pub(super) table: &'static Table,
}

impl Decoder {
    /// Adds the fields of a message to an object. Repeated occurrences of a field are replaced, appended or merged, as
    /// protobuf specifies.
    pub(super) fn fields(
        self,
        message: &Message,
        bytes: &[u8],
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > DEPTH_LIMIT {
            return Err(ProtobufError::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        while let Some(wire::Field { number, payload }) = reader.field()? {
            let Some(field) = message.field(number) else { continue };
            match field.cardinality {
                Cardinality::One => self.one(field, payload, into, depth)?,
                Cardinality::List => self.item(field, payload, into, depth)?,
                Cardinality::Map => self.entry(field, payload, into, depth)?,
            }
        }
        Ok(())
    }

    fn one(
        self,
        field: &Field,
        payload: Payload<'_>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if let Kind::Message(index) = field.kind
            && self.table.message(index).form == Form::Object
        {
            let message = self.table.message(index);
            let bytes = payload.bytes(field.name)?;
            if field.name.is_empty() {
                return self.fields(message, bytes, into, depth + 1);
            }
            // Field names are unique within a message, which a test checks, so the field is an object or absent.
            let Some(into) = object(into, field.name) else { return Ok(()) };
            return self.fields(message, bytes, into, depth + 1);
        }
        let value = self.value(field, payload, depth)?;
        if value.is_null() || (field.omit_zero && is_zero(&value)) {
            into.remove(field.name);
        } else {
            into.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    fn item(
        self,
        field: &Field,
        payload: Payload<'_>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let Some(items) = list(into, field.name) else { return Ok(()) };
        match (field.kind, payload) {
            // Repeated numbers may be encoded one by one or packed.
            (Kind::Bool | Kind::Int32 | Kind::Int64, Payload::Bytes(bytes)) => {
                Reader::new(bytes).packed(|number| items.push(integer(field.kind, number)))
            }
            _ => {
                items.push(self.value(field, payload, depth)?);
                Ok(())
            }
        }
    }

    fn entry(
        self,
        field: &Field,
        payload: Payload<'_>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(payload.bytes(field.name)?);
        let mut key = "";
        let mut value = None;
        while let Some(wire::Field { number, payload }) = reader.field()? {
            match number {
                1 => key = payload.text(field.name)?,
                2 => value = Some(payload),
                _ => {}
            }
        }
        // An absent key or value is empty. All map values in the table have length-delimited types.
        let value = self.value(field, value.unwrap_or(Payload::Bytes(&[])), depth)?;
        if let Some(entries) = object(into, field.name) {
            entries.insert(key.to_owned(), value);
        }
        Ok(())
    }

    fn value(self, field: &Field, payload: Payload<'_>, depth: usize) -> Result<Value, ProtobufError> {
        let name = field.name;
        let wrong = |why: String| ProtobufError::Value { field: name.to_owned(), why };
        match field.kind {
            Kind::String => Ok(payload.text(name)?.into()),
            Kind::Bytes => Ok(STANDARD.encode(payload.bytes(name)?).into()),
            Kind::Bool | Kind::Int32 | Kind::Int64 => Ok(integer(field.kind, payload.varint(name)?)),
            Kind::Double => {
                let number = Number::from_f64(payload.double(name)?);
                number.map(Value::Number).ok_or_else(|| wrong("JSON has no such number".into()))
            }
            Kind::Json => match payload.bytes(name)? {
                [] => Ok(Value::Null),
                text => {
                    let decoded = decode::json(text);
                    let json = |source| ProtobufError::Json { field: name.to_owned(), source };
                    decoded.map(|decoded| decoded.value).map_err(json)
                }
            },
            Kind::Message(index) => {
                let message = self.table.message(index);
                let mut fields = Map::new();
                self.fields(message, payload.bytes(name)?, &mut fields, depth + 1)?;
                message.form.value(fields).map_err(wrong)
            }
        }
    }
}

/// Decodes a boolean or an integer. An `int32` loses the upper bits of larger numbers, as protobuf specifies.
#[expect(
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "two's complement is how they are written"
)]
fn integer(kind: Kind, number: u64) -> Value {
    match kind {
        Kind::Bool => (number != 0).into(),
        Kind::Int32 => (number as i32).into(),
        _ => (number as i64).into(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// Returns the object in a field, which is added if absent.
fn object<'a>(into: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    into.entry(name).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// Returns the list in a field, which is added if absent.
fn list<'a>(into: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Vec<Value>> {
    into.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}
