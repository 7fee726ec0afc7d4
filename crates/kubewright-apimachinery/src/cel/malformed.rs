//! Refuses an expression with many syntax errors before it is parsed.
//!
//! The parser reports all errors: it goes on behind each, and looks far ahead to do so. Thousands of commas in a row take seconds. cel-go gives
//! up after 30 errors; so does this, with a lower bound of their number.

use super::nesting::end_of_string;

/// The number of errors behind which cel-go goes on.
const RECOVERY_LIMIT: usize = 30;

/// Rejects an expression with more errors than a parser should go on behind.
pub(super) fn check(text: &str) -> Result<(), String> {
    if errors(text.as_bytes()) > RECOVERY_LIMIT {
        return Err(format!("error recovery attempt limit exceeded: {RECOVERY_LIMIT}"));
    }
    Ok(())
}

/// What a token follows.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// An operand, such as a name, a literal or a closing parenthesis.
    Operand,
    /// An operator, which needs an operand behind it.
    Operator,
    /// An opening parenthesis or a comma, behind which a closing one may be.
    Opening,
    Comma,
}

/// Returns the number of tokens that can't be where they are in any expression. There is none in a well-formed one.
fn errors(text: &[u8]) -> usize {
    let (mut before, mut errors, mut at) = (Before::Operator, 0, 0);
    while let Some(&byte) = text.get(at) {
        let start = at;
        at += 1;
        let next = text.get(at).copied();
        let (is_possible, now) = match byte {
            b'/' if next == Some(b'/') => {
                at += text[at..].iter().position(|byte| *byte == b'\n').unwrap_or(text.len() - at);
                continue;
            }
            b'"' | b'\'' => {
                let raw = start > 0 && matches!(text[start - 1], b'r' | b'R');
                at = end_of_string(text, start, raw);
                (before != Before::Operand, Before::Operand)
            }
            b'`' => {
                at += text[at..].iter().position(|byte| *byte == b'`').map_or(text.len() - at, |length| length + 1);
                (before != Before::Operand, Before::Operand)
            }
            byte if is_name(byte) => {
                at += text[at..].iter().position(|byte| !is_name(*byte)).unwrap_or(text.len() - at);
                match &text[start..at] {
                    b"in" => (before == Before::Operand, Before::Operator),
                    // The prefix of a literal.
                    b"r" | b"R" | b"b" | b"B" | b"br" | b"bR" | b"Br" | b"BR" | b"rb" | b"rB" | b"Rb" | b"RB"
                        if matches!(text.get(at), Some(b'"' | b'\'')) =>
                    {
                        continue;
                    }
                    _ => (before != Before::Operand, Before::Operand),
                }
            }
            b'(' | b'[' | b'{' => (true, Before::Opening),
            b')' | b']' | b'}' => (before != Before::Operator, Before::Operand),
            b',' => (before == Before::Operand, Before::Comma),
            b'!' if next != Some(b'=') => (before != Before::Operand, Before::Operator),
            // The sign of a number, an optional element, a name of the root.
            b'-' | b'?' | b'.' => (true, Before::Operator),
            b'+' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b':' => {
                if matches!(next, Some(b'=' | b'&' | b'|')) {
                    at += 1;
                }
                (before == Before::Operand, Before::Operator)
            }
            _ => continue,
        };
        errors += usize::from(!is_possible);
        before = now;
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
