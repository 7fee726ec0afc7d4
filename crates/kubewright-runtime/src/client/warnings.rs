//! Logging of the API server's warnings, such as those about deprecated versions and unknown fields, or from webhooks.
//!
//! They are headers of successful responses; see
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#warnings>.

use std::{collections::BTreeSet, sync::Arc};

use http::{HeaderMap, header::WARNING};
use parking_lot::Mutex;
use tracing::warn;

/// The maximum number of texts remembered to avoid logging one twice. When it is reached, all are forgotten.
const MOST: usize = 256;
/// The code of warnings for users.
const FOR_USERS: &str = "299";

/// Logs the warnings in responses, each text once. Clones share the texts.
#[derive(Clone, Debug, Default)]
pub(super) struct WarningLog(Arc<Mutex<BTreeSet<String>>>);

impl WarningLog {
    pub(super) fn note(&self, path: &str, headers: &HeaderMap) {
        for warning in warnings(headers) {
            if is_new(&mut self.0.lock(), &warning) {
                warn!(path, warning, "warning of the API server");
            }
        }
    }
}

fn is_new(known: &mut BTreeSet<String>, warning: &str) -> bool {
    if known.contains(warning) {
        return false;
    }
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(warning.to_owned())
}

/// Returns the texts of warnings for users. Malformed headers are ignored.
fn warnings(heads: &HeaderMap) -> Vec<String> {
    let values = heads.get_all(WARNING).iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    values.flat_map(texts).collect()
}

/// Returns the texts of a header, which may contain several warnings: `299 - "text", 299 - "text" "date"`.
fn texts(value: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), value);
    loop {
        rest = rest.trim_start_matches([' ', ',', '\t']);
        let Some((code, after)) = rest.split_once(' ') else { return found };
        let Some((text, after)) = after.trim_start().split_once(' ').and_then(|(_agent, text)| quoted(text)) else {
            return found;
        };
        if code == FOR_USERS {
            found.push(text);
        }
        // A date may follow.
        rest = quoted(after).map_or(after, |(_date, after)| after);
    }
}

/// Parses a quoted string, and returns it with the rest of the text.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start().strip_prefix('"')?;
    let (mut content, mut escaped) = (String::new(), false);
    for (place, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => return Some((content, &text[place + 1..])),
            '\\' if !escaped => escaped = true,
            letter => {
                escaped = false;
                content.push(letter);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_parsed_from_headers() {
        let check = |value: &str, expected: &[&str]| assert_eq!(texts(value), expected, "{value}");
        check(r#"299 - "v1beta1 is deprecated""#, &["v1beta1 is deprecated"]);
        check(
            r#"299 host "say \"no\" \\ yes" "Sun, 22 Nov 2026 02:00:00 GMT", 299 - "more""#,
            &["say \"no\" \\ yes", "more"],
        );
        check(r#"199 - "not for users",299 - "for users""#, &["for users"]);
        for broken in ["", "299", "299 -", r#"299 - ""#, r#"299 - "open"#, r#"299 - no quotes"#] {
            check(broken, &[]);
        }
    }

    #[test]
    fn the_number_of_remembered_texts_is_bounded() {
        let mut known = BTreeSet::new();
        assert!(is_new(&mut known, "a") && !is_new(&mut known, "a"));
        for number in 0..3 * MOST {
            assert!(is_new(&mut known, &number.to_string()));
            assert!(known.len() <= MOST);
        }
    }
}
