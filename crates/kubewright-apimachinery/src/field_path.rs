//! Paths to fields within an object, such as `spec.containers[0].image`.
//!
//! A traversal keeps the paths on the stack, and formats one only for an error.

use std::fmt;

/// The path to a value: its last step, and the path to its parent.
#[derive(Clone, Copy)]
pub(crate) enum FieldPath<'a> {
    Root,
    Field(&'a FieldPath<'a>, &'a str),
    Item(&'a FieldPath<'a>, usize),
    Key(&'a FieldPath<'a>, &'a str),
}

impl<'a> FieldPath<'a> {
    /// Returns the path to a field of an object.
    pub(crate) fn field(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Field(self, name)
    }

    /// Returns the path to an entry of a map with free names.
    pub(crate) fn key(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Key(self, name)
    }

    /// Returns the path to an element of a list.
    pub(crate) fn item(&'a self, index: usize) -> FieldPath<'a> {
        FieldPath::Item(self, index)
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(FieldPath::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, name) => write!(f, "{parent}[{name}]"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
