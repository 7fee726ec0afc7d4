//! Deserialization of JSON through tokens.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, Visitor},
};

use super::{
    dictionary::Dictionary,
    raw::{Any, Key, MAX_DEPTH, Named},
    read::Reader,
    token::{Token, Tokens},
};

/// A value parsed from JSON text, which can be deserialized as several types.
#[derive(Clone)]
pub struct Json(Vec<u8>);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Json").finish_non_exhaustive()
    }
}

impl Json {
    /// Parses text.
    ///
    /// # Errors
    /// If the text isn't valid JSON, or is nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Self::parse_by(text, false)
    }

    /// Parses the text of an object, and leaves out its `metadata.managedFields`. Other values stay as they are, those
    /// in the items of a list too.
    ///
    /// # Errors
    /// As [`Json::parse`], and if the text isn't a JSON object.
    pub fn parse_without_managed_fields(text: &str) -> Result<Self, serde_json::Error> {
        Self::parse_by(text, true)
    }

    fn parse_by(text: &str, without_managed_fields: bool) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let json = Self::of(&mut deserializer, text.len(), without_managed_fields)?;
        deserializer.end()?;
        Ok(json)
    }

    /// Reads a value. `size` is the initial capacity for its tokens, in bytes.
    fn of<'de>(
        value: impl Deserializer<'de, Error = serde_json::Error>,
        size: usize,
        without_managed_fields: bool,
    ) -> Result<Self, serde_json::Error> {
        let (mut out, mut is_truncated) = (Vec::with_capacity(size), false);
        Whole { out: &mut out, is_truncated: &mut is_truncated, without_managed_fields }.deserialize(value)?;
        if is_truncated {
            return Err(Error::custom(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(Self(out))
    }

    /// Deserializes the value.
    ///
    /// # Errors
    /// If the value doesn't match the type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let nothing = Dictionary::default();
        let shared = nothing.shared();
        let mut reader =
            Reader { tokens: Tokens::new(&self.0), shared: &shared, outer: Vec::new(), marks: None, unmarked: 0 };
        T::deserialize(&mut reader).map_err(Error::custom)
    }
}

/// Deserializes a value from JSON text, through tokens.
///
/// It takes about one and a half times as long as `serde_json::from_str`. In return a program that also reads packed
/// objects contains the code that deserializes `T`, which is large for kinds such as `Pod`, only once.
///
/// # Errors
/// If the text isn't valid JSON, is nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep, or doesn't match the
/// type.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    Json::parse(text)?.read()
}

/// Deserializes a value from a `serde_json::Value` or `Map`, as [`from_text`] does from text.
///
/// # Errors
/// If the value is nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep, or doesn't match the type.
pub fn from_value<'de, T: DeserializeOwned>(
    value: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, serde_json::Error> {
    Json::of(value, 0, false)?.read()
}

/// Whether a key is that of the metadata.
struct IsMetadata(bool);

impl Named for IsMetadata {
    fn is_written(&self) -> bool {
        true
    }
}

/// A value, or an object without its managed fields.
struct Whole<'a> {
    out: &'a mut Vec<u8>,
    is_truncated: &'a mut bool,
    without_managed_fields: bool,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.without_managed_fields {
            return deserializer.deserialize_map(self);
        }
        let Self { out, is_truncated, .. } = self;
        Any { out, is_truncated, left: MAX_DEPTH, without: None }.deserialize(deserializer)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { out, is_truncated, .. } = self;
        Token::Map.write(out);
        let name = |key: &str| IsMetadata(key == "metadata");
        while let Some(IsMetadata(is_metadata)) = map.next_key_seed(Key { out, name })? {
            let without = is_metadata.then_some("managedFields");
            map.next_value_seed(Any { out, is_truncated, left: MAX_DEPTH - 1, without })?;
        }
        Token::End.write(out);
        Ok(())
    }
}
