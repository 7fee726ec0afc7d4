#![doc = include_str!("../README.md")]
//!
//! # Data flow
//!
//! | step | type |
//! |---|---|
//! | decode an object from JSON, without a tree in between | [`RawObject`], which kube's client can also read directly |
//! | read it as each type that is used, which marks what the types take | [`Document::raw`], [`ReadMarks`] |
//! | keep the marked values | [`pack`], [`Dictionary`] |
//! | read the packed object as any of these types | [`Document::packed`] |
//! | compare two packed objects | [`changed_fields`] |
//!
//! # Format
//!
//! Packed bytes are a flat sequence of tokens: the metadata, then the rest of the object. A token is a head byte with
//! three bits of class and five bits of size or value, and the content that the class requires. Lists and maps are a
//! begin token, their values (or keys and values in turn), and an end token.

mod dictionary;
mod diff;
mod document;
mod json;
mod marks;
mod ownership;
mod pack;
#[doc(hidden)]
pub mod precompiled;
mod raw;
mod read;
mod token;
mod without;

pub use self::{
    dictionary::Dictionary,
    diff::changed_fields,
    document::{Document, Identity},
    json::{Json, from_text, from_value},
    marks::ReadMarks,
    ownership::{Ownership, ownership},
    pack::pack,
    raw::{MAX_DEPTH, RawObject},
    read::ReadError,
    token::Uuid,
};

#[cfg(test)]
mod tests;
