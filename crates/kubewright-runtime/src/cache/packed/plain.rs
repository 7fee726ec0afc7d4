//! JSON that isn't kept, read as a type by way of tokens: slower than at once by half, but the code that reads a type,
//! which is large, is there once and not for each form of JSON.

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error},
};

use super::{
    dictionary::Dictionary,
    draft::{Any, DEEPEST},
    read::Reader,
    token::Tokens,
};

/// Reads a text. Unlike serde_json it takes no more than 120 levels.
///
/// # Errors
/// When it is no JSON, or not as the type says.
pub(crate) fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let tokens = tokens(&mut deserializer)?;
    deserializer.end()?;
    read(&tokens)
}

/// Reads a `Value` or a `Map`.
///
/// # Errors
/// When it isn't as the type says.
pub(crate) fn from_value<'de, T: DeserializeOwned>(
    value: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, serde_json::Error> {
    read(&tokens(value)?)
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let (mut out, mut is_cut) = (Vec::new(), false);
    Any { out: &mut out, is_cut: &mut is_cut, left: DEEPEST, without: None }.deserialize(deserializer)?;
    if is_cut { Err(D::Error::custom(format!("nested more than {DEEPEST} levels deep"))) } else { Ok(out) }
}

fn read<T: DeserializeOwned>(tokens: &[u8]) -> Result<T, serde_json::Error> {
    let nothing = Dictionary::default();
    let mut reader = Reader { tokens: Tokens::new(tokens), strings: &nothing.strings(), marks: None, unmarked: 0 };
    T::deserialize(&mut reader).map_err(Error::custom)
}
