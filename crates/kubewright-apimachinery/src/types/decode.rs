//! Decoding: an object is checked and rewritten as if it had passed through its Go struct.

use std::{fmt, mem};

use serde_json::{Map, Number, Value};

use super::{
    Field, Numbered, Omit, Shape, Struct, Type, TypeId, Types, base64, quantity,
    time::{self, Precision},
};
use crate::{decode::untyped_numbers, document_order};

/// The maximum number of unknown fields that are reported.
const UNKNOWN_LIMIT: usize = 100;
/// The maximum number of values of wrong types of which the first is searched.
const WRONG_LIMIT: usize = 100;

/// The result of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decoded {
    /// The paths of the removed fields, which the type doesn't declare: `spec.foo`, `spec.containers[0].foo`.
    pub unknown: Vec<String>,
    /// Whether there was an empty list or map outside of the metadata, which Go distinguishes from an absent one until
    /// the object is stored.
    pub has_empty: bool,
}

/// The error that values of an object have wrong types, in the words of Go's decoder, such as
/// `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
///
/// Go reports one of several values. The text of this error is about the first by the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongTypes(Vec<WrongType>);

/// A value of a wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrongType {
    path: String,
    why: String,
    /// Whether its type decodes itself. Its error then ends the decoding, while Go's decoder goes on after others, and
    /// reports the first of them at the end.
    ends: bool,
}

impl WrongTypes {
    /// Returns the values of which Go reports the first.
    fn reported(&self) -> impl Iterator<Item = &WrongType> {
        let ends = self.0.iter().any(|wrong| wrong.ends);
        self.0.iter().filter(move |wrong| wrong.ends == ends)
    }

    /// Returns the error about the first value in the JSON text of the object.
    pub fn in_document(&self, text: &[u8]) -> &str {
        let fields: Vec<_> = self.reported().map(|wrong| (wrong.path.as_str(), 0)).collect();
        let places = if fields.len() > 1 { document_order::places(text, &fields) } else { vec![0] };
        let first = self.reported().zip(places).min_by_key(|(_, place)| *place);
        first.map_or("", |(wrong, _)| wrong.why.as_str())
    }
}

impl fmt::Display for WrongTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reported().next().map_or(Ok(()), |wrong| f.write_str(&wrong.why))
    }
}

impl std::error::Error for WrongTypes {}

impl Types {
    /// Rewrites an object as Go would write it after reading it into the struct `ty`:
    ///
    /// * Fields that the struct doesn't declare are removed and reported.
    /// * Times, quantities, base64 and numbers get their canonical form.
    /// * A field that is null, or empty and not required, is removed: Go doesn't distinguish it from an absent one,
    ///   unless it is a pointer or marked as `empty`. A null in a list or map becomes the zero value.
    /// * An empty list or map that Go writes even if it is empty is kept, until the object is
    ///   [stored](Types::complete_stored).
    ///
    /// Fields that Go writes although they were not sent are not added. [`Types::complete`] does this.
    ///
    /// # Errors
    /// Returns the error of Go's decoder about values of wrong types. The object is then partly rewritten.
    pub fn decode(&self, ty: TypeId, object: &mut Value) -> Result<Decoded, WrongTypes> {
        let mut decoder = Decoder { types: self, decoded: Decoded::default(), wrong: Vec::new() };
        decoder.value(self.get(ty), object, &Place::Root);
        if decoder.wrong.is_empty() { Ok(decoder.decoded) } else { Err(WrongTypes(decoder.wrong)) }
    }

    /// Returns whether Go's field would have its zero value.
    pub(super) fn is_zero(&self, ty: &Type, value: &Value) -> bool {
        match value {
            Value::Null => true,
            // The bytes of a value of any type aren't empty.
            _ if matches!(ty.shape, Shape::Any) => false,
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_i64() == Some(0) || number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty() || (matches!(ty.shape, Shape::Quantity) && text == "0"),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
        }
    }
}

