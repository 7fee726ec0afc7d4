//! Decoding of messages to JSON by their types.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::{
    decode, depth,
    types::{Field, Numbered, Omit, Shape, Struct, TypeId, Types},
};
use serde_json::{Map, Number, Value};

use super::{
    error::ProtobufError,
    form::{self, each, last},
    wire::{self, Payload, Reader},
};

/// The maximum nesting of messages. Only messages that are objects in JSON also nest there.
const DEPTH_LIMIT: usize = 2 * depth::LIMIT;

/// Decodes messages.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    pub(super) types: &'static Types,
}

impl Decoder {
    /// Adds the fields of a message to an object. Repeated occurrences of a field are replaced, appended or merged, as
    /// protobuf specifies.
    pub(super) fn fields(
        self,
        all: &Struct,
        bytes: &[u8],
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        if depth > DEPTH_LIMIT {
            return Err(ProtobufError::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        while let Some(wire::Field { number, payload }) = reader.field()? {
            match all.numbered(number) {
                Some(Numbered::Field(index)) => {
                    let field = &all.fields()[usize::from(index)];
                    let ty = self.types.get(field.ty());
                    match ty.shape() {
                        Shape::List(of) if !ty.is_message() => self.item(field, *of, payload, into, depth)?,
                        Shape::Map(of) => self.entry(field, *of, payload, into, depth)?,
                        Shape::Struct(inner) => {
                            // Field names are unique within a message, so the field is an object or absent.
                            let Some(into) = object(into, field.name()) else { continue };
                            self.fields(inner, payload.bytes(field.name())?, into, depth + 1)?;
                        }
                        _ => self.one(field, payload, into, depth)?,
                    }
                }
                Some(Numbered::Embedded(ty)) => {
                    if let Some(inner) = self.types.get(ty).as_struct() {
                        self.fields(inner, payload.bytes("")?, into, depth + 1)?;
                    }
                }
                None => {}
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
        let value = self.value(field.name(), field.ty(), payload, depth)?;
        // Go encodes such a field in protobuf even if it is zero, and omits it in JSON.
        let omits_zero = field.omit() != Omit::Never && !field.is_pointer();
        if value.is_null() || (omits_zero && is_zero(&value)) {
            into.remove(field.name());
        } else {
            into.insert(field.name().to_owned(), value);
        }
        Ok(())
    }

    fn item(
        self,
        field: &Field,
        of: TypeId,
        payload: Payload<'_>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let Some(items) = list(into, field.name()) else { return Ok(()) };
        match (self.types.get(of).shape(), payload) {
            // Repeated numbers may be encoded one by one or packed.
            (shape @ (Shape::Bool | Shape::Int32 | Shape::Int64), Payload::Bytes(bytes)) => {
                Reader::new(bytes).packed(|number| items.push(integer(shape, number)))
            }
            _ => {
                items.push(self.value(field.name(), of, payload, depth)?);
                Ok(())
            }
        }
    }

    fn entry(
        self,
        field: &Field,
        of: TypeId,
        payload: Payload<'_>,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(payload.bytes(field.name())?);
        let mut key = "";
        let mut value = None;
        while let Some(wire::Field { number, payload }) = reader.field()? {
            match number {
                1 => key = payload.text(field.name())?,
                2 => value = Some(payload),
                _ => {}
            }
        }
        // An absent key or value is empty.
        let absent = match self.types.get(of).shape() {
            Shape::Bool | Shape::Int32 | Shape::Int64 => Payload::Varint(0),
            _ => Payload::Bytes(&[]),
        };
        let value = self.value(field.name(), of, value.unwrap_or(absent), depth)?;
        if let Some(entries) = object(into, field.name()) {
            entries.insert(key.to_owned(), value);
        }
        Ok(())
    }

    /// Decodes a value. `name` is that of the field, for errors.
    fn value(self, name: &str, ty: TypeId, payload: Payload<'_>, depth: usize) -> Result<Value, ProtobufError> {
        match self.types.get(ty).shape() {
            Shape::String => Ok(payload.text(name)?.into()),
            Shape::Bytes => Ok(STANDARD.encode(payload.bytes(name)?).into()),
            shape @ (Shape::Bool | Shape::Int32 | Shape::Int64) => Ok(integer(shape, payload.varint(name)?)),
            Shape::Float64 => {
                let number = Number::from_f64(payload.double(name)?).map(Value::Number);
                number.ok_or_else(|| ProtobufError::value(name, "JSON has no such number"))
            }
            Shape::Struct(all) => {
                let mut fields = Map::new();
                self.fields(all, payload.bytes(name)?, &mut fields, depth + 1)?;
                Ok(Value::Object(fields))
            }
            Shape::List(of) => self.nested_list(name, *of, payload, depth),
            // No message contains a map but as a field.
            Shape::Map(_) => Ok(Value::Null),
            special => self.special(special, name, payload.bytes(name)?, depth),
        }
    }

    /// Decodes a list that isn't a repeated field, such as `ExtraValue` in a map. It is a message whose first field
    /// contains the items.
    fn nested_list(self, name: &str, of: TypeId, payload: Payload<'_>, depth: usize) -> Result<Value, ProtobufError> {
        let mut items = Vec::new();
        let mut reader = Reader::new(payload.bytes(name)?);
        while let Some(wire::Field { number, payload }) = reader.field()? {
            if number == 1 {
                items.push(self.value(name, of, payload, depth + 1)?);
            }
        }
        Ok(Value::Array(items))
    }

    /// Decodes a message that isn't an object in JSON.
    fn special(self, shape: &Shape, name: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        match shape {
            Shape::Time => form::time(name, bytes),
            Shape::MicroTime => form::micro_time(name, bytes),
            Shape::IntOrString => form::int_or_string(name, bytes),
            Shape::Quantity => {
                let text = last(bytes, 1)?.map(|payload| payload.text(name)).transpose()?;
                Ok(text.map(Value::from).unwrap_or_default())
            }
            Shape::Any => last(bytes, 1)?.map_or(Ok(Value::Null), |payload| json(name, payload.bytes(name)?)),
            Shape::SchemaOrArray(schema) => {
                let items = self.items(*schema, name, bytes, depth)?;
                if items.is_empty() { self.schema(*schema, name, bytes, 1, depth) } else { Ok(items.into()) }
            }
            Shape::SchemaOrBool(schema) => match self.schema(*schema, name, bytes, 2, depth)? {
                Value::Null => {
                    let allows = last(bytes, 1)?.map_or(Ok(0), |allows| allows.varint(name))?;
                    Ok((allows != 0).into())
                }
                schema => Ok(schema),
            },
            Shape::SchemaOrStrings(schema) => {
                let mut items: Vec<Value> = Vec::new();
                each(bytes, 2, |payload| {
                    items.push(payload.text(name)?.into());
                    Ok(())
                })?;
                if items.is_empty() { self.schema(*schema, name, bytes, 1, depth) } else { Ok(items.into()) }
            }
            _ => Err(ProtobufError::value(name, "the type has no protobuf form")),
        }
    }

    /// Returns the schema in the fields with a number, or null.
    fn schema(
        self,
        schema: TypeId,
        name: &str,
        bytes: &[u8],
        number: u32,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let Some(all) = self.types.get(schema).as_struct() else { return Ok(Value::Null) };
        let mut found: Option<Map<String, Value>> = None;
        each(bytes, number, |payload| {
            self.fields(all, payload.bytes(name)?, found.get_or_insert_default(), depth + 1)
        })?;
        Ok(found.map(Value::Object).unwrap_or_default())
    }

    /// Returns the schemas in the list of a `JSONSchemaPropsOrArray`.
    fn items(self, schema: TypeId, name: &str, bytes: &[u8], depth: usize) -> Result<Vec<Value>, ProtobufError> {
        let mut items = Vec::new();
        each(bytes, 2, |payload| {
            items.push(self.value(name, schema, payload, depth + 1)?);
            Ok(())
        })?;
        Ok(items)
    }
}

/// Decodes JSON in a field; null if it is empty.
fn json(name: &str, text: &[u8]) -> Result<Value, ProtobufError> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let error = |source| ProtobufError::Json { field: name.to_owned(), source };
    decode::json(text).map(|decoded| decoded.value).map_err(error)
}

/// Decodes a boolean or an integer. An `int32` loses the upper bits of larger numbers, as protobuf specifies.
#[expect(
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "two's complement is how they are written"
)]
fn integer(shape: &Shape, number: u64) -> Value {
    match shape {
        Shape::Bool => (number != 0).into(),
        Shape::Int32 => (number as i32).into(),
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
