//! JSON as Go writes it: without spaces, with escapes of what HTML and JavaScript treat specially, and with its own
//! notation of floats.

use std::io::Write;

use serde_json::{Number, Value};

/// The greatest integer up to which a float represents all integers.
pub(crate) const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Writes a value, the entries of objects in their order.
///
/// ```
/// use kubewright_apimachinery::go_json::write;
///
/// let mut out = Vec::new();
/// write(&serde_json::json!({"a": ["<&>", 1.0, 1e21]}), &mut out);
/// assert_eq!(out, br#"{"a":["\u003c\u0026\u003e",1,1e+21]}"#);
/// ```
pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => write_string(text, out),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Null => out.extend_from_slice(b"null"),
        Value::Number(number) => write_number(number, out),
        Value::Array(items) => {
            out.push(b'[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(entries) => {
            out.push(b'{');
            for (place, (name, value)) in entries.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write_string(name, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Writes a string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    if may_have_escapes(text.as_bytes()) {
        write_escaped(text, out);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
}

/// Returns whether a string may have escapes.
fn may_have_escapes(text: &[u8]) -> bool {
    // Without an early end, sixteen bytes take a few instructions; most strings are shorter, for which a table is
    // faster.
    let (chunks, rest) = text.as_chunks::<16>();
    chunks.iter().any(|chunk| chunk.iter().fold(false, |any, byte| any | may_be_escaped(*byte)))
        || rest.iter().any(|byte| MAY_BE_ESCAPED[usize::from(*byte)])
}

/// Writes a text with escapes. What is between them is copied as a whole, since configurations in annotations are long.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((plain, from)) = rest.bytes().position(may_be_escaped).and_then(|place| rest.split_at_checked(place))
    {
        out.extend_from_slice(plain.as_bytes());
        let mut chars = from.chars();
        if let Some(c) = chars.next() {
            write_char(c, out);
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

/// [`may_be_escaped`] by byte.
const MAY_BE_ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        #[expect(clippy::cast_possible_truncation, reason = "the index of a table of 256 entries")]
        let key = byte as u8;
        table[byte] = may_be_escaped(key);
        byte += 1;
    }
    table
};

/// Returns whether a character that begins with this byte may be escaped.
const fn may_be_escaped(byte: u8) -> bool {
    // U+2028 and U+2029 begin with 0xe2.
    (byte < b' ') | (byte == b'"') | (byte == b'\\') | (byte == b'<') | (byte == b'>') | (byte == b'&') | (byte == 0xe2)
}

fn write_char(c: char, out: &mut Vec<u8>) {
    let escape: &[u8] = match c {
        '"' => b"\\\"",
        '\\' => b"\\\\",
        '\n' => b"\\n",
        '\r' => b"\\r",
        '\t' => b"\\t",
        '\u{8}' => b"\\b",
        '\u{c}' => b"\\f",
        '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            // Writing to a vector can't fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
            return;
        }
        c => return out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    out.extend_from_slice(escape);
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        let _ = write!(out, "{number}");
        return;
    };
    // The shortest digits that denote the number, with an exponent if it is very large or small.
    if float == 0.0 || (1e-6..1e21).contains(&float.abs()) {
        let _ = write!(out, "{float}");
        return;
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => drop(write!(out, "{digits}e+{exponent}")),
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, expect: &str) {
        let mut out = Vec::new();
        write(&value, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn strings_are_escaped_as_in_go() {
        check(json!("<a>&\"\\"), r#""\u003ca\u003e\u0026\"\\""#);
        check(json!("\u{0}\u{1}\u{8}\u{c}\n\r\t\u{1f}"), r#""\u0000\u0001\b\f\n\r\t\u001f""#);
        check(json!("\u{2028}\u{2029}\u{2027}é😀\u{7f}"), "\"\\u2028\\u2029\u{2027}é😀\u{7f}\"");
        check(json!({"<": ["x", null, true, {}], "b": []}), r#"{"\u003c":["x",null,true,{}],"b":[]}"#);
    }

    #[test]
    fn escapes_are_found_at_each_place() {
        for (length, place) in (0..40).flat_map(|length| (0..length).map(move |place| (length, place))) {
            let plain = |length| "a".repeat(length);
            let (before, after) = (plain(place), plain(length - place - 1));
            check(json!(format!("{before}<{after}")), &format!(r#""{before}\u003c{after}""#));
            check(json!(plain(length)), &format!("\"{}\"", plain(length)));
        }
    }

    #[test]
    fn floats_are_written_as_in_go() {
        for (float, expect) in [
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e16, "10000000000000000"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.5e300, "-1.5e+300"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
        ] {
            check(json!(float), expect);
        }
        check(json!([1, -1, u64::MAX, i64::MIN]), "[1,-1,18446744073709551615,-9223372036854775808]");
    }
}
