//! The places of the parts of an expression in its text.
//!
//! The parser doesn't tell them, so the tree is visited in the order of the text, and each part is found as the next
//! token that it begins with. What isn't found only makes a message point at a wrong place.

/// The tokens of a text, and a cursor.
#[derive(Debug)]
pub(super) struct Tokens<'t> {
    text: &'t str,
    /// The byte at which each token begins, and its text.
    tokens: Vec<(usize, &'t str)>,
    next: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(first) = text[at..].chars().next() {
            let length = length(&text[at..], first);
            if !first.is_whitespace() && !text[at..].starts_with("//") {
                tokens.push((at, &text[at..at + length]));
            }
            at += length;
        }
        Self { text, tokens, next: 0 }
    }

    /// Returns where the calls of a function begin.
    pub(super) fn calls_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let pairs = self.tokens.windows(2);
        pairs.filter(move |pair| pair[0].1 == name && pair[1].1 == "(").map(|pair| pair[0].0)
    }

    /// Returns where the quoted names of fields begin, such as `` `a-b` ``.
    pub(super) fn quoted_names(&self) -> impl Iterator<Item = usize> {
        self.tokens.iter().filter(|(_, token)| token.starts_with('`')).map(|(at, _)| *at).step_by(2)
    }

    /// Moves behind the next token with this text. Returns where it begins.
    pub(super) fn after(&mut self, token: &str) -> usize {
        self.after_any(|known| known == token)
    }

    /// Moves behind the next literal. Returns where it begins.
    pub(super) fn after_literal(&mut self) -> usize {
        self.after_any(|token| {
            matches!(token, "true" | "false" | "null")
                || token.starts_with(|first: char| first.is_ascii_digit())
                || token.ends_with(['"', '\''])
        })
    }

    /// Moves behind the next token that `is` the wanted one. Returns where it begins.
    pub(super) fn after_any(&mut self, is: impl Fn(&str) -> bool) -> usize {
        let rest = self.tokens.get(self.next..).unwrap_or_default();
        match rest.iter().position(|(_, token)| is(token)) {
            Some(place) => {
                self.next += place + 1;
                rest[place].0
            }
            None => rest.first().map_or(0, |(at, _)| *at),
        }
    }

    /// Returns an error at a byte of the text, as cel-go shows it.
    pub(super) fn error(&self, at: usize, why: &str) -> String {
        let before = &self.text[..at];
        let begin = before.rfind('\n').map_or(0, |place| place + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[begin..].chars().count();
        let shown = self.text[begin..].lines().next().unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{line}:{}: {why}\n | {shown}\n | {dots}^", column + 1)
    }
}

/// Returns the length of the token (or of the space or comment) at the beginning of a text.
fn length(text: &str, first: char) -> usize {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@';
    let until = |stop: &dyn Fn(char) -> bool| text.find(stop).unwrap_or(text.len());
    if first.is_whitespace() {
        return until(&|c| !c.is_whitespace());
    }
    if text.starts_with("//") {
        return until(&|c| c == '\n');
    }
    if first.is_ascii_digit() {
        return until(&|c| !word(c) && c != '.');
    }
    let prefix = text.len() - text.trim_start_matches(['r', 'R', 'b', 'B']).len();
    if prefix <= 2 && text[prefix..].starts_with(['"', '\'']) {
        return prefix + quoted(&text[prefix..], text[..prefix].contains(['r', 'R']));
    }
    if word(first) {
        return until(&|c| !word(c));
    }
    match text.get(..2) {
        Some(pair @ ("==" | "!=" | "<=" | ">=" | "&&" | "||")) => pair.len(),
        _ => first.len_utf8(),
    }
}

/// Returns the length of a string literal, whose first character is the quote.
fn quoted(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let end = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = end.len();
    while at < text.len() {
        if text[at..].starts_with(end) {
            return at + end.len();
        }
        let c = text[at..].chars().next().map_or(1, char::len_utf8);
        at += c;
        if !raw && &text[at - c..at] == "\\" {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_order() {
        let text = "self.a == r'\\' && b\"x\\\"y\" in [1.5e3, -2u] // c\n  && !has(x)";
        let tokens: Vec<_> = Tokens::new(text).tokens.into_iter().map(|(_, token)| token).collect();
        let expect = [
            "self",
            ".",
            "a",
            "==",
            "r'\\'",
            "&&",
            "b\"x\\\"y\"",
            "in",
            "[",
            "1.5e3",
            ",",
            "-",
            "2u",
            "]",
            "&&",
            "!",
            "has",
            "(",
            "x",
            ")",
        ];
        assert_eq!(tokens, expect);
    }

    #[test]
    fn errors_show_the_line() {
        let tokens = Tokens::new("a &&\n  ü.b");
        let at = tokens.text.find('.').expect("a dot");
        assert_eq!(tokens.error(at, "no"), "ERROR: <input>:2:4: no\n |   ü.b\n | ...^");
    }

    #[test]
    fn any_text_has_tokens() {
        for text in ["", "'", "'''a''", "\"\\", "r", "ü", "1.", "b'", "//", "'ü\\ü"] {
            let mut tokens = Tokens::new(text);
            tokens.after("x");
            tokens.after_literal();
            assert!(tokens.error(0, "no").starts_with("ERROR: <input>:1:1: no"), "{text}");
        }
    }
}
