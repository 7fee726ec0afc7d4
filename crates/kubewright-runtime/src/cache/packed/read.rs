//! Tokens as a serde [`Deserializer`]: from packed bytes to a type, with nothing in between.

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor},
    forward_to_deserialize_any,
};
use thiserror::Error;

use super::{
    dictionary::Strings,
    marks::Marks,
    token::{Token, Tokens, show_time},
};

/// Why an object isn't what a type says, in serde's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(in crate::cache) struct Unreadable(String);

impl Unreadable {
    pub(super) fn cut_off() -> Self {
        Self("the packed object is cut off".into())
    }
}

impl de::Error for Unreadable {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// The next value of some tokens.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    pub(super) tokens: Tokens<'a>,
    pub(super) strings: &'a Strings,
    /// Where to note what is read.
    pub(super) marks: Option<&'a Marks>,
}

impl Reader<'_> {
    fn mark(&self) {
        if let Some(marks) = self.marks {
            marks.set(self.tokens.at());
        }
    }

    /// Passes the end of a list or map, and what its reader has left.
    fn leave(&mut self) {
        while !self.tokens.is_at_end() {
            self.tokens.pass();
        }
        self.tokens.next();
    }

    /// Calls `with` with the text that is next.
    fn text<T>(&mut self, with: impl FnOnce(&str) -> Result<T, Unreadable>) -> Result<T, Unreadable> {
        let token = self.tokens.next().ok_or_else(Unreadable::cut_off)?;
        self.shown(token, with)
    }

    /// Calls `with` with a token's text.
    fn shown<T>(&self, token: Token<'_>, with: impl FnOnce(&str) -> Result<T, Unreadable>) -> Result<T, Unreadable> {
        match token {
            Token::Text(text) => with(text),
            Token::Shared(number) => with(self.strings.get(number).ok_or_else(Unreadable::cut_off)?),
            Token::Uuid(uuid) => with(&uuid.to_string()),
            Token::Time(seconds) => with(&show_time(seconds).ok_or_else(Unreadable::cut_off)?),
            _ => Err(Unreadable::cut_off()),
        }
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.mark();
        match self.tokens.next() {
            Some(Token::Null) => visitor.visit_unit(),
            Some(Token::Bool(value)) => visitor.visit_bool(value),
            Some(Token::Unsigned(value)) => visitor.visit_u64(value),
            Some(Token::Negative(value)) => match i64::try_from(value) {
                Ok(value) => visitor.visit_i64(-1 - value),
                Err(_) => Err(Unreadable::cut_off()),
            },
            Some(Token::Float(value)) => visitor.visit_f64(value),
            Some(Token::List) => {
                let value = visitor.visit_seq(Elements(self))?;
                self.leave();
                Ok(value)
            }
            Some(Token::Map) => {
                let value = visitor.visit_map(MapEntries(self))?;
                self.leave();
                Ok(value)
            }
            Some(Token::End) | None => Err(Unreadable::cut_off()),
            Some(token) => self.shown(token, |text| visitor.visit_str(text)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.tokens.pass();
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        if self.tokens.is_at_null() {
            self.mark();
            self.tokens.next();
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    /// As in JSON: a string is a variant without, a map of one entry a variant with content.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        self.mark();
        if self.tokens.is_at_map() {
            self.tokens.next();
            let value = visitor.visit_enum(Variant(self))?;
            if !self.tokens.is_at_end() {
                return Err(de::Error::custom("expected a map with one entry"));
            }
            self.leave();
            return Ok(value);
        }
        let is_text = !matches!(
            self.tokens.peek(),
            None | Some(
                Token::Null
                    | Token::Bool(_)
                    | Token::Unsigned(_)
                    | Token::Negative(_)
                    | Token::Float(_)
                    | Token::List
                    | Token::End
            )
        );
        if is_text {
            return self.text(|text| visitor.visit_enum(IntoDeserializer::<Unreadable>::into_deserializer(text)));
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The elements of a list that has been entered.
struct Elements<'r, 'a>(&'r mut Reader<'a>);

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = Unreadable;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        if self.0.tokens.is_at_end() {
            return Ok(None);
        }
        seed.deserialize(&mut *self.0).map(Some)
    }
}

/// The entries of a map that has been entered.
struct MapEntries<'r, 'a>(&'r mut Reader<'a>);

impl<'de> MapAccess<'de> for MapEntries<'_, '_> {
    type Error = Unreadable;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        if self.0.tokens.is_at_end() {
            return Ok(None);
        }
        self.0.text(|text| seed.deserialize(Text(text))).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unreadable> {
        seed.deserialize(&mut *self.0)
    }
}

/// [`MapEntries`] with a reader of their own.
pub(super) struct Entries<'a>(Reader<'a>);

impl<'a> Entries<'a> {
    /// Enters the map that is next.
    pub(super) fn of(mut reader: Reader<'a>) -> Result<Self, Unreadable> {
        reader.mark();
        match reader.tokens.next() {
            Some(Token::Map) => Ok(Self(reader)),
            _ => Err(Unreadable::cut_off()),
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Unreadable;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        MapEntries(&mut self.0).next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unreadable> {
        MapEntries(&mut self.0).next_value_seed(seed)
    }
}

/// The variant of an enum whose map has been entered.
struct Variant<'r, 'a>(&'r mut Reader<'a>);

impl<'r, 'de, 'a> EnumAccess<'de> for Variant<'r, 'a> {
    type Error = Unreadable;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Unreadable> {
        let variant = self.0.text(|text| seed.deserialize(Text(text)))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Unreadable;

    fn unit_variant(self) -> Result<(), Unreadable> {
        de::Deserialize::deserialize(self.0)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unreadable> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Unreadable> {
        self.0.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Unreadable> {
        self.0.deserialize_any(visitor)
    }
}

/// A string that may have to be something else, since it is the key of a map.
pub(super) struct Text<'a>(pub(super) &'a str);

macro_rules! parsed {
    ($($deserialize:ident $visit:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_enum(IntoDeserializer::<Unreadable>::into_deserializer(self.0))
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
