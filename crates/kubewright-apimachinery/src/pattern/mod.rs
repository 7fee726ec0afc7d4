//! Regular expressions in the syntax of Go's `regexp`, which Kubernetes uses.
//!
//! The syntax is nearly that of the `regex` crate. The relevant differences are translated: `\d`, `\w`, `\s` and `\b`
//! match only ASCII characters, and `[`, `&` and `~` have no special meaning within a class. What Go refuses is refused
//! with its words.

mod syntax;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use parking_lot::RwLock;
use regex::{Regex, RegexBuilder};

pub(crate) use self::syntax::check;

/// The maximum number of cached patterns. The cache is cleared when it is reached. CRDs in use have far fewer.
const CACHED: usize = 1024;

/// Compiles a pattern. `limit` is the maximum size of the compiled form in bytes, which also limits the time of
/// compilation.
///
/// # Errors
/// If the pattern is invalid, or its compiled form too large.
pub(crate) fn compile(pattern: &str, limit: Option<usize>) -> Result<Regex, String> {
    check(pattern)?;
    let mut builder = RegexBuilder::new(&translate(pattern));
    if let Some(limit) = limit {
        builder.size_limit(limit);
    }
    builder.build().map_err(|error| format!("invalid regular expression: {error}"))
}

/// Returns whether `pattern` matches anywhere within `text`, as in Go. Compiled patterns are cached. Returns an error
/// if the pattern is invalid.
pub(crate) fn is_match(pattern: &str, text: &str) -> Result<bool, String> {
    static CACHE: LazyLock<RwLock<HashMap<Box<str>, Arc<Regex>>>> = LazyLock::new(Default::default);
    // Releases the lock before matching, which may take long.
    let known = CACHE.read().get(pattern).cloned();
    if let Some(regex) = known {
        return Ok(regex.is_match(text));
    }
    let regex = Arc::new(compile(pattern, None)?);
    let mut cache = CACHE.write();
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(pattern.into(), regex.clone());
    drop(cache);
    Ok(regex.is_match(text))
}

fn translate(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('d') => translated += "[0-9]",
                Some('D') => translated += "[^0-9]",
                Some('w') => translated += "[0-9A-Za-z_]",
                Some('W') => translated += "[^0-9A-Za-z_]",
                Some('s') => translated += r"[\t\n\f\r ]",
                Some('S') => translated += r"[^\t\n\f\r ]",
                Some('b') if !in_class => translated += r"(?-u:\b)",
                Some(escaped) => translated.extend(['\\', escaped]),
                None => translated.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                translated.push('[');
                translated.extend(chars.next_if_eq(&'^'));
                // At the start of a class, a closing bracket is literal.
                translated.extend(chars.next_if_eq(&']').map(|_| r"\]"));
            }
            '[' if chars.peek() == Some(&':') => {
                // `[:alpha:]`
                translated.push('[');
                for char in chars.by_ref() {
                    translated.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            ']' => {
                in_class = false;
                translated.push(']');
            }
            '[' | '&' | '~' if in_class => translated.extend(['\\', char]),
            _ => translated.push(char),
        }
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, good, bad) in [
            (r"^\d+$", "12", "١٢"),
            (r"^\w+$", "a_1", "ä"),
            (r"^[\w.-]+$", "a-b.c", "ä"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^\S+\s\S+$", "a b", "ab"),
            (r"^[^\D]$", "1", "a"),
            (r"a\b", "a-", "ab"),
            (r"^[[a]+$", "[a", "b"),
            (r"^[a&&b]+$", "&", "c"),
            (r"^[]a]+$", "]a", "b"),
            (r"^[^]a]+$", "b", "]"),
            (r"^[[:alpha:]_]+$", "a_", "1"),
            (r"^\\d$", r"\d", "1"),
            (r"^.$", "ä", "ab"),
            (r"^\p{L}+$", "äß", "1"),
        ] {
            assert_eq!(is_match(pattern, good), Ok(true), "{pattern} {good}");
            assert_eq!(is_match(pattern, bad), Ok(false), "{pattern} {bad}");
        }
        for pattern in ["(", "[a", "\\", "(?=a)"] {
            assert!(is_match(pattern, "").is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_compiled_form_is_bounded() {
        assert!(compile(r"^[\w-]{1,63}(\.[\w-]{1,63})*$", Some(256 * 1024)).is_ok());
        assert!(compile(r"(\pL{100}){100}", Some(256 * 1024)).is_err());
    }

    #[test]
    fn more_patterns_than_are_cached() {
        for number in 0..2 * CACHED {
            assert_eq!(is_match(&format!("^{number}$"), &number.to_string()), Ok(true));
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_input_causes_no_panic(pattern in r"[\\\[\]^$.*+?(){}|&~:a-dswDSWäb-]{0,12}") {
            drop(is_match(&pattern, "abä"));
        }
    }
}
