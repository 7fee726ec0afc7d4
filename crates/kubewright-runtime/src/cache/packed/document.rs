//! An object as its types read it: the bytes, with what they leave out put back in.

use std::fmt;

use serde::Deserialize;

use super::{
    dictionary::Dictionary,
    draft::Draft,
    marks::Marks,
    read::{Reader, Unreadable},
    token::{Token, Tokens},
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

/// Mostly an identity is shorter.
const USUAL: usize = 256;

fn put(out: &mut Vec<u8>, key: &str, text: &str) {
    Token::Text(key).write(out);
    Token::Text(text).write(out);
}

impl Identity<'_> {
    /// The begin of the object: its first fields, and those of its metadata.
    fn tokens(&self) -> Vec<u8> {
        let Self { api_version, kind, name, namespace, uid, resource_version } = *self;
        let mut out = Vec::with_capacity(USUAL);
        Token::Map.write(&mut out);
        put(&mut out, "apiVersion", api_version);
        put(&mut out, "kind", kind);
        Token::Text("metadata").write(&mut out);
        Token::Map.write(&mut out);
        for (key, text) in [("name", name), ("namespace", namespace)] {
            text.into_iter().for_each(|text| put(&mut out, key, text));
        }
        for (key, shown) in [("uid", uid), ("resourceVersion", resource_version)] {
            shown.into_iter().for_each(|shown| put(&mut out, key, &shown.to_string()));
        }
        out
    }
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
        let Self { bytes, identity, marks, metadata_only } = self;
        let mut body = Tokens::new(bytes);
        body.pass();
        let middle = body.at();
        let metadata = bytes.get(..middle).unwrap_or_default();
        // Both maps begin in the identity's tokens, or have begun there: what is read goes on behind their first token.
        let pieces = [(metadata, 1), (bytes, middle + 1)];
        let pieces = if metadata_only { &pieces[..1] } else { &pieces[..] };
        if let Some(marks) = marks {
            marks.set(0);
            if !metadata_only {
                marks.set(middle);
            }
        }
        let (head, strings) = (identity.tokens(), dictionary.strings());
        let tokens = Tokens::joined(&head, pieces);
        T::deserialize(&mut Reader { tokens, strings: &strings, marks, unmarked: pieces.len() })
    }
}
