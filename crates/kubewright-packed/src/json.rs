//! Deserialization of JSON through tokens.

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error},
};

use super::{
    dictionary::Dictionary,
    raw::{Any, MAX_DEPTH},
    read::Reader,
    token::Tokens,
};

/// Deserializes a value from JSON text, through tokens.
///
/// It takes about one and a half times as long as `serde_json::from_str`. In return a program that also reads packed
/// objects contains the code that deserializes `T`, which is large for kinds such as `Pod`, only once.
///
/// # Errors
/// If the text isn't valid JSON, is nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep, or doesn't match the
/// type.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let tokens = tokens(&mut deserializer)?;
    deserializer.end()?;
    read(&tokens)
}

/// Deserializes a value from a `serde_json::Value` or `Map`, as [`from_text`] does from text.
///
/// # Errors
/// If the value is nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels deep, or doesn't match the type.
pub fn from_value<'de, T: DeserializeOwned>(
    value: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, serde_json::Error> {
    read(&tokens(value)?)
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let (mut out, mut is_truncated) = (Vec::new(), false);
    Any { out: &mut out, is_truncated: &mut is_truncated, left: MAX_DEPTH, without: None }.deserialize(deserializer)?;
    if is_truncated { Err(D::Error::custom(format!("nested more than {MAX_DEPTH} levels deep"))) } else { Ok(out) }
}

fn read<T: DeserializeOwned>(tokens: &[u8]) -> Result<T, serde_json::Error> {
    let nothing = Dictionary::default();
    let shared = nothing.shared();
    let mut reader =
        Reader { tokens: Tokens::new(tokens), shared: &shared, outer: Vec::new(), marks: None, unmarked: 0 };
    T::deserialize(&mut reader).map_err(Error::custom)
}