impl Types {
    /// Adds the names of the structs that a field belongs to within the one that they are embedded in.
    fn embedding(&self, owner: &Type, name: &str, path: &mut Vec<String>) {
        let numbers = owner.as_struct().into_iter().flat_map(|owner| &owner.numbers);
        let mut embedded = numbers.filter_map(|(_, target)| match target {
            Numbered::Embedded(id) => Some(self.get(*id)),
            Numbered::Field(_) => None,
        });
        if let Some(inner) = embedded.find(|inner| inner.as_struct().is_some_and(|inner| inner.field(name).is_some())) {
            path.push(inner.local.to_string());
            self.embedding(inner, name, path);
        }
    }

    fn mismatch(&self, ty: &Type, value: &Value, place: &Place<'_>) -> String {
        let wanted = match ty.shape {
            // These types decode another type themselves.
            Shape::Time | Shape::MicroTime => "string",
            Shape::IntOrString => "int32",
            _ => &ty.go(),
        };
        self.unexpected(value, wanted, place)
    }

    fn unexpected(&self, value: &Value, wanted: &str, place: &Place<'_>) -> String {
        let is_integer = matches!(wanted, "int32" | "int64" | "uint8");
        let found = match value {
            Value::Number(number) if is_integer => format!("number {number}"),
            other => json_type(other).to_owned(),
        };
        match place.owner() {
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            Some(owner) => {
                let owner = &owner.local;
                format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}",
                    place.fields(self).join(".")
                )
            }
        }
    }
}

/// The position of a value.
enum Place<'a> {
    Root,
    /// A field, and the struct that declares it.
    Field(&'a Place<'a>, &'a Type, &'a str),
    Item(&'a Place<'a>, usize),
    Key(&'a Place<'a>, &'a str),
}

impl Place<'_> {
    /// Returns the path in Go's messages, which consists of the fields of structs alone, embedded ones among them.
    fn fields(&self, types: &Types) -> Vec<String> {
        match self {
            Self::Root => Vec::new(),
            Self::Item(parent, _) | Self::Key(parent, _) => parent.fields(types),
            Self::Field(parent, owner, name) => {
                let mut path = parent.fields(types);
                types.embedding(owner, name, &mut path);
                path.push((*name).to_owned());
                path
            }
        }
    }

    /// Returns whether the position is in the metadata of the object.
    fn is_in_metadata(&self) -> bool {
        match self {
            Self::Root => false,
            Self::Field(Self::Root, _, name) => *name == "metadata",
            Self::Field(parent, ..) | Self::Item(parent, _) | Self::Key(parent, _) => parent.is_in_metadata(),
        }
    }

    /// Returns the struct of the last field on the path.
    fn owner(&self) -> Option<&Type> {
        match self {
            Self::Root => None,
            Self::Item(parent, _) | Self::Key(parent, _) => parent.owner(),
            Self::Field(_, owner, _) => Some(owner),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, _, name) | Self::Key(Self::Root, name) => f.write_str(name),
            Self::Field(parent, _, name) | Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Decoder<'a> {
    types: &'a Types,
    decoded: Decoded,
    wrong: Vec<WrongType>,
}

