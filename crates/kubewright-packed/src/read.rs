//! A serde [`Deserializer`] of tokens.

use std::{borrow::Cow, mem, str};

use serde::{
    Deserializer,
    de::{
        self, DeserializeSeed, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess,
        Visitor,
    },
    forward_to_deserialize_any,
};
use thiserror::Error;

use super::{
    dictionary::Shared,
    marks::ReadMarks,
    token::{Token, Tokens, show_time},
};

/// The error of a read: the object doesn't match the type, or its bytes are malformed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ReadError(String);

impl ReadError {
    pub(super) fn cut_off() -> Self {
        Self("the packed object is cut off".into())
    }
}

impl de::Error for ReadError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A deserializer of the next value.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    pub(super) tokens: Tokens<'a>,
    pub(super) shared: &'a Shared,
    /// The tokens that follow the shared lists and maps that were entered, the last entered last.
    pub(super) outer: Vec<Tokens<'a>>,
    /// The set in which values are marked as read.
    pub(super) marks: Option<&'a ReadMarks>,
    /// Nothing is marked while this many pieces of the tokens remain.
    pub(super) unmarked: usize,
}

impl<'a> Reader<'a> {
    fn mark(&self) {
        if let Some(marks) = self.marks
            && self.tokens.pieces_left() < self.unmarked
        {
            marks.set(self.tokens.at());
        }
    }

    /// Skips the rest of a list or map, and its end.
    fn leave(&mut self) {
        while !self.tokens.is_at_end() {
            self.tokens.pass();
        }
        self.tokens.next();
        if self.tokens.is_empty()
            && let Some(outer) = self.outer.pop()
        {
            self.tokens = outer;
        }
    }

    /// Returns the next token and marks it as read.
    fn take(&mut self) -> Result<Token<'a>, ReadError> {
        self.mark();
        self.next()
    }

    /// Returns the next token. A shared list or map is entered: the token is its first.
    fn next(&mut self) -> Result<Token<'a>, ReadError> {
        match self.tokens.next().ok_or_else(ReadError::cut_off)? {
            Token::SharedValue(number) => self.enter(number),
            token => Ok(token),
        }
    }

    /// Continues with the tokens of a shared list or map, and returns the first.
    fn enter(&mut self, number: u64) -> Result<Token<'a>, ReadError> {
        let inner = Tokens::new(self.shared.value(number).ok_or_else(ReadError::cut_off)?);
        self.outer.push(mem::replace(&mut self.tokens, inner));
        self.tokens.next().ok_or_else(ReadError::cut_off)
    }

    /// Returns the next text: the key of an entry, or the name of a variant.
    #[inline]
    fn text(&mut self) -> Result<Cow<'a, str>, ReadError> {
        // The common case, which is cheaper than what follows.
        if let Some(text) = self.plain_text()? {
            return Ok(text.into());
        }
        let token = self.tokens.next().ok_or_else(ReadError::cut_off)?;
        self.shown(token)?.ok_or_else(ReadError::cut_off)
    }

    /// Returns the next text if it is written in place.
    #[inline]
    fn plain_text(&mut self) -> Result<Option<&'a str>, ReadError> {
        let text = self.tokens.text().map(str::from_utf8);
        text.transpose().map_err(|_| ReadError::cut_off())
    }

    /// Returns the text of a token that stands for one.
    fn shown(&self, token: Token<'a>) -> Result<Option<Cow<'a, str>>, ReadError> {
        Ok(Some(match token {
            Token::Text(text) => text.into(),
            Token::Shared(number) => self.shared.string(number).ok_or_else(ReadError::cut_off)?.into(),
            Token::Uuid(uuid) => uuid.to_string().into(),
            Token::Hash(hash) => hash.to_string().into(),
            Token::Time(seconds) => show_time(seconds).ok_or_else(ReadError::cut_off)?.into(),
            _ => return Ok(None),
        }))
    }

    fn visit_list<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ReadError> {
        let value = visitor.visit_seq(Elements(self))?;
        self.leave();
        Ok(value)
    }

    fn visit_map<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ReadError> {
        let value = visitor.visit_map(MapEntries(self))?;
        self.leave();
        Ok(value)
    }

    /// The error for a value of an unexpected type.
    #[cold]
    fn unexpected(&self, token: Token<'a>, expected: &dyn Expected) -> ReadError {
        let text = self.shown(token).ok().flatten().unwrap_or_default();
        let found = match token {
            Token::Null => Unexpected::Unit,
            Token::Bool(value) => Unexpected::Bool(value),
            Token::Unsigned(value) => Unexpected::Unsigned(value),
            Token::Negative(value) => Unexpected::Signed(i64::try_from(value).map_or(i64::MIN, |value| -1 - value)),
            Token::Float(value) => Unexpected::Float(value),
            Token::List => Unexpected::Seq,
            Token::Map => Unexpected::Map,
            Token::End | Token::SharedValue(_) => return ReadError::cut_off(),
            Token::Text(_) | Token::Shared(_) | Token::Uuid(_) | Token::Hash(_) | Token::Time(_) => {
                Unexpected::Str(&text)
            }
        };
        de::Error::invalid_type(found, expected)
    }
}

