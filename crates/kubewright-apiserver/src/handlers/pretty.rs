//! Indented JSON, for interactive clients.

use bytes::Bytes;
use http::{HeaderValue, header, request::Parts};
use kubewright_apimachinery::go_format;

use super::query::Query;
use crate::response::Response;

/// The prefixes of the user agents of interactive clients, as in kube-apiserver.
const AGENTS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Returns whether a request asks for indented JSON: by its media type, by the parameter `pretty`, or, without that
/// parameter, by its user agent.
pub(super) fn is_requested(parts: &Parts) -> bool {
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(header::ACCEPT).split([',', ';']).any(|part| part.trim() == "pretty=1") {
        return true;
    }
    if let Some(text) = parts.uri.query().filter(|query| query.contains("pretty")) {
        let query = Query::parse(Some(text));
        if let Some(value) = query.get("pretty") {
            return go_format::parse_bool(value) == Some(true);
        }
    }
    AGENTS.iter().any(|known| text(header::USER_AGENT).starts_with(known))
}

/// Indents the body of a response if it is JSON, while it is sent.
pub(super) fn indent(response: Response) -> Response {
    if response.headers().get(header::CONTENT_TYPE) != Some(&HeaderValue::from_static("application/json")) {
        return response;
    }
    let mut indenter = Indenter::default();
    response.map(|body| body.map_chunks(move |chunk| indenter.take(&chunk)))
}

/// Indents JSON text as Go does, by two spaces. Each value keeps its text.
#[derive(Debug, Default)]
struct Indenter {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the last token began an object or array, which may be empty.
    is_open: bool,
}

impl Indenter {
    /// Returns the next part of the text.
    fn take(&mut self, text: &[u8]) -> Bytes {
        let mut indented = Vec::with_capacity(text.len() * 2);
        for byte in text {
            if self.in_string {
                indented.push(*byte);
                self.in_string = self.is_escaped || *byte != b'"';
                self.is_escaped = !self.is_escaped && *byte == b'\\';
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if closes {
                self.depth = self.depth.saturating_sub(1);
            }
            if closes != self.is_open {
                self.line(&mut indented);
            }
            self.is_open = matches!(byte, b'{' | b'[');
            indented.push(*byte);
            match byte {
                b'{' | b'[' => self.depth += 1,
                b',' => self.line(&mut indented),
                b':' => indented.push(b' '),
                b'"' => self.in_string = true,
                _ => {}
            }
        }
        indented.into()
    }

    fn line(&self, text: &mut Vec<u8>) {
        text.push(b'\n');
        text.extend(std::iter::repeat_n(*b"  ", self.depth).flatten());
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn interactive_clients_and_requests_with_the_parameter_get_indented_text() {
        let check = |query: &str, agent: &str, expect: bool| {
            let request = Request::get(format!("/api{query}")).header(header::USER_AGENT, agent).body(()).unwrap();
            assert_eq!(is_requested(&request.into_parts().0), expect, "{query} {agent}");
        };
        check("", "kubectl/v1", false);
        check("", "curl/8.1", true);
        check("?pretty=0", "curl/8.1", false);
        check("?pretty=xx", "curl/8.1", false);
        check("?pretty=", "Wget/1", true);
        check("?limit=1&pretty=true", "kubectl/v1", true);
        check("?pretty=1", "", true);
        check("?pretty=", "", false);
    }

    #[test]
    fn text_is_indented_in_parts_of_any_size() {
        let value = json!({"a": [], "b": {}, "c": [1, -2.5, null, true, ["x", {}]], "d{\"": {"e\\": "{[,:]}\\\" \n"}, "f": [{}]});
        let expect = serde_json::to_string_pretty(&value).unwrap();
        for text in [value.to_string() + "\n", expect.clone()] {
            for size in [1, 2, 7, 1000] {
                let mut indenter = Indenter::default();
                let parts: Vec<_> = text.as_bytes().chunks(size).map(|part| indenter.take(part)).collect();
                assert_eq!(String::from_utf8(parts.concat()).unwrap(), expect, "{size}");
            }
        }
        for value in [json!({}), json!([]), json!("x"), json!(1), Value::Null] {
            assert_eq!(Indenter::default().take(value.to_string().as_bytes()), value.to_string());
        }
    }
}
