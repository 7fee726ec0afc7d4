//! Removal of what differs between two servers, or two runs of one.

/// Replaces UIDs, times and address ranges in a message by placeholders, and cuts it at its first line break: what
/// follows is a difference in Go's notation.
pub(crate) fn normalize(text: &str) -> String {
    const RANGE: &str = "The range of valid IPs is ";
    let line = text.split('\n').next().unwrap_or_default();
    let mut words = Vec::new();
    for word in line.split(' ') {
        words.push(replace_tokens(word));
    }
    let mut line = words.join(" ");
    if let Some(start) = line.find(RANGE) {
        let from = start + RANGE.len();
        let length = line[from..].find([' ', ',', '"']).unwrap_or(line.len() - from);
        line.replace_range(from..from + length, "{range}");
    }
    line
}

/// Replaces the UIDs and times in a word.
fn replace_tokens(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        if let Some(length) = token(rest, UID) {
            text.push_str("{uid}");
            rest = &rest[length..];
        } else if let Some(length) = token(rest, TIME) {
            text.push_str("{time}");
            rest = &rest[length..];
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// In these patterns, `x` is a hexadecimal digit, `0` a decimal one, and every other character itself.
const UID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: &str = "0000-00-00T00:00:00Z";

fn token(text: &str, pattern: &str) -> Option<usize> {
    let found = text.get(..pattern.len())?;
    let fits = found.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
        b'x' => byte.is_ascii_hexdigit(),
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    fits.then_some(pattern.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_replaced() {
        let text = "a \"12345678-1234-1234-1234-123456789abc\" at 2024-01-02T03:04:05Z. The range of valid IPs is \
                    10.0.0.0/24";
        assert_eq!(normalize(text), "a \"{uid}\" at {time}. The range of valid IPs is {range}");
        assert_eq!(normalize("ä\nsecond line"), "ä");
    }
}
