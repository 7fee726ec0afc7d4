//! Objects as packed bytes: what the cache keeps instead of structs. Pure: no I/O, no kinds.
//!
//! An object is a flat run of [tokens](token::Token): its metadata, then everything else. Strings that many objects have in
//! common are numbers of a [`Dictionary`]. Namespace, name, UID and resource version are not in the bytes; their owner
//! keeps them, and a [`Document`] puts them back in when it is read.
//!
//! What comes off the wire becomes a [`Draft`] without an intermediate tree. What of it is worth keeping is known by
//! reading it: a [`Document`] notes in [`Marks`] which values a type's `Deserialize` took and which it ignored, and
//! [`pack`] keeps the former.

mod dictionary;
mod diff;
mod document;
mod draft;
mod marks;
mod own;
mod pack;
mod plain;
mod read;
mod token;
mod without;

pub(super) use self::draft::{DEEPEST, Draft};
pub(crate) use self::plain::{from_text, from_value};
pub(super) use self::{
    dictionary::Dictionary,
    diff::changed_fields,
    document::{Document, Identity},
    marks::Marks,
    own::own,
    pack::pack,
    read::Unreadable,
    token::Uuid,
};

#[cfg(test)]
mod tests;
