//! Repeated negations, of which the parser takes any number for one, although two cancel each other out (cel-spec,
//! *Values*). It also reads what follows twice if their number is even, which takes exponential time if they nest.

use std::borrow::Cow;

use super::nesting::end_of_string;

/// Returns an expression in which each run of `!` or of `-` before an operand has at most one of them. The others are
/// replaced by blanks, so that everything stays at its place.
pub(super) fn simplify(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut blanks = Vec::new();
    // Whether the last token was an operand, after which a minus is a subtraction.
    let (mut follows_operand, mut at) = (false, 0);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'/' if bytes.get(at) == Some(&b'/') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
            }
            b'"' | b'\'' => {
                let raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
                (at, follows_operand) = (end_of_string(bytes, start, raw), true);
            }
            b'`' => {
                at += bytes[at..].iter().position(|byte| *byte == b'`').map_or(bytes.len() - at, |length| length + 1);
                follows_operand = true;
            }
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0C' => {}
            b'-' if follows_operand => follows_operand = false,
            b'!' | b'-' => {
                let run = run(bytes, start);
                at = run.last().map_or(at, |last| last + 1);
                let kept = run.len() % 2;
                blanks.extend(run.into_iter().skip(kept));
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                at += bytes[at..].iter().position(|byte| !is_name(byte)).unwrap_or(bytes.len() - at);
                follows_operand = &bytes[start..at] != b"in";
            }
            byte => follows_operand = matches!(byte, b')' | b']' | b'}'),
        }
    }
    if blanks.is_empty() {
        return text.into();
    }
    let mut simplified = text.to_owned().into_bytes();
    blanks.into_iter().for_each(|at| simplified[at] = b' ');
    // Only ASCII has been replaced.
    String::from_utf8(simplified).map_or(text.into(), Cow::Owned)
}

/// Returns the places of an operator at `start` and of the same ones that follow, with blanks in between.
fn run(bytes: &[u8], start: usize) -> Vec<usize> {
    let mut run = Vec::new();
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'!' if bytes.get(at + 1) == Some(&b'=') => break,
            byte if *byte == bytes[start] => run.push(at),
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0C' => {}
            _ => break,
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_negations_cancel_each_other_out() {
        for (text, expect) in [
            ("!!a", "  a"),
            ("!a && ! !b", "!a &&    b"),
            ("!!!a", "!  a"),
            ("--1 == 1", "  1 == 1"),
            ("- - -x", "-    x"),
            ("a - -b", "a - -b"),
            ("a--b", "a--b"),
            ("a---b", "a-  b"),
            ("f(--x)[--1] - --y", "f(  x)[  1] -   y"),
            ("x in --y", "x in   y"),
            ("a != !!b", "a !=   b"),
            ("'!!' + r'--\\' + \"--\" // !!", "'!!' + r'--\\' + \"--\" // !!"),
            ("!'ä' !!= b", "!'ä' !!= b"),
        ] {
            assert_eq!(simplify(text), expect, "{text}");
        }
    }
}