impl Decoder<'_> {
    /// Decodes a value. Records it if it is of a wrong type.
    fn value(&mut self, ty: &Type, value: &mut Value, place: &Place<'_>) {
        match (&ty.shape, &mut *value) {
            (Shape::Struct(all), Value::Object(fields)) => self.fields(ty, all, fields, place),
            (Shape::Map(of), Value::Object(entries)) => {
                self.entries(*of, entries, place);
                if ty.local == "ResourceList" {
                    entries.values_mut().for_each(round_amount);
                }
            }
            (Shape::List(of), Value::Array(items)) => self.items(*of, items, place),
            _ => {
                if let Err(why) = self.leaf(ty, value, place)
                    && self.wrong.len() < WRONG_LIMIT
                {
                    self.wrong.push(WrongType { path: place.to_string(), why, ends: decodes_itself(&ty.shape) });
                }
            }
        }
    }

    /// Decodes a value that is no struct, map or list, or isn't decoded as such.
    fn leaf(&mut self, ty: &Type, value: &mut Value, place: &Place<'_>) -> Result<(), String> {
        match (&ty.shape, &mut *value) {
            (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => Ok(()),
            (Shape::Any, _) => {
                untyped_numbers(value);
                Ok(())
            }
            (Shape::Int32 | Shape::Int64, Value::Number(number)) if fits(&ty.shape, number) => Ok(()),
            (Shape::Float64, Value::Number(number)) => {
                shorten(number);
                Ok(())
            }
            (Shape::Time, Value::String(text)) => rewrite_time(value_of(text, Precision::Seconds)?, value),
            (Shape::MicroTime, Value::String(text)) => rewrite_time(value_of(text, Precision::Micros)?, value),
            (Shape::Quantity, _) => quantity(value),
            (Shape::IntOrString, Value::String(_)) => Ok(()),
            (Shape::IntOrString, Value::Number(number)) if fits(&Shape::Int32, number) => Ok(()),
            (Shape::Bytes, Value::String(text)) => bytes(text),
            (Shape::Bytes, Value::Array(items)) => {
                *value = numbers(self.types, items, place)?;
                Ok(())
            }
            (Shape::SchemaOrArray(schema), _) => self.schemas(*schema, value),
            (Shape::SchemaOrBool(schema), _) => self.schema_or_bool(*schema, value),
            (Shape::SchemaOrStrings(schema), _) => self.schema_or_strings(*schema, value),
            // Null leaves Go's value unchanged.
            (_, Value::Null) => Ok(()),
            _ => Err(self.types.mismatch(ty, value, place)),
        }
    }

    fn fields(&mut self, ty: &Type, all: &Struct, fields: &mut Map<String, Value>, place: &Place<'_>) {
        fields.retain(|name, value| {
            let place = Place::Field(place, ty, name);
            let Some(field) = all.field(name) else {
                if self.decoded.unknown.len() < UNKNOWN_LIMIT {
                    self.decoded.unknown.push(place.to_string());
                }
                return false;
            };
            if value.is_null() {
                return false;
            }
            let of = self.types.get(field.ty);
            self.value(of, value, &place);
            self.decoded.has_empty |= is_empty_collection(of, value) && !place.is_in_metadata();
            // An empty list of owners removes them.
            let resets = field.name == "managedFields" && value.is_array() && place.is_in_metadata();
            resets || !self.is_left_out(field, of, value)
        });
    }

    /// Returns whether a field that was sent is equivalent to an absent one.
    fn is_left_out(&self, field: &Field, ty: &Type, value: &Value) -> bool {
        match value {
            _ if field.pointer => false,
            // Such as the zero time.
            Value::Null => true,
            // Empty lists and maps aren't stored, but until then those that Go always writes differ from null.
            Value::Array(items) => {
                items.is_empty() && field.omit != Omit::Never && !field.marks().is_some_and(|marks| marks.empty)
            }
            Value::Object(entries) if matches!(ty.shape, Shape::Map(_)) => {
                entries.is_empty() && field.omit != Omit::Never
            }
            _ => (field.omit != Omit::Never || !field.required) && self.types.is_zero(ty, value),
        }
    }

    fn items(&mut self, of: TypeId, items: &mut [Value], place: &Place<'_>) {
        let of = self.types.get(of);
        for (index, item) in items.iter_mut().enumerate() {
            self.element(of, item, &Place::Item(place, index));
        }
    }

    fn entries(&mut self, of: TypeId, entries: &mut Map<String, Value>, place: &Place<'_>) {
        let of = self.types.get(of);
        for (name, entry) in entries.iter_mut() {
            self.element(of, entry, &Place::Key(place, name));
        }
    }

    /// Decodes an item of a list or an entry of a map, in which null is the zero value.
    fn element(&mut self, of: &Type, value: &mut Value, place: &Place<'_>) {
        if value.is_null() {
            *value = match of.shape {
                Shape::Struct(_) => Value::Object(Map::new()),
                Shape::Bytes => Value::String(String::new()),
                _ => self.types.zero(of),
            };
            return;
        }
        self.value(of, value, place);
    }

    /// Decodes a part that a Go type decodes by itself: unknown fields in it are removed, but not reported, and errors
    /// begin with its own type.
    fn apart(&mut self, ty: TypeId, value: &mut Value) -> Result<(), String> {
        let (known, outside) = (self.decoded.unknown.len(), mem::take(&mut self.wrong));
        self.value(self.types.get(ty), value, &Place::Root);
        self.decoded.unknown.truncate(known);
        let inside = WrongTypes(mem::replace(&mut self.wrong, outside));
        if inside.0.is_empty() { Ok(()) } else { Err(inside.to_string()) }
    }

    fn schemas(&mut self, schema: TypeId, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Object(_) => self.apart(schema, value),
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    if item.is_null() {
                        *item = Value::Object(Map::new());
                    }
                    self.apart(schema, item)?;
                }
                Ok(())
            }
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }

    fn schema_or_bool(&mut self, schema: TypeId, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Object(_) => self.apart(schema, value),
            Value::Bool(_) => Ok(()),
            _ => Err("boolean or JSON schema expected".to_owned()),
        }
    }

    fn schema_or_strings(&mut self, schema: TypeId, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Object(_) => self.apart(schema, value),
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    match item {
                        Value::Null => *item = Value::String(String::new()),
                        Value::String(_) => {}
                        other => {
                            let found = json_type(other);
                            return Err(format!("json: cannot unmarshal {found} into Go value of type string"));
                        }
                    }
                }
                Ok(())
            }
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }
}

