//! Packing of the marked values of an object.

use super::{
    dictionary::{Dictionary, Shared, Unknown},
    marks::ReadMarks,
    raw::RawObject,
    token::{Token, Tokens, write_unknown},
};

/// Returns the packed form of the values that are marked as read.
///
/// `name` identifies the object within its kind: the dictionary shares what occurred in several objects, not in several
/// states of one object. An object that was not read at all packs to an empty map.
pub fn pack(object: &RawObject, marks: &ReadMarks, name: &str, dictionary: &Dictionary) -> Vec<u8> {
    let mut unknown = Unknown::default();
    let bytes = {
        let shared = dictionary.shared();
        let mut packer = Packer {
            tokens: Tokens::new(object.bytes()),
            marks,
            shared: &shared,
            unknown: &mut unknown,
            out: Vec::with_capacity(object.bytes().len()),
        };
        // The metadata, and the other fields. Readers enter these maps without the dictionary.
        packer.in_place();
        packer.in_place();
        packer.out
    };
    dictionary.learn(name, &bytes, &unknown);
    bytes
}

struct Packer<'a, 'd> {
    tokens: Tokens<'d>,
    marks: &'a ReadMarks,
    shared: &'a Shared,
    unknown: &'a mut Unknown<'d>,
    out: Vec<u8>,
}

impl<'d> Packer<'_, 'd> {
    /// Packs a value as its number in the dictionary if it is a list or map that is shared, otherwise in place.
    fn value(&mut self) {
        let is_nested = self.tokens.is_at_list() || self.tokens.is_at_map();
        let (start, known) = (self.out.len(), self.unknown.values.len());
        self.in_place();
        if !is_nested {
            return;
        }
        match self.shared.value_number(self.out.get(start..).unwrap_or_default()) {
            Some(number) => {
                self.out.truncate(start);
                self.unknown.values.truncate(known);
                Token::SharedValue(number).write(&mut self.out);
            }
            None => self.unknown.values.push(start..self.out.len()),
        }
    }

    /// Packs a value, or a placeholder if it isn't marked.
    fn in_place(&mut self) {
        if !self.marks.get(self.tokens.at()) {
            // An empty map can still be deserialized by types that require the field.
            let place = if self.tokens.is_at_map() { &[Token::Map, Token::End][..] } else { &[Token::Null] };
            self.tokens.pass();
            return place.iter().for_each(|token| token.write(&mut self.out));
        }
        if self.tokens.is_at_list() {
            self.enter(Token::List);
            while self.has_more() {
                self.value();
            }
        } else if self.tokens.is_at_map() {
            self.enter(Token::Map);
            while self.has_more() {
                self.entry();
            }
        } else {
            self.scalar();
        }
    }

    fn enter(&mut self, begin: Token<'_>) {
        self.tokens.next();
        begin.write(&mut self.out);
    }

    /// Packs a key with its value, or nothing if the value isn't marked.
    fn entry(&mut self) {
        let key = self.tokens.text();
        if !self.marks.get(self.tokens.at()) {
            return self.tokens.pass();
        }
        key.into_iter().for_each(|key| self.text(key));
        self.value();
    }

    /// Returns whether the list or map has another element. At its end, copies the end token.
    fn has_more(&mut self) -> bool {
        let is_end = self.tokens.is_at_end();
        if is_end {
            self.tokens.next();
            Token::End.write(&mut self.out);
        }
        !is_end
    }

    fn scalar(&mut self) {
        match self.tokens.text() {
            Some(text) => self.text(text),
            None => self.out.extend(self.tokens.value()),
        }
    }

    fn text(&mut self, text: &'d [u8]) {
        if let Some(short) = Token::short(text) {
            short.write(&mut self.out);
        } else if let Some(number) = self.shared.string_number(text) {
            Token::Shared(number).write(&mut self.out);
        } else {
            self.unknown.strings.push(text);
            write_unknown(text, &mut self.out);
        }
    }
}
