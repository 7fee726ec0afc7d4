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

/// Where the metadata ends that an object's bytes begin with.
pub(super) fn metadata_of(bytes: &[u8]) -> usize {
    let mut tokens = Tokens::new(bytes);
    tokens.pass();
    tokens.at()
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
pub(in crate::cache) struct Document<'a> {
    /// What the bytes don't say.
    head: Vec<u8>,
    bytes: &'a [u8],
    /// Where the metadata ends.
    middle: usize,
    marks: Option<&'a Marks>,
}

impl<'a> Document<'a> {
    /// Of bytes that were packed.
    pub(in crate::cache) fn packed(bytes: &'a [u8], identity: Identity<'_>) -> Self {
        Self { head: identity.tokens(), bytes, middle: metadata_of(bytes), marks: None }
    }

    /// Of a draft; what of it is read will be marked.
    pub(in crate::cache) fn draft(draft: &'a Draft, identity: Identity<'_>, marks: &'a Marks) -> Self {
        Self { head: identity.tokens(), bytes: draft.bytes(), middle: draft.middle(), marks: Some(marks) }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it isn't as the type says.
    pub(in crate::cache) fn read<'de, T: Deserialize<'de>>(&self, dictionary: &Dictionary) -> Result<T, Unreadable> {
        self.read_up_to(self.bytes.len(), dictionary)
    }

    /// Reads its metadata, as if there were no more: for types that take in whatever there is.
    ///
    /// # Errors
    /// As [`Document::read`].
    pub(in crate::cache) fn read_metadata<'de, T: Deserialize<'de>>(
        &self,
        dictionary: &Dictionary,
    ) -> Result<T, Unreadable> {
        self.read_up_to(self.middle, dictionary)
    }

    fn read_up_to<'de, T: Deserialize<'de>>(&self, end: usize, dictionary: &Dictionary) -> Result<T, Unreadable> {
        let Self { ref head, bytes, middle, marks } = *self;
        let metadata = bytes.get(..middle).unwrap_or_default();
        // Both maps begin in the head, or have begun there: what is read goes on behind their first token.
        let pieces = [(metadata, 1), (bytes, middle + 1)];
        let pieces = if end > middle { &pieces[..] } else { &pieces[..1] };
        if let Some(marks) = marks {
            marks.set(0);
            if end > middle {
                marks.set(middle);
            }
        }
        let strings = dictionary.strings();
        let tokens = Tokens::joined(head, pieces);
        T::deserialize(&mut Reader { tokens, strings: &strings, marks, unmarked: pieces.len() })
    }
}
