//! Rejects an expression with many syntax errors before it is parsed.
//!
//! The parser recovers from each syntax error, and reads far ahead to do so: an expression with thousands of commas or
//! emojis in a row takes seconds. cel-go's parser stops after 30 misplaced tokens, or 100 characters that begin no
//! token. This module counts a lower bound of both, in one pass over the text.

use super::nesting::end_of_string;

/// The maximum number of syntax errors from which cel-go's parser recovers.
const RECOVERY_LIMIT: usize = 30;

/// The maximum number of syntax errors that cel-go's parser reports.
const REPORT_LIMIT: usize = 100;

/// Rejects an expression that certainly has more syntax errors than the limits.
pub(super) fn check(text: &str) -> Result<(), String> {
    let errors = errors(text.as_bytes());
    if errors.misplaced > RECOVERY_LIMIT {
        return Err(format!("error recovery attempt limit exceeded: {RECOVERY_LIMIT}"));
    }
    if errors.unrecognized > REPORT_LIMIT {
        return Err(format!("More than {REPORT_LIMIT} syntax errors"));
    }
    Ok(())
}

/// The syntax errors of an expression.
#[derive(Debug, Default, PartialEq)]
struct Errors {
    /// The tokens that can't follow the token before them.
    misplaced: usize,
    /// The characters that begin no token.
    unrecognized: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, PartialEq)]
enum Token {
    /// A name, a literal, or a closing parenthesis, bracket or brace.
    Operand,
    /// An operator. An operand has to follow it.
    Operator,
    /// An opening parenthesis, bracket or brace.
    Opening,
    /// A comma. A closing bracket or brace may follow it.
    Comma,
}

/// Counts syntax errors. A valid expression has none.
fn errors(text: &[u8]) -> Errors {
    let (mut previous, mut errors, mut at) = (Token::Operator, Errors::default(), 0);
    while let Some(&byte) = text.get(at) {
        let start = at;
        at += 1;
        let next = text.get(at).copied();
        let (is_possible, token) = match byte {
            b'/' if next == Some(b'/') => {
                at += text[at..].iter().position(|byte| *byte == b'\n').unwrap_or(text.len() - at);
                continue;
            }
            b'"' | b'\'' => {
                let raw = start > 0 && matches!(text[start - 1], b'r' | b'R');
                at = end_of_string(text, start, raw);
                (previous != Token::Operand, Token::Operand)
            }
            b'`' => {
                at += text[at..].iter().position(|byte| *byte == b'`').map_or(text.len() - at, |length| length + 1);
                (previous != Token::Operand, Token::Operand)
            }
            byte if is_name(byte) => {
                at += text[at..].iter().position(|byte| !is_name(*byte)).unwrap_or(text.len() - at);
                match &text[start..at] {
                    b"in" => (previous == Token::Operand, Token::Operator),
                    // The prefix of a string or bytes literal.
                    b"r" | b"R" | b"b" | b"B" | b"br" | b"bR" | b"Br" | b"BR"
                        if matches!(text.get(at), Some(b'"' | b'\'')) =>
                    {
                        continue;
                    }
                    _ => (previous != Token::Operand, Token::Operand),
                }
            }
            b'(' | b'[' | b'{' => (true, Token::Opening),
            b')' | b']' | b'}' => (previous != Token::Operator, Token::Operand),
            b',' => (previous == Token::Operand, Token::Comma),
            b'!' if next != Some(b'=') => (previous != Token::Operand, Token::Operator),
            // The sign of a number, an optional element, a name of the root.
            b'-' | b'?' | b'.' => (true, Token::Operator),
            b'=' | b'&' | b'|' if next != Some(byte) => {
                errors.unrecognized += 1;
                continue;
            }
            b'+' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b':' => {
                if matches!(next, Some(b'=' | b'&' | b'|')) {
                    at += 1;
                }
                (previous == Token::Operand, Token::Operator)
            }
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0C' => continue,
            // A character is counted by its first byte.
            byte => {
                errors.unrecognized += usize::from(byte & 0xC0 != 0x80);
                continue;
            }
        };
        errors.misplaced += usize::from(!is_possible);
        previous = token;
    }
    errors
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_expressions_have_no_errors() {
        for text in [
            "",
            "self.a.all(x, x > 1 && !(x in [1, 2,]))",
            "a ? -b : !c ? .d.e : f()[0]",
            "{'a': 1, \"b\": [], 'c': {}}.size() >= 0x1F + 1.5e-3 + 1u",
            r#"r'\' + br"\" + b'\'' + '''a'b''' != ''"#,
            "a.?b.orValue(c[?0]) == [?d, ?e] || msg{f: 1, ?g: h}",
            "a // b c d ,,,\n && b",
            "self.`in-name` - --1 <= 2 % 3 * 4 / 5",
            "a.matches('^[a-z](,,,)$') || b == 'ä' + \"ö\"",
            "f(g(), [], {}) == x",
        ] {
            assert_eq!(errors(text.as_bytes()), Errors::default(), "{text}");
        }
    }

    #[test]
    fn malformed_expressions_have_errors() {
        for (text, misplaced, unrecognized) in [
            ("f(,,,)", 3, 0),
            ("a b c", 2, 0),
            ("+ 1", 1, 0),
            ("1 + ) && (2 + ]", 2, 0),
            ("[a in, in b]", 2, 0),
            ("'a' 'b'", 1, 0),
            ("a & b = \\ä", 1, 4),
            ("$ 1 == @", 0, 2),
        ] {
            assert_eq!(errors(text.as_bytes()), Errors { misplaced, unrecognized }, "{text}");
        }
    }

    #[test]
    fn many_errors_are_refused_without_parsing() {
        assert_eq!(check(&format!("f({})", ",".repeat(RECOVERY_LIMIT))), Ok(()));
        let error = check(&format!("f({})", ",".repeat(RECOVERY_LIMIT + 1)));
        assert_eq!(error, Err("error recovery attempt limit exceeded: 30".to_owned()));
        assert_eq!(check(&"🙂".repeat(REPORT_LIMIT)), Ok(()));
        assert_eq!(check(&"🙂".repeat(REPORT_LIMIT + 1)), Err("More than 100 syntax errors".to_owned()));
    }
}
