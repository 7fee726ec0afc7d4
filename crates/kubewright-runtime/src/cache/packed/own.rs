//! What the cache itself wants to know of an object, found in a draft without reading the rest.

use std::str;

use super::{
    draft::Draft,
    marks::Marks,
    token::{Token, Tokens},
};

/// What is asked of many objects at a time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::cache) struct Own<'a> {
    /// The UID of the owner that has `controller: true`.
    pub(in crate::cache) controller: Option<&'a str>,
    /// Whether it is being deleted.
    pub(in crate::cache) is_leaving: bool,
}

/// Looks at a draft's metadata, and marks as read what the cache keeps whoever reads the kind: labels, owners, and the time of
/// the deletion. What isn't as an API server writes it says nothing.
pub(in crate::cache) fn own<'a>(draft: &'a Draft, marks: &Marks) -> Own<'a> {
    let mut walk = Walk { tokens: Tokens::new(draft.bytes()), marks };
    let mut own = Own::default();
    walk.entries(|walk, key| match key {
        b"labels" => walk.keep(),
        b"ownerReferences" => own.controller = walk.controller(),
        b"deletionTimestamp" => {
            own.is_leaving = !walk.tokens.is_at_null();
            walk.keep();
        }
        _ => walk.tokens.pass(),
    });
    own
}

struct Walk<'a, 'm> {
    tokens: Tokens<'a>,
    marks: &'m Marks,
}

impl<'a> Walk<'a, '_> {
    /// Goes through a map, which is marked; `value` passes over the value of each key. Passes over anything else.
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

    /// Goes through a list, which is marked; `element` passes over each of its values. Passes over anything else.
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

    /// Marks a value with all that is in it.
    fn keep(&mut self) {
        if self.tokens.is_at_map() {
            self.entries(|walk, _| walk.keep());
        } else {
            self.elements(Self::keep);
        }
    }

    /// Keeps a list of owners.
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
