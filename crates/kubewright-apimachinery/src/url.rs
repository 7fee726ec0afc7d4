//! URLs as Go's `net/url` reads them: the format `uri`, and the functions on URLs of the expression language
//! (<https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-url-library>).

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// An absolute URL, or a path that begins with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// In lower case; empty for a path.
    pub(crate) scheme: String,
    /// What follows the scheme if it doesn't begin with a slash, as in `mailto:jane@example.com`.
    opaque: String,
    user: Option<String>,
    /// With the port, and with the brackets of an IPv6 address.
    pub(crate) host: String,
    path: Vec<u8>,
    /// The path as it is written in the text.
    raw_path: String,
    raw_query: String,
    fragment: Vec<u8>,
}

impl Url {
    /// Reads a URL as `ParseRequestURI` accepts it and `Parse` takes it apart. The error is Go's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parse(text).map_err(|why| format!("parse {text:?}: {why}"))
    }

    /// Returns the host without port and brackets.
    pub(crate) fn host_name(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the port; empty without one.
    pub(crate) fn port(&self) -> &str {
        self.split_port().1
    }

    fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (&self.host, ""),
        }
    }

    /// Returns the path with escapes: as written if it is a possible form of it.
    pub(crate) fn escaped_path(&self) -> String {
        let as_written = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte);
        if self.raw_path.bytes().all(as_written) { self.raw_path.clone() } else { escape(&self.path) }
    }

    /// Returns the parameters of the query. Malformed ones are left out.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for parameter in self.raw_query.split('&').filter(|parameter| !parameter.is_empty() && !parameter.contains(';'))
        {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let text = |part: &str| {
                unescape(&part.replace('+', " ")).ok().map(|part| String::from_utf8_lossy(&part).into_owned())
            };
            if let (Some(key), Some(value)) = (text(key), text(value)) {
                parameters.entry(key).or_default().push(value);
            }
        }
        parameters
    }
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let (scheme, rest) = split_scheme(text)?;
    if !rest.starts_with('/') && scheme.is_empty() && text != "*" {
        return Err("invalid URI for request".to_owned());
    }
    // What accepts a URL doesn't know fragments, which are part of the host, the path or the query there.
    let whole = take_apart(scheme, rest)?;
    match rest.split_once('#') {
        None => Ok(whole),
        Some((rest, fragment)) => Ok(Url { fragment: unescape(fragment)?, ..take_apart(scheme, rest)? }),
    }
}

/// Reads what follows a scheme, without a fragment.
fn take_apart(scheme: &str, rest: &str) -> Result<Url, String> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        opaque: String::new(),
        user: None,
        host: String::new(),
        path: Vec::new(),
        raw_path: String::new(),
        raw_query: query.to_owned(),
        fragment: Vec::new(),
    };
    if !rest.starts_with('/') && !scheme.is_empty() {
        rest.clone_into(&mut url.opaque);
        return Ok(url);
    }
    let has_authority = !scheme.is_empty() || !rest.starts_with("///");
    let path = match rest.strip_prefix("//") {
        Some(after) if has_authority => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            url.host = parse_host(host)?;
            if user.is_some_and(|user| !user.bytes().all(is_of_user)) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            url.user = user.map(str::to_owned);
            path
        }
        _ => rest,
    };
    url.path = unescape(path)?;
    path.clone_into(&mut url.raw_path);
    Ok(url)
}

/// Splits off the scheme, which is empty if the text begins otherwise.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(_) if end == 0 => Err("missing protocol scheme".to_owned()),
        Some(rest) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok((&text[..end], rest)),
        _ => Ok(("", text)),
    }
}

fn parse_host(host: &str) -> Result<String, String> {
    let port = match host.strip_prefix('[') {
        Some(_) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            &host[end + 1..]
        }
        None => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_port =
        |port: &str| port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    if !port.is_empty() && !is_port(port) {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some(other) = host.chars().find(|c| c.is_ascii() && !is_of_host(*c)) {
        return Err(format!("invalid character {:?} in host name", other.to_string()));
    }
    let host = unescape(host)?;
    String::from_utf8(host).map_err(|_| "invalid host name".to_owned())
}

fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c)
}

fn is_of_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)
}

fn escape(bytes: &[u8]) -> String {
    const ESCAPED: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'$')
        .remove(b'&')
        .remove(b'+')
        .remove(b',')
        .remove(b'/')
        .remove(b':')
        .remove(b';')
        .remove(b'=')
        .remove(b'@');
    percent_encode(bytes, &ESCAPED).to_string()
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes()[at + 1..].iter().take(2).filter(|byte| byte.is_ascii_hexdigit()).count();
        if digits < 2 {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("HTTPS://jane:x@example.com:8443/a%2Fb/c?x=1&y=%20+&x=2&z;=3#top").unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str()), ("https", "example.com:8443"));
        assert_eq!((url.host_name(), url.port()), ("example.com", "8443"));
        assert_eq!(url.escaped_path(), "/a%2Fb/c");
        let query: Vec<_> = url.query().into_iter().collect();
        assert_eq!(query, [("x".into(), vec!["1".into(), "2".into()]), ("y".into(), vec!["  ".into()])]);
        let url = Url::parse("http://[::1]:80/ü \"?").unwrap();
        assert_eq!((url.host.as_str(), url.host_name(), url.port()), ("[::1]:80", "::1", "80"));
        assert_eq!(url.escaped_path(), "/%C3%BC%20%22");
        let path = Url::parse("/a/b?c=d").unwrap();
        assert_eq!((path.scheme.as_str(), path.host.as_str(), path.escaped_path().as_str()), ("", "", "/a/b"));
        let opaque = Url::parse("mailto:jane@example.com").unwrap();
        assert_eq!((opaque.scheme.as_str(), opaque.host.as_str(), opaque.escaped_path().as_str()), ("mailto", "", ""));
    }

    #[test]
    fn malformed_urls_are_refused() {
        for (text, why) in [
            ("", "empty url"),
            ("a", "invalid URI for request"),
            ("../relative", "invalid URI for request"),
            (":x", "missing protocol scheme"),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://a:b/", "invalid port \":b\" after host"),
            ("https://[::1/", "missing ']' in host"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("https://a/%", "invalid URL escape \"%\""),
            ("https://a/\n", "net/url: invalid control character in URL"),
            ("https://a{}@b/", "net/url: invalid userinfo"),
        ] {
            assert_eq!(Url::parse(text), Err(format!("parse {text:?}: {why}")));
        }
    }
}
