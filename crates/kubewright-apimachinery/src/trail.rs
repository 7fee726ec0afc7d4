//! The way from the root of an object to a value, kept on the stack and written out only when something is to be said.

use std::fmt;

#[derive(Clone, Copy)]
pub(crate) enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
    Key(&'a Trail<'a>, &'a str),
}

impl<'a> Trail<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Trail<'a> {
        Trail::Field(self, name)
    }

    /// An entry of a map with free names.
    pub(crate) fn key(&'a self, name: &'a str) -> Trail<'a> {
        Trail::Key(self, name)
    }

    pub(crate) fn item(&'a self, index: usize) -> Trail<'a> {
        Trail::Item(self, index)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Trail::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, name) => write!(f, "{parent}[{name}]"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