/// Returns whether a value is an empty list or map.
pub(super) fn is_empty_collection(ty: &Type, value: &Value) -> bool {
    match (&ty.shape, value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(entries)) => entries.is_empty(),
        _ => false,
    }
}

/// Returns whether a Go type has a decoder of its own.
fn decodes_itself(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrStrings(_)
    )
}

fn fits(shape: &Shape, number: &Number) -> bool {
    number.as_i64().is_some_and(|number| !matches!(shape, Shape::Int32) || i32::try_from(number).is_ok())
}

/// Writes a whole number without a fraction, as Go does.
fn shorten(number: &mut Number) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT)
    {
        #[expect(clippy::cast_possible_truncation, reason = "the number is whole and within the exact range")]
        {
            *number = Number::from(float as i64);
        }
    }
}

/// Returns the canonical form of a time, or `None` if it is canonical already.
fn value_of(text: &str, precision: Precision) -> Result<Option<Value>, String> {
    if time::is_canonical(text, precision) {
        return Ok(None);
    }
    Ok(Some(time::canonical(text, precision)?.map_or(Value::Null, Value::String)))
}

fn rewrite_time(canonical: Option<Value>, value: &mut Value) -> Result<(), String> {
    if let Some(canonical) = canonical {
        *value = canonical;
    }
    Ok(())
}

fn quantity(value: &mut Value) -> Result<(), String> {
    let canonical = match value {
        Value::Null => return Ok(()),
        Value::String(text) => match quantity::canonical(text)? {
            canonical if canonical == *text => return Ok(()),
            canonical => canonical.into_owned(),
        },
        Value::Number(number) => quantity::canonical(&number.to_string())?.into_owned(),
        _ => return Err(quantity::FORMAT.to_owned()),
    };
    *value = Value::String(canonical);
    Ok(())
}

/// Rounds an amount of a resource to thousandths, as the defaults of Kubernetes do.
fn round_amount(amount: &mut Value) {
    if let Some(rounded) = amount.as_str().and_then(quantity::rounded_to_milli) {
        *amount = Value::String(rounded);
    }
}

fn bytes(text: &mut String) -> Result<(), String> {
    match base64::canonical(text) {
        Ok(canonical) if canonical == *text => Ok(()),
        Ok(canonical) => {
            *text = canonical.into_owned();
            Ok(())
        }
        Err(at) => Err(format!("illegal base64 data at input byte {at}")),
    }
}

/// Go also reads bytes from a list of numbers.
fn numbers(types: &Types, items: &[Value], place: &Place<'_>) -> Result<Value, String> {
    let byte = |(index, item): (usize, &Value)| match item.as_u64().and_then(|number| u8::try_from(number).ok()) {
        Some(byte) => Ok(byte),
        None if item.is_null() => Ok(0),
        None => Err(types.unexpected(item, "uint8", &Place::Item(place, index))),
    };
    let bytes = items.iter().enumerate().map(byte).collect::<Result<Vec<_>, _>>()?;
    Ok(Value::String(base64::encode(&bytes)))
}

/// Returns the name of a JSON type as Go's decoder writes it in error messages, such as `bool`.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
