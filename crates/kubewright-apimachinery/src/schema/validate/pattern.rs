//! A cache of compiled patterns.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use parking_lot::RwLock;
use regex::Regex;

/// The limit of cached patterns. When it is reached, the cache is emptied. CRDs in use have far fewer.
const KEPT: usize = 1024;

/// Whether `pattern` matches anywhere within `text`, as in Go. The error says why the pattern is invalid.
pub(super) fn is_match(pattern: &str, text: &str) -> Result<bool, String> {
    static CACHE: LazyLock<RwLock<HashMap<Box<str>, Arc<Regex>>>> = LazyLock::new(Default::default);
    // The lock is not held during matching, which may take long.
    let known = CACHE.read().get(pattern).cloned();
    if let Some(regex) = known {
        return Ok(regex.is_match(text));
    }
    let regex = Arc::new(Regex::new(pattern).map_err(|error| error.to_string())?);
    let mut cache = CACHE.write();
    if cache.len() >= KEPT {
        cache.clear();
    }
    cache.insert(pattern.into(), regex.clone());
    drop(cache);
    Ok(regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_patterns_than_are_cached() {
        for number in 0..2 * KEPT {
            assert_eq!(is_match(&format!("^{number}$"), &number.to_string()), Ok(true));
        }
        assert!(is_match("(", "").is_err());
    }
}
