//! The owner and deletion state of an object, found without reading the rest of it.

use std::str;

use super::{
    marks::ReadMarks,
    raw::RawObject,
    token::{Token, Tokens},
};

/// The metadata that a cache queries for many objects at a time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ownership<'a> {
    /// The UID of the owner that has `controller: true`.
    pub controller: Option<&'a str>,
    /// Whether it has a deletion timestamp.
    pub is_being_deleted: bool,
}

/// Reads the owner and the deletion timestamp from an object's metadata. It marks these fields and the labels as read,
/// so that [`pack`](crate::pack) keeps them whatever types read the object. Fields of unexpected types are ignored.
pub fn ownership<'a>(object: &'a RawObject, marks: &ReadMarks) -> Ownership<'a> {
    let mut walk = Walk { tokens: Tokens::new(object.bytes()), marks };
    let mut ownership = Ownership::default();
    walk.entries(|walk, key| match key {
        b"labels" => walk.keep(),
        b"ownerReferences" => ownership.controller = walk.controller(),
        b"deletionTimestamp" => {
            ownership.is_being_deleted = !walk.tokens.is_at_null();
            walk.keep();
        }
        _ => walk.tokens.pass(),
    });
    ownership
}

struct Walk<'a, 'm> {
    tokens: Tokens<'a>,
    marks: &'m ReadMarks,
}

impl<'a> Walk<'a, '_> {
    /// Marks and enters a map; `value` must skip the value of each key. Skips anything else.
    fn entries(&mut self, mut value: impl FnMut(&mut Self, &'a [u8])) {
        self.marks.set(self.tokens.at());
        if !self.tokens.is_at_map() {
            return self.tokens.pass();
        }
        self.tokens.next();
        while !self.tokens.is_at_end() {
            match self.tokens.text() {
                Some(key) => value(self, key),
                None => self.tokens.pass(),
            }
        }
        self.tokens.next();
    }

    /// Marks and enters a list; `element` must skip each element. Skips anything else.
    fn elements(&mut self, mut element: impl FnMut(&mut Self)) {
        self.marks.set(self.tokens.at());
        if !self.tokens.is_at_list() {
            return self.tokens.pass();
        }
        self.tokens.next();
        while !self.tokens.is_at_end() {
            element(self);
        }
        self.tokens.next();
    }

    /// Marks a value with everything in it.
    fn keep(&mut self) {
        if self.tokens.is_at_map() {
            self.entries(|walk, _| walk.keep());
        } else {
            self.elements(Self::keep);
        }
    }

    /// Marks a list of owner references; returns the UID of the controller.
    fn controller(&mut self) -> Option<&'a str> {
        let mut controller = None;
        self.elements(|walk| {
            let (mut uid, mut is_controller) = (None, false);
            walk.entries(|walk, key| {
                match key {
                    b"uid" => uid = walk.tokens.clone().text().and_then(|text| str::from_utf8(text).ok()),
                    b"controller" => is_controller = walk.tokens.peek() == Some(Token::Bool(true)),
                    _ => {}
                }
                walk.keep();
            });
            controller = controller.or(uid.filter(|_| is_controller));
        });
        controller
    }
}
