//! The differences between two states of an object.

use std::borrow::Cow;

use super::{
    dictionary::{Dictionary, Shared},
    token::{Token, Tokens, show_time},
};

/// The maximum number of reported paths.
const PATHS: usize = 8;

/// Returns the paths of the fields that differ between two packed objects, such as `spec.replicas` or
/// `status.conditions[0].status`: at most the first eight. Lists of different lengths are reported as a whole.
///
/// Both must be packed with this dictionary. It costs one pass over the bytes; equal subtrees are compared bytewise.
pub fn changed_fields(old: &[u8], new: &[u8], dictionary: &Dictionary) -> Vec<String> {
    let shared = dictionary.shared();
    let mut paths = Vec::new();
    let (mut known, mut told) = (Tokens::new(old), Tokens::new(new));
    let mut comparison = Comparison { shared: &shared, path: "metadata".into(), paths: &mut paths };
    let metadata = known.value();
    comparison.compare(metadata, told.value_like(metadata));
    comparison.path.clear();
    // Nothing follows the last value.
    let (old, new) = (old.get(known.at()..), new.get(told.at()..));
    comparison.compare(old.unwrap_or_default(), new.unwrap_or_default());
    paths
}

struct Comparison<'a> {
    shared: &'a Shared,
    path: String,
    paths: &'a mut Vec<String>,
}

impl<'a> Comparison<'a> {
    /// Compares two values.
    fn compare(&mut self, old: &'a [u8], new: &'a [u8]) {
        if old == new || self.paths.len() >= PATHS {
            return;
        }
        let (old, new) = (self.entered(old), self.entered(new));
        match (old.peek(), new.peek()) {
            (Some(Token::Map), Some(Token::Map)) => self.compare_maps(old, new),
            (Some(Token::List), Some(Token::List)) => self.compare_lists(&elements(old), &elements(new)),
            (Some(old), Some(new)) if old == new || self.is_same_text(old, new) => {}
            _ => self.push(),
        }
    }

    /// Returns the tokens of a value, those of the dictionary if it is shared.
    fn entered(&self, value: &'a [u8]) -> Tokens<'a> {
        let tokens = Tokens::new(value);
        match tokens.peek() {
            Some(Token::SharedValue(number)) => Tokens::new(self.shared.value(number).unwrap_or_default()),
            _ => tokens,
        }
    }

    fn compare_maps(&mut self, mut old: Tokens<'a>, mut new: Tokens<'a>) {
        old.next();
        new.next();
        // Usually the keys are the same, in the same order.
        loop {
            let (mut after_known, mut after_key) = (old.clone(), new.clone());
            let (Some(known), Some(key)) = (after_known.next(), after_key.next()) else { break };
            if key == Token::End || (known != key && !self.is_same_text(known, key)) {
                break;
            }
            (old, new) = (after_known, after_key);
            let known = old.value();
            let value = new.value_like(known);
            if known != value
                && let Some(key) = self.text(key)
            {
                self.below(&key, |this| this.compare(known, value));
            }
        }
        let (old, new) = (self.entries(old), self.entries(new));
        for (key, value) in &new {
            let known = old.iter().find(|(known, _)| known == key);
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

    /// The entries from here to the end of the map.
    fn entries(&self, mut map: Tokens<'a>) -> Vec<(Cow<'a, str>, &'a [u8])> {
        std::iter::from_fn(|| {
            let key = map.next().filter(|token| *token != Token::End)?;
            Some((self.text(key)?, map.value()))
        })
        .collect()
    }

    fn text(&self, token: Token<'a>) -> Option<Cow<'a, str>> {
        match token {
            Token::Text(text) => Some(text.into()),
            Token::Shared(number) => self.shared.string(number).map(Into::into),
            Token::Uuid(uuid) => Some(uuid.to_string().into()),
            Token::Hash(hash) => Some(hash.to_string().into()),
            Token::Time(seconds) => show_time(seconds).map(Into::into),
            _ => None,
        }
    }

    /// A string may have been shared only since the old state was packed.
    fn is_same_text(&self, old: Token<'a>, new: Token<'a>) -> bool {
        self.text(old).is_some_and(|old| Some(old) == self.text(new))
    }
}

fn elements<'a>(mut list: Tokens<'a>) -> Vec<&'a [u8]> {
    list.next();
    std::iter::from_fn(|| (!list.is_at_end()).then(|| list.value())).collect()
}
