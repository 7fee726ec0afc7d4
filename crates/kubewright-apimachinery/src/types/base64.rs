//! Base64 as Go's `encoding/base64` decodes it: line breaks are skipped, and errors name the offset of a byte.

use std::borrow::Cow;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The values of the digits, or 255.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        #[expect(clippy::cast_possible_truncation, reason = "there are 64 digits")]
        {
            values[DIGITS[value] as usize] = value as u8;
        }
        value += 1;
    }
    values
};

/// Returns the text without line breaks, in canonical form.
///
/// # Errors
/// Returns the offset of the first byte that is wrong.
pub(super) fn canonical(text: &str) -> Result<Cow<'_, str>, usize> {
    if is_canonical(text.as_bytes()) {
        Ok(Cow::Borrowed(text))
    } else {
        decode(text.as_bytes()).map(|bytes| Cow::Owned(encode(&bytes)))
    }
}

fn is_canonical(text: &[u8]) -> bool {
    if !text.len().is_multiple_of(4) {
        return false;
    }
    let padding = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let (digits, _) = text.split_at(text.len() - padding);
    // The last digit has bits that no byte uses.
    let unused = [0, 0b11, 0b1111][padding];
    digits.iter().all(|byte| VALUES[usize::from(*byte)] != 255)
        && digits.last().is_none_or(|last| VALUES[usize::from(*last)] & unused == 0)
}

fn is_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut at, mut ended) = (0, false);
    while at < text.len() && !ended {
        let (mut group, mut length) = ([0_u8; 4], 0);
        while length < 4 {
            let Some(&byte) = text.get(at) else {
                // Line breaks at the end belong to no group.
                if length == 0 {
                    return Ok(bytes);
                }
                return Err(at - length);
            };
            at += 1;
            match VALUES[usize::from(byte)] {
                255 if is_break(byte) => {}
                255 if byte == b'=' && length >= 2 => {
                    at = padding(text, at, length)?;
                    ended = true;
                    break;
                }
                255 => return Err(at - 1),
                value => {
                    group[length] = value;
                    length += 1;
                }
            }
        }
        let [a, b, c, d] = group;
        let decoded = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        bytes.extend_from_slice(&decoded[..length - 1]);
    }
    Ok(bytes)
}

/// Reads the rest of the padding, after which nothing may follow.
fn padding(text: &[u8], mut at: usize, length: usize) -> Result<usize, usize> {
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(|byte| is_break(*byte)) {
            at += 1;
        }
        at
    };
    if length == 2 {
        at = skip(at);
        match text.get(at) {
            None => return Err(text.len()),
            Some(b'=') => at += 1,
            Some(_) => return Err(at - 1),
        }
    }
    at = skip(at);
    if at < text.len() { Err(at) } else { Ok(at) }
}

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| group.get(at).copied().unwrap_or_default());
        let digits = [a >> 2, (a << 4 | b >> 4) & 63, (b << 2 | c >> 6) & 63, c & 63];
        for (place, digit) in digits.into_iter().enumerate() {
            text.push(if place <= group.len() { char::from(DIGITS[usize::from(digit)]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_dropped() {
        for (text, expect) in [
            ("", ""),
            ("YQ==", "YQ=="),
            ("YWI=", "YWI="),
            ("YWJj", "YWJj"),
            ("YW\nJj\r\nYQ=\n=\n", "YWJjYQ=="),
            ("\n\n", ""),
            // Bits that no byte uses.
            ("YR==", "YQ=="),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expect), "{text:?}");
        }
    }

    #[test]
    fn errors_name_the_byte_as_go_does() {
        for (text, at) in [
            ("a b", 1),
            ("!", 0),
            ("a", 0),
            ("YQ", 0),
            ("YWJjYQ", 4),
            ("YQ=", 3),
            ("Y===", 1),
            ("=", 0),
            ("YQ=x", 2),
            ("YQ==x", 4),
            ("YWJj=", 4),
            ("YQ==\nYQ==", 5),
        ] {
            assert_eq!(canonical(text), Err(at), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn bytes_survive(bytes: Vec<u8>) {
            let text = encode(&bytes);
            proptest::prop_assert!(is_canonical(text.as_bytes()));
            proptest::prop_assert_eq!(decode(text.as_bytes()), Ok(bytes));
        }

        #[test]
        fn arbitrary_text_causes_no_panic(text in "[A-Za-z0-9+/=\n]{0,20}|\\PC{0,10}") {
            if let Ok(text) = canonical(&text) {
                proptest::prop_assert_eq!(canonical(&text), Ok(text.clone()));
            }
        }
    }
}
