//! An object that can be deserialized: its bytes together with the fields that the caller keeps.

use std::fmt;

use kube_core::{DynamicObject, ObjectMeta};
use serde::Deserialize;

use super::{
    dictionary::Dictionary,
    marks::ReadMarks,
    raw::{RawObject, metadata_of},
    read::{ReadError, Reader},
    token::{Token, Tokens},
};

/// The fields of an object that are not in its bytes. [`Document`] adds them to what a type reads.
#[derive(Clone, Copy, Default)]
pub struct Identity<'a> {
    /// The `apiVersion`, such as `apps/v1`.
    pub api_version: &'a str,
    /// The `kind`, such as `Deployment`.
    pub kind: &'a str,
    /// `metadata.name`.
    pub name: Option<&'a str>,
    /// `metadata.namespace`.
    pub namespace: Option<&'a str>,
    /// `metadata.uid`.
    pub uid: Option<&'a dyn fmt::Display>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<&'a dyn fmt::Display>,
}

/// The size that most identities fit into, in bytes.
const USUAL: usize = 256;

fn put(out: &mut Vec<u8>, key: &str, text: &str) {
    Token::Text(key).write(out);
    Token::Text(text).write(out);
}

impl Identity<'_> {
    /// The first tokens of the object, up to and including these fields of its metadata.
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

/// An object that can be deserialized as any type.
pub struct Document<'a> {
    /// The tokens of the identity.
    head: Vec<u8>,
    bytes: &'a [u8],
    /// The offset at which the metadata ends.
    middle: usize,
    marks: Option<&'a ReadMarks>,
}

impl<'a> Document<'a> {
    /// A packed object.
    pub fn packed(bytes: &'a [u8], identity: Identity<'_>) -> Self {
        Self { head: identity.tokens(), bytes, middle: metadata_of(bytes), marks: None }
    }

    /// An object before it is packed. Reads mark in `marks` which values they take.
    pub fn raw(object: &'a RawObject, identity: Identity<'_>, marks: &'a ReadMarks) -> Self {
        Self { head: identity.tokens(), bytes: object.bytes(), middle: object.middle(), marks: Some(marks) }
    }

    /// Deserializes the object.
    ///
    /// # Errors
    /// If the object doesn't match the type, with the message of the type's `Deserialize`.
    pub fn read<'de, T: Deserialize<'de>>(&self, dictionary: &Dictionary) -> Result<T, ReadError> {
        self.read_up_to(self.bytes.len(), dictionary)
    }

    /// Deserializes the metadata only, as if the object had no other fields: for types that accept any field.
    ///
    /// # Errors
    /// As [`Document::read`].
    pub fn read_metadata<'de, T: Deserialize<'de>>(&self, dictionary: &Dictionary) -> Result<T, ReadError> {
        self.read_up_to(self.middle, dictionary)
    }

    fn read_up_to<'de, T: Deserialize<'de>>(&self, end: usize, dictionary: &Dictionary) -> Result<T, ReadError> {
        let Self { ref head, bytes, middle, marks } = *self;
        let metadata = bytes.get(..middle).unwrap_or_default();
        // The begin tokens of both maps are in the head: the pieces continue after their first token.
        let pieces = [(metadata, 1), (bytes, middle + 1)];
        let pieces = if end > middle { &pieces[..] } else { &pieces[..1] };
        if let Some(marks) = marks {
            marks.set(0);
            if end > middle {
                marks.set(middle);
            }
        }
        let shared = dictionary.shared();
        let tokens = Tokens::joined(head, pieces);
        T::deserialize(&mut Reader { tokens, shared: &shared, outer: Vec::new(), marks, unmarked: pieces.len() })
    }
}

impl RawObject {
    /// Returns the object as changed by `transform`. Changes of [`metadata`](Self::metadata) are ignored. It costs a
    /// conversion to a tree and back.
    ///
    /// # Errors
    /// If the object's metadata is invalid.
    pub fn transformed(
        &self,
        identity: Identity<'_>,
        transform: impl FnOnce(&mut DynamicObject),
    ) -> Result<Self, String> {
        let ObjectMeta { uid, resource_version, .. } = &self.metadata;
        let (uid, version) = (uid.as_ref().map(|uid| uid as _), resource_version.as_ref().map(|version| version as _));
        let document = Document::packed(&self.bytes, Identity { uid, resource_version: version, ..identity });
        // A raw object doesn't use the dictionary.
        let mut object = document.read(&Dictionary::default()).map_err(|error| error.to_string())?;
        transform(&mut object);
        let object = serde_json::to_value(&object).map_err(|error| error.to_string())?;
        let transformed: Self = serde_json::from_value(object).map_err(|error| error.to_string())?;
        Ok(Self { metadata: self.metadata.clone(), ..transformed })
    }
}
