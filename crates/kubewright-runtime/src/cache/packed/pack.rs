//! From a draft to the bytes that are kept.

use super::{
    dictionary::{Dictionary, Strings},
    draft::Draft,
    marks::Marks,
    token::{Token, Tokens},
};

/// The values of a draft that are marked, with their strings in the dictionary where that pays. `object` tells the draft's
/// object from others of its kind.
pub(in crate::cache) fn pack(draft: &Draft, marks: &Marks, object: &str, dictionary: &Dictionary) -> Vec<u8> {
    let mut unknown = Vec::new();
    let bytes = {
        let strings = dictionary.strings();
        let mut packer = Packer {
            tokens: Tokens::new(draft.bytes()),
            marks,
            strings: &strings,
            unknown: &mut unknown,
            out: Vec::with_capacity(draft.bytes().len()),
        };
        // The metadata, and the rest.
        packer.value();
        packer.value();
        packer.out
    };
    dictionary.learn(object, unknown);
    bytes
}

struct Packer<'a, 'd> {
    tokens: Tokens<'d>,
    marks: &'a Marks,
    strings: &'a Strings,
    /// The strings that the dictionary doesn't have.
    unknown: &'a mut Vec<&'d str>,
    out: Vec<u8>,
}

impl<'d> Packer<'_, 'd> {
    /// A value, or nothing in its place.
    fn value(&mut self) {
        if !self.marks.get(self.tokens.at()) {
            // Emptied, a map still can be read.
            let place = if self.tokens.is_at_map() { &[Token::Map, Token::End][..] } else { &[Token::Null] };
            self.tokens.pass();
            return place.iter().for_each(|token| token.write(&mut self.out));
        }
        match self.tokens.next() {
            Some(Token::List) => {
                Token::List.write(&mut self.out);
                while self.goes_on() {
                    self.value();
                }
            }
            Some(Token::Map) => {
                Token::Map.write(&mut self.out);
                while self.goes_on() {
                    self.entry();
                }
            }
            Some(token) => self.scalar(token),
            None => {}
        }
    }

    /// A key with its value, or neither.
    fn entry(&mut self) {
        let key = self.tokens.next();
        if !self.marks.get(self.tokens.at()) {
            return self.tokens.pass();
        }
        key.into_iter().for_each(|key| self.scalar(key));
        self.value();
    }

    /// Whether the list or map has more; its end is copied.
    fn goes_on(&mut self) -> bool {
        let is_end = self.tokens.is_at_end();
        if is_end {
            self.tokens.next();
            Token::End.write(&mut self.out);
        }
        !is_end
    }

    fn scalar(&mut self, token: Token<'d>) {
        let token = match token {
            Token::Text(text) => match (Token::of(text), self.strings.number(text)) {
                (Token::Text(_), Some(number)) => Token::Shared(number),
                (Token::Text(_), None) => {
                    self.unknown.push(text);
                    token
                }
                (short, _) => short,
            },
            token => token,
        };
        token.write(&mut self.out);
    }
}
