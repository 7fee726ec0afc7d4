//! Checks the length and depth of an expression before it is parsed.
//!
//! The parser, the evaluator and the destructors recurse. The parser limits the nesting of parentheses and similar
//! constructs, but not chains such as `a + a + a`, whose tree is as deep as the chain is long, nor conditionals such as
//! `a ? b : c ? d : e`, each of which is an operand of the one before.

/// The maximum length of an expression in characters, as in cel-go.
const LENGTH_LIMIT: usize = 100_000;

/// The maximum depth of an expression, as in cel-go.
const DEPTH_LIMIT: usize = 250;

/// Rejects an expression that is too long or too deep. Returns an upper bound of the depth to which the parser
/// recurses.
pub(super) fn check(text: &str) -> Result<usize, String> {
    let length = text.chars().count();
    if length > LENGTH_LIMIT {
        return Err(format!("expression code point size exceeds limit: size: {length}, limit {LENGTH_LIMIT}"));
    }
    if depth(text.as_bytes()) > DEPTH_LIMIT {
        return Err(format!("expression recursion limit exceeded: {DEPTH_LIMIT}"));
    }
    Ok(openings(text))
}

/// Returns the number of openings of parentheses and conditionals, also of those in strings and comments: after a
/// malformed string, the parser reads on behind its quote.
fn openings(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?')).count()
}

/// The operators within one pair of parentheses. Each adds a level above its left operand.
#[derive(Default)]
struct Level {
    /// Levels since the last `&&`, `||`, `,`, `?` or `:`, whose operands are at the same level.
    chain: usize,
    /// The conditionals since the last `,`: each may be an operand of the one before.
    conditionals: usize,
    longest: usize,
}

impl Level {
    fn add(&mut self, levels: usize) {
        self.chain += levels;
        self.longest = self.longest.max(self.chain + self.conditionals);
    }

    fn add_conditional(&mut self) {
        self.chain = 0;
        self.conditionals += 1;
        self.longest = self.longest.max(self.conditionals);
    }
}

/// Returns an upper bound of the depth of an expression whose strings are well-formed.
fn depth(text: &[u8]) -> usize {
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' | b'\'' => {
                let raw = at >= 2 && matches!(text[at - 2], b'r' | b'R');
                at = end_of_string(text, at - 1, raw);
            }
            b'/' if text.get(at) == Some(&b'/') => {
                at += text[at..].iter().position(|byte| *byte == b'\n').unwrap_or(text.len() - at);
            }
            b'(' | b'[' | b'{' => outer.push(std::mem::take(&mut level)),
            b')' | b']' | b'}' => {
                let inner = level.longest;
                level = outer.pop().unwrap_or_default();
                level.add(inner + 1);
            }
            b'?' => level.add_conditional(),
            b',' => (level.chain, level.conditionals) = (0, 0),
            b':' | b'&' | b'|' => level.chain = 0,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'.' => level.add(1),
            b'<' | b'>' | b'=' | b'!' => {
                level.add(1);
                if text.get(at) == Some(&b'=') {
                    at += 1;
                }
            }
            b'i' if is_word_in(text, at - 1) => level.add(1),
            _ => {}
        }
    }
    // The parser rejects unclosed parentheses, but descends into them first.
    outer.iter().map(|level| level.longest + 1).sum::<usize>() + level.longest
}

/// Returns whether the operator `in` is at `at`.
fn is_word_in(text: &[u8], at: usize) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let before = at.checked_sub(1).and_then(|at| text.get(at));
    text.get(at + 1) == Some(&b'n') && !before.is_some_and(is_name) && !text.get(at + 2).is_some_and(is_name)
}

/// Returns the position after the string literal that begins at `start`.
pub(super) fn end_of_string(text: &[u8], start: usize, raw: bool) -> usize {
    let quote = text[start];
    let triple = text[start..].starts_with(&[quote; 3]);
    let mut at = start + if triple { 3 } else { 1 };
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte == b'\\' && !raw {
            at += 1;
        } else if byte == quote && (!triple || text[at..].starts_with(&[quote; 2])) {
            return at + if triple { 2 } else { 0 };
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_parentheses_add_levels() {
        for (text, tree) in [
            ("", 0),
            ("a", 0),
            ("a + b * c", 2),
            ("a.b.c == 1 && d == 2", 3),
            ("f(a + b, c + d + e) + 1", 4),
            ("((a + b) + c)", 4),
            ("'a+b.c+d' + 1", 1),
            (r"'a\'+b.c+d' + 1", 1),
            (r"r'a\' + 1 + 2", 2),
            ("'''a'+'b.c''' + 1", 1),
            ("1 // a + b + c + d\n + 2", 1),
            ("a.b(c).d(e)[0]", 5),
            ("inner in inside && min in [in]", 3),
            ("(((", 3),
            ("a ? b : c ? d : e + f", 3),
            ("[a ? b : c, d ? e : (f ? g : h)]", 4),
        ] {
            assert_eq!(depth(text.as_bytes()), tree, "{text}");
        }
    }

    #[test]
    fn deep_and_long_expressions_are_refused() {
        let chain = |terms: usize| vec!["1"; terms].join(" + ");
        assert_eq!(check(&chain(DEPTH_LIMIT + 1)), Ok(0));
        assert_eq!(check(&chain(DEPTH_LIMIT + 2)), Err("expression recursion limit exceeded: 250".to_owned()));
        assert_eq!(check(&vec!["a == 1"; 10_000].join(" && ")), Ok(0));
        assert!(check(&" ".repeat(LENGTH_LIMIT + 1)).is_err());
        assert!(check(&vec!["a"; 10_000].join(".")).is_err());
        let chains = format!("{}1{}", "(".repeat(60), " + 1 + 1 + 1 + 1)".repeat(60));
        assert!(check(&chains).is_err());
    }
}
