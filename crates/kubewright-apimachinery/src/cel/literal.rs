//! Literals that the parser refuses, although they are valid (cel-spec, *Values*): triple-quoted strings with quotes in
//! them, raw bytes with backslashes, and negative hexadecimal numbers.

use std::borrow::Cow;

use super::nesting::end_of_string;

/// Returns an expression in which these literals are replaced by equal ones. The rest keeps its place if the new
/// literal isn't longer.
pub(super) fn simplify(text: &str) -> Cow<'_, str> {
    if !["\"\"\"", "'''", "-0x", "br", "bR", "Br", "BR"].iter().any(|part| text.contains(part)) {
        return text.into();
    }
    let bytes = text.as_bytes();
    let (mut simplified, mut copied, mut at) = (String::with_capacity(text.len()), 0, 0);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let replacement = match byte {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
                None
            }
            b'-' if bytes[at..].starts_with(b"-0x") => {
                at += 3 + word(&bytes[at + 3..]);
                let number = i64::from_str_radix(&text[start + 3..at], 16).ok();
                number.map(|number| format!("-{number}")).filter(|number| number.len() <= at - start)
            }
            byte if byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'"' | b'\'') => {
                at += word(&bytes[at..]);
                let prefix = text[start..at].to_ascii_lowercase();
                let is_string = matches!(bytes.get(at), Some(b'"' | b'\'')) && "rb br".contains(&prefix);
                if is_string {
                    let quote = at;
                    at = end_of_string(bytes, at, prefix.contains('r'));
                    string(&prefix, text.get(quote..at).unwrap_or_default())
                } else {
                    None
                }
            }
            byte => {
                at += if byte.is_ascii_digit() { word(&bytes[at..]) } else { 1 };
                None
            }
        };
        if let Some(replacement) = replacement {
            let missing = text[start..at].chars().count().saturating_sub(replacement.chars().count());
            simplified += &text[copied..start];
            simplified += &replacement;
            simplified.extend(std::iter::repeat_n(' ', missing));
            copied = at;
        }
    }
    simplified += &text[copied..];
    simplified.into()
}

/// Returns the length of the word at the beginning.
fn word(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(bytes.len())
}

/// Returns an equal literal in single quotes, if the parser refuses this one.
fn string(prefix: &str, quoted: &str) -> Option<String> {
    let quote = quoted.chars().next()?;
    let triple = quote.to_string().repeat(3);
    let delimiter = if quoted.len() >= 6 && quoted.starts_with(&triple) { triple.as_str() } else { &triple[..1] };
    let content = quoted.strip_prefix(delimiter)?.strip_suffix(delimiter)?;
    let (is_raw, is_bytes) = (prefix.contains('r'), prefix.contains('b'));
    if !(delimiter.len() == 3 && content.contains(quote) || is_raw && is_bytes && content.contains('\\')) {
        return None;
    }
    let mut literal = String::from(if is_bytes { "b" } else { "" });
    literal.push(quote);
    let mut characters = content.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' if is_raw => literal += "\\\\",
            '\\' => {
                literal.push(c);
                literal.extend(characters.next());
            }
            '\n' => literal += "\\n",
            '\r' => literal += "\\r",
            c if c == quote => literal.extend(['\\', c]),
            c => literal.push(c),
        }
    }
    literal.push(quote);
    Some(literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_literals_are_replaced() {
        for (text, expect) in [
            (r#"a == """triple "q" """ && b"#, r#"a == "triple \"q\" "   && b"#),
            (r"'''it's''' + x", r"'it\'s'    + x"),
            ("'''a'\nb'''", r"'a\'\nb'  "),
            (r"'''a\'b''' + x", r"'a\'b'     + x"),
            (r#"r"""\"" """ + x"#, r#""\\\"\" "   + x"#),
            (r"br'\n' + x", r"b'\\n' + x"),
            ("-0x1F == a-0x10", "-31   == a-16  "),
            ("0x1F + f_0x1 - 0x1", "0x1F + f_0x1 - 0x1"),
            ("'-0x1F' + r'\\' // '''a'b'''", "'-0x1F' + r'\\' // '''a'b'''"),
            ("'''ä'''", "'''ä'''"),
            ("'''", "'''"),
            ("brä == '''", "brä == '''"),
        ] {
            assert_eq!(simplify(text), expect, "{text}");
        }
        // The padding of a long number.
        let zeros = "0".repeat(70_000);
        assert_eq!(simplify(&format!("-0x{zeros}1")), format!("-1{}", " ".repeat(70_002)));
    }
}
