//! Rejects an expression with many syntax errors before it is parsed.
//!
//! The parser recovers from each syntax error, and reads far ahead to do so: an expression with thousands of commas in a row takes seconds. cel-go's
//! parser stops after 30 errors. This module counts a lower bound of the errors, in one pass over the text.

use super::nesting::end_of_string;

/// The maximum number of syntax errors from which cel-go's parser recovers.
const RECOVERY_LIMIT: usize = 30;

/// Rejects an expression that certainly has more syntax errors than the limit.
pub(super) fn check(text: &str) -> Result<(), String> {
    if errors(text.as_bytes()) > RECOVERY_LIMIT {
        return Err(format!("error recovery attempt limit exceeded: {RECOVERY_LIMIT}"));
    }
    Ok(())
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

/// Counts the tokens that can't follow the token before them. The count is 0 for a valid expression.
fn errors(text: &[u8]) -> usize {
    let (mut previous, mut errors, mut at) = (Token::Operator, 0, 0);
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
            b'+' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b':' => {
                if matches!(next, Some(b'=' | b'&' | b'|')) {
                    at += 1;
                }
                (previous == Token::Operand, Token::Operator)
            }
            _ => continue,
        };
        errors += usize::from(!is_possible);
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
            assert_eq!(errors(text.as_bytes()), 0, "{text}");
        }
    }

    #[test]
    fn malformed_expressions_have_errors() {
        for (text, count) in
            [("f(,,,)", 3), ("a b c", 2), ("+ 1", 1), ("1 + ) && (2 + ]", 2), ("[a in, in b]", 2), ("'a' 'b'", 1)]
        {
            assert_eq!(errors(text.as_bytes()), count, "{text}");
        }
    }

    #[test]
    fn many_errors_are_refused_without_parsing() {
        assert_eq!(check(&format!("f({})", ",".repeat(RECOVERY_LIMIT))), Ok(()));
        let error = check(&format!("f({})", ",".repeat(RECOVERY_LIMIT + 1)));
        assert_eq!(error, Err("error recovery attempt limit exceeded: 30".to_owned()));
    }
}
