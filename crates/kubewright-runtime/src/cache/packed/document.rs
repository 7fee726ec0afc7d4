//! An object as its types read it: the bytes, with what they leave out put back in.

use std::{array, fmt, iter::Flatten};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{
    dictionary::Dictionary,
    draft::Draft,
    marks::Marks,
    read::{Entries, Reader, Text, Unreadable},
    token::Tokens,
};

/// What an object's bytes don't say.
#[derive(Clone, Copy, Default)]
pub(in crate::cache) struct Identity<'a> {
    pub(in crate::cache) api_version: &'a str,
    pub(in crate::cache) kind: &'a str,
    pub(in crate::cache) name: Option<&'a str>,
    pub(in crate::cache) namespace: Option<&'a str>,
    pub(in crate::cache) uid: Option<&'a dyn fmt::Display>,
    pub(in crate::cache) resource_version: Option<&'a dyn fmt::Display>,
}

/// An object that can be read as any type.
#[derive(Clone)]
pub(in crate::cache) struct Document<'a> {
    bytes: &'a [u8],
    identity: Identity<'a>,
    marks: Option<&'a Marks>,
    metadata_only: bool,
}

impl<'a> Document<'a> {
    /// Of bytes that were packed.
    pub(in crate::cache) fn packed(bytes: &'a [u8], identity: Identity<'a>) -> Self {
        Self { bytes, identity, marks: None, metadata_only: false }
    }

    /// Of a draft; what of it is read will be marked.
    pub(in crate::cache) fn draft(draft: &'a Draft, identity: Identity<'a>, marks: &'a Marks) -> Self {
        Self { bytes: draft.bytes(), identity, marks: Some(marks), metadata_only: false }
    }

    /// Shows only the metadata: for types that take in whatever there is.
    pub(in crate::cache) fn metadata_only(self, metadata_only: bool) -> Self {
        Self { metadata_only, ..self }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it isn't as the type says.
    pub(in crate::cache) fn read<'de, T: Deserialize<'de>>(self, dictionary: &Dictionary) -> Result<T, Unreadable> {
        let strings = dictionary.strings();
        let Self { bytes, identity, marks, metadata_only } = self;
        let Identity { api_version, kind, name, namespace, uid, resource_version } = identity;
        let metadata = Reader { tokens: Tokens::new(bytes), strings: &strings, marks };
        let mut body = metadata.clone();
        body.tokens.pass();
        let text = |key, text: Option<&'a str>| text.map(|text| (key, Field::Text(text)));
        let shown = |key, shown: Option<&'a dyn fmt::Display>| shown.map(|shown| (key, Field::Shown(shown)));
        let names = [
            text("name", name),
            text("namespace", namespace),
            shown("uid", uid),
            shown("resourceVersion", resource_version),
        ];
        let metadata = Box::new(Part { first: names, rest: Some(metadata) });
        let kind = [
            text("apiVersion", Some(api_version)),
            text("kind", Some(kind)),
            Some(("metadata", Field::Part(metadata))),
            None,
        ];
        T::deserialize(Part { first: kind, rest: (!metadata_only).then_some(body) })
    }
}

/// What is asked of a value that is always there and of one shape: it is passed over without being made.
macro_rules! always_there {
    () => {
        fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            visitor.visit_unit()
        }

        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            visitor.visit_some(self)
        }

        fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unreadable> {
            visitor.visit_newtype_struct(self)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
            tuple_struct map struct enum identifier
        }
    };
}

/// A map of which the bytes have the rest.
struct Part<'a> {
    first: [First<'a>; 4],
    rest: Option<Reader<'a>>,
}

/// An entry that the bytes don't have.
type First<'a> = Option<(&'static str, Field<'a>)>;

/// A value that the bytes don't have, or not whole.
enum Field<'a> {
    Text(&'a str),
    Shown(&'a dyn fmt::Display),
    Part(Box<Part<'a>>),
}

impl<'de> Deserializer<'de> for Part<'_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        let rest = self.rest.map(Entries::of).transpose()?;
        visitor.visit_map(PartAccess { first: self.first.into_iter().flatten(), field: None, rest })
    }

    always_there!();
}

struct PartAccess<'a> {
    first: Flatten<array::IntoIter<First<'a>, 4>>,
    /// The value of the key that was given last, if it is not of the rest.
    field: Option<Field<'a>>,
    rest: Option<Entries<'a>>,
}

impl<'de> MapAccess<'de> for PartAccess<'_> {
    type Error = Unreadable;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        if let Some((key, field)) = self.first.next() {
            self.field = Some(field);
            return seed.deserialize(Text(key)).map(Some);
        }
        self.rest.as_mut().map_or(Ok(None), |rest| rest.next_key_seed(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unreadable> {
        match (self.field.take(), &mut self.rest) {
            (Some(Field::Text(text)), _) => seed.deserialize(Text(text)),
            (Some(Field::Shown(shown)), _) => seed.deserialize(Shown(shown)),
            (Some(Field::Part(part)), _) => seed.deserialize(*part),
            (None, Some(rest)) => rest.next_value_seed(seed),
            (None, None) => Err(Unreadable::cut_off()),
        }
    }
}

/// A string that is made when it is read.
struct Shown<'a>(&'a dyn fmt::Display);

impl<'de> Deserializer<'de> for Shown<'_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.0.to_string().into_deserializer().deserialize_any(visitor)
    }

    always_there!();
}