fn negative(value: u64) -> Result<i64, ReadError> {
    i64::try_from(value).map(|value| -1 - value).map_err(|_| ReadError::cut_off())
}

macro_rules! numbers {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            match self.take()? {
                Token::Unsigned(value) => visitor.visit_u64(value),
                Token::Negative(value) => visitor.visit_i64(negative(value)?),
                Token::Float(value) => visitor.visit_f64(value),
                token => Err(self.unexpected(token, &visitor)),
            }
        }
    )*};
}

macro_rules! texts {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            self.mark();
            if let Some(text) = self.plain_text()? {
                return visitor.visit_str(text);
            }
            let token = self.next()?;
            match self.shown(token)? {
                Some(text) => visitor.visit_str(&text),
                None => Err(self.unexpected(token, &visitor)),
            }
        }
    )*};
}

/// Only the shape that a type asks for is tried: each further shape would add code for each type.
impl<'de> Deserializer<'de> for &mut Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::Null => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(value) => visitor.visit_u64(value),
            Token::Negative(value) => visitor.visit_i64(negative(value)?),
            Token::Float(value) => visitor.visit_f64(value),
            Token::List => self.visit_list(visitor),
            Token::Map => self.visit_map(visitor),
            token => visitor.visit_str(&self.shown(token)?.ok_or_else(ReadError::cut_off)?),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::Bool(value) => visitor.visit_bool(value),
            token => Err(self.unexpected(token, &visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_f32 deserialize_f64
    }

    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::Null => visitor.visit_unit(),
            token => Err(self.unexpected(token, &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::List => self.visit_list(visitor),
            token => Err(self.unexpected(token, &visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::Map => self.visit_map(visitor),
            token => Err(self.unexpected(token, &visitor)),
        }
    }

    /// Accepts the list of the field values too, as serde_json does.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.take()? {
            Token::Map => self.visit_map(visitor),
            Token::List => self.visit_list(visitor),
            token => Err(self.unexpected(token, &visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.tokens.pass();
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.tokens.is_at_null() {
            self.mark();
            self.tokens.next();
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    /// As in serde_json: a string is a variant without content, a map with one entry is a variant with content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let token = self.take()?;
        if token != Token::Map {
            return match self.shown(token)? {
                Some(text) => visitor.visit_enum(IntoDeserializer::<ReadError>::into_deserializer(text.as_ref())),
                None => Err(self.unexpected(token, &visitor)),
            };
        }
        let value = visitor.visit_enum(Variant(self))?;
        if !self.tokens.is_at_end() {
            return Err(de::Error::custom("expected a map with one entry"));
        }
        self.leave();
        Ok(value)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_seq(visitor)
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf }
}

/// The elements of an entered list.
struct Elements<'r, 'a>(&'r mut Reader<'a>);

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        if self.0.tokens.is_at_end() {
            return Ok(None);
        }
        seed.deserialize(&mut *self.0).map(Some)
    }
}

/// The entries of an entered map.
struct MapEntries<'r, 'a>(&'r mut Reader<'a>);

impl<'de> MapAccess<'de> for MapEntries<'_, '_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        if self.0.tokens.is_at_end() {
            return Ok(None);
        }
        seed.deserialize(Text(&self.0.text()?)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(&mut *self.0)
    }
}

/// The variant of an enum whose map was entered.
struct Variant<'r, 'a>(&'r mut Reader<'a>);

impl<'r, 'de, 'a> EnumAccess<'de> for Variant<'r, 'a> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ReadError> {
        let variant = seed.deserialize(Text(&self.0.text()?))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        de::Deserialize::deserialize(self.0)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.0.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.0.deserialize_struct("", fields, visitor)
    }
}

/// The key of a map: text that is parsed if the type is a number or a boolean.
struct Text<'a>(&'a str);

macro_rules! parsed {
    ($($deserialize:ident $visit:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_enum(IntoDeserializer::<ReadError>::into_deserializer(self.0))
    }

    parsed! {
        deserialize_bool visit_bool
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
