//! Removal of fields from a raw object.

use super::{
    raw::{RawObject, metadata_of},
    token::{Token, Tokens},
};

impl RawObject {
    /// Returns the object without these fields, each a path of keys. In a list a path applies to each element.
    pub fn without(&self, fields: &[Vec<String>]) -> Self {
        let bytes = without(&self.bytes, fields);
        Self { metadata: self.metadata.clone(), middle: metadata_of(&bytes), bytes, is_truncated: self.is_truncated }
    }
}

/// Returns the bytes of a raw object without these fields.
fn without(bytes: &[u8], fields: &[Vec<String>]) -> Vec<u8> {
    let paths = fields.iter().map(Vec::as_slice).collect::<Vec<_>>();
    let metadata = below(&paths, "metadata");
    let mut tokens = Tokens::new(bytes);
    let mut out = Vec::with_capacity(bytes.len());
    copy(&mut tokens, &metadata, &mut out);
    copy(&mut tokens, &paths, &mut out);
    out
}

/// Returns the remainders of the paths that begin with this key.
fn below<'a>(paths: &[&'a [String]], key: &str) -> Vec<&'a [String]> {
    paths
        .iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| *first == key)
        .map(|(_, rest)| rest)
        .collect()
}

fn copy(tokens: &mut Tokens<'_>, paths: &[&[String]], out: &mut Vec<u8>) {
    let is_container = tokens.is_at_list() || tokens.is_at_map();
    if paths.is_empty() || !is_container {
        return out.extend(tokens.value());
    }
    let begin = tokens.next();
    begin.into_iter().for_each(|begin| begin.write(out));
    while let Some(token) = tokens.peek().filter(|token| *token != Token::End) {
        if begin == Some(Token::List) {
            copy(tokens, paths, out);
            continue;
        }
        tokens.next();
        let key = match token {
            Token::Text(key) => key,
            // Raw objects have all strings in place.
            _ => "",
        };
        let rest = below(paths, key);
        if rest.iter().any(|rest| rest.is_empty()) {
            tokens.pass();
        } else {
            token.write(out);
            copy(tokens, &rest, out);
        }
    }
    tokens.next();
    Token::End.write(out);
}
