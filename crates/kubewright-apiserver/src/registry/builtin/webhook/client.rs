//! The addresses of webhooks, in admission and conversion.

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{Errors, Path, field, inclusive_range, int, optional_string, string};

/// Checks the client configuration of an admission or conversion webhook, except for the certificates.
pub(in crate::registry::builtin) fn validate_client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (optional_string(config, "url"), field(config, "service")) {
        (Some(url), None) => validate_webhook_url(url, &path.child("url"), errors),
        (None, Some(service)) => validate_webhook_service(service, &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn validate_webhook_url(text: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => return errors.required(path, &format!("url must be a valid URL: parse {text:?}: {why}{FORM}")),
    };
    if url.scheme != "https" {
        errors.invalid(path, url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        errors.invalid(path, url.host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

fn validate_webhook_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Kubernetes reports a missing name for the namespace, and a missing namespace for the name.
    for (required, reported) in [("namespace", "name"), ("name", "namespace")] {
        if string(service, required).is_empty() {
            errors.required(&path.child(reported), "");
        }
    }
    let port = int(service, "port");
    if !(1..=65535).contains(&port) {
        let why = format!("port is not valid: {}", inclusive_range(1, 65535));
        errors.invalid(&path.child("port"), port, &why);
    }
    if let Some(text) = optional_string(service, "path") {
        validate_service_path(text, &path.child("path"), errors);
    }
}

fn validate_service_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        errors.invalid(path, text, "segment[0] may not be empty");
        return;
    }
    if !text.starts_with('/') {
        errors.invalid(path, text, "must start with a '/'");
    }
    // Kubernetes leaves out the first character, also if it isn't a slash.
    let rest = text.char_indices().nth(1).map_or("", |(second, _)| &text[second..]);
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(path, text, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in name::dns1123_subdomain(segment) {
            errors.invalid(path, text, &format!("segment[{index}]: {why}"));
        }
    }
}

/// The parts of a URL that are checked.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    /// Splits a URL. The errors are those of Go's `net/url`.
    fn parse(text: &'a str) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme, user: None, host: "", query, fragment };
        let first = rest.split('/').next().unwrap_or_default();
        if scheme.is_empty() && first.contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
        if let Some(authority) = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
            let authority = authority.split('/').next().unwrap_or_default();
            let host = match authority.rsplit_once('@') {
                Some((user, host)) => {
                    url.user = Some(user);
                    host
                }
                None => authority,
            };
            check_host(host)?;
            url.host = host;
        }
        Ok(url)
    }
}

/// Splits a URL into its scheme, empty if there is none, and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')).unwrap_or(text.len());
    let (scheme, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => Err("missing protocol scheme".into()),
        Some(rest) if scheme.starts_with(|first: char| first.is_ascii_alphabetic()) => Ok((scheme, rest)),
        _ => Ok(("", text)),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let is_ipv6 = host.starts_with('[');
    if let Some(start) = host.rfind(':').filter(|_| !is_ipv6)
        && !host[start + 1..].bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("invalid port {:?} after host", &host[start..]));
    }
    let is_allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    match host.chars().find(|c| !is_allowed(*c)) {
        Some(c) => Err(format!("invalid character {:?} in host name", c.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(config: Value, expected: &[&str]) {
        let causes = Errors::collect(|errors| validate_client_config(&config, &Path::new("c"), errors));
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn urls_are_read_as_in_go() {
        let url = |text: &str| json!({"url": text});
        check(url("https://a:8443/b"), &[]);
        check(url("https://[::1]:8443/b"), &[]);
        let form = "; desired format: https://host[/path]";
        let unreadable = |text: &str, why: &str| {
            check(
                url(text),
                &[&format!("c.url: Required value: url must be a valid URL: parse {text:?}: {why}{form}")],
            );
        };
        unreadable("https://a b", "invalid character \" \" in host name");
        unreadable("https://a:b", "invalid port \":b\" after host");
        unreadable(":a", "missing protocol scheme");
        unreadable("1:a", "first path segment in URL cannot contain colon");
        check(
            url("a"),
            &[
                &format!("c.url: Invalid value: \"\": 'https' is the only allowed URL scheme{form}"),
                &format!("c.url: Invalid value: \"\": host must be specified{form}"),
            ],
        );
        check(url("https://u@a"), &["c.url: Invalid value: \"u\": user information is not permitted in the URL"]);
        check(
            url("https://a?b#c"),
            &[
                "c.url: Invalid value: \"c\": fragments are not permitted in the URL",
                "c.url: Invalid value: \"b\": query parameters are not permitted in the URL",
            ],
        );
    }

    #[test]
    fn services_need_a_name_namespace_port_and_path() {
        check(json!({}), &["c: Required value: exactly one of url or service is required"]);
        let service = |path: &str| json!({"service": {"name": "s", "namespace": "n", "port": 443, "path": path}});
        check(service("/mutate/pods/"), &[]);
        check(service("/a//b"), &["c.service.path: Invalid value: \"/a//b\": segment[1] may not be empty"]);
        check(
            json!({"service": {"name": "s", "port": 0}}),
            &[
                "c.service.name: Required value",
                "c.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ],
        );
    }
}
