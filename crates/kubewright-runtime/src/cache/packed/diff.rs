//! What differs between two states of an object.

use super::{
    dictionary::{Dictionary, Strings},
    token::{Token, Tokens, show_time},
};

/// How many paths are told.
const PATHS: usize = 8;

/// The paths of what differs between two packed objects, such as `spec.replicas` or `status.conditions[0].status`: the
/// first eight. Lists of different lengths differ as a whole. It costs one pass over both.
pub(in crate::cache) fn changed_fields(old: &[u8], new: &[u8], dictionary: &Dictionary) -> Vec<String> {
    let strings = dictionary.strings();
    let mut paths = Vec::new();
    let (mut old, mut new) = (Tokens::new(old), Tokens::new(new));
    let mut comparison = Comparison { strings: &strings, path: "metadata".into(), paths: &mut paths };
    comparison.compare(old.value(), new.value());
    comparison.path.clear();
    comparison.compare(old.value(), new.value());
    paths
}

struct Comparison<'a> {
    strings: &'a Strings,
    path: String,
    paths: &'a mut Vec<String>,
}

impl<'a> Comparison<'a> {
    /// Compares two values.
    fn compare(&mut self, old: &'a [u8], new: &'a [u8]) {
        if old == new || self.paths.len() >= PATHS {
            return;
        }
        let (old, new) = (Tokens::new(old), Tokens::new(new));
        match (old.peek(), new.peek()) {
            (Some(Token::Map), Some(Token::Map)) => self.compare_maps(&self.entries(old), &self.entries(new)),
            (Some(Token::List), Some(Token::List)) => self.compare_lists(&elements(old), &elements(new)),
            (Some(old), Some(new)) if old == new || self.is_same_text(old, new) => {}
            _ => self.push(),
        }
    }

    fn compare_maps(&mut self, old: &[(String, &'a [u8])], new: &[(String, &'a [u8])]) {
        for (at, (key, value)) in new.iter().enumerate() {
            // Mostly the keys are the same, and in the same order.
            let known =
                old.get(at).filter(|(known, _)| known == key).or_else(|| old.iter().find(|(known, _)| known == key));
            self.below(key, |this| match known {
                Some((_, known)) => this.compare(known, value),
                None => this.push(),
            });
        }
        for (key, _) in old.iter().filter(|(key, _)| new.iter().all(|(known, _)| known != key)) {
            self.below(key, Self::push);
        }
    }

    fn compare_lists(&mut self, old: &[&'a [u8]], new: &[&'a [u8]]) {
        if old.len() != new.len() {
            return self.push();
        }
        for (at, (old, new)) in old.iter().zip(new).enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("[{at}]"));
            self.compare(old, new);
            self.path.truncate(length);
        }
    }

    fn below(&mut self, key: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        compare(self);
        self.path.truncate(length);
    }

    fn push(&mut self) {
        if self.paths.len() < PATHS {
            self.paths.push(self.path.clone());
        }
    }

    fn entries(&self, mut map: Tokens<'a>) -> Vec<(String, &'a [u8])> {
        map.next();
        std::iter::from_fn(|| {
            let key = map.next().filter(|token| *token != Token::End)?;
            Some((self.text(key)?, map.value()))
        })
        .collect()
    }

    fn text(&self, token: Token<'_>) -> Option<String> {
        match token {
            Token::Text(text) => Some(text.into()),
            Token::Shared(number) => self.strings.get(number).map(Into::into),
            Token::Uuid(uuid) => Some(uuid.to_string()),
            Token::Time(seconds) => show_time(seconds),
            _ => None,
        }
    }

    /// A string may have been shared only since the old state was packed.
    fn is_same_text(&self, old: Token<'_>, new: Token<'_>) -> bool {
        self.text(old).is_some_and(|old| Some(old) == self.text(new))
    }
}

fn elements<'a>(mut list: Tokens<'a>) -> Vec<&'a [u8]> {
    list.next();
    std::iter::from_fn(|| (!matches!(list.peek(), None | Some(Token::End))).then(|| list.value())).collect()
}
