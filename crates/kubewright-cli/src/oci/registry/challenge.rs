//! Parsing of the `WWW-Authenticate` challenge of a registry, and encoding of the answer. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are percent-encoded in a query or a form.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Basic authentication with each request.
    Basic,
    /// A bearer token, which is requested from another URL.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    /// Parses the header; `None` for other schemes.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        for (name, value) in parameters(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

/// Parses `name="value"` or `name=value`, separated by commas, which a quoted value may contain.
fn parameters(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']);
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut chars = quoted.char_indices();
            let mut end = quoted.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
                    other => value.push(other),
                }
            }
            rest = &quoted[end..];
        } else {
            let (plain, more) = after.split_once(',').unwrap_or((after, ""));
            plain.trim().clone_into(&mut value);
            rest = more;
        }
        found.push((name, value));
    }
    found
}

/// Encodes pairs for a query or a form.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let encode = |text| utf8_percent_encode(text, PLAIN);
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let header = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:me/cow:pull,push""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("registry.example".into()),
            scope: Some("repository:me/cow:pull,push".into()),
        };
        assert_eq!(Challenge::parse(header), Some(expected));
        assert_eq!(Challenge::parse("basic realm=\"x\""), Some(Challenge::Basic));
        let plain = Challenge::Bearer { realm: "a\"b".into(), service: Some("c".into()), scope: None };
        assert_eq!(Challenge::parse(r#"bearer realm="a\"b", service=c, error=x"#), Some(plain));
        for other in ["", "Negotiate", "Bearer", "Bearer scope=\"a\"", "Bearer realm"] {
            assert_eq!(Challenge::parse(other), None, "{other}");
        }
        assert!(matches!(Challenge::parse("Bearer realm=\"open"), Some(Challenge::Bearer { .. })));
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(
            query(&[("scope", "repository:me/cow:pull,push"), ("a", "b c")]),
            "scope=repository%3Ame%2Fcow%3Apull%2Cpush&a=b%20c"
        );
    }
}
