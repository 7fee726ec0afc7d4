//! The syntax of texts that aren't names: addresses, paths, ports, variables.

use std::net::{IpAddr, Ipv6Addr};

use kubewright_apimachinery::{
    cidr::{Cidr, without_leading_zeros},
    name,
};
use serde_json::Value;

use super::{errors::Errors, path::Path};

/// The message for changes of immutable fields.
pub(in crate::registry::builtin) const IMMUTABLE: &str = "field is immutable";

/// The message for a number outside of a range.
pub(in crate::registry::builtin) fn inclusive_range(first: i64, last: i64) -> String {
    format!("must be between {first} and {last}, inclusive")
}

/// Checks a text by a rule of its syntax.
pub(in crate::registry::builtin) fn validate_text(
    text: &str,
    rule: fn(&str) -> Vec<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    errors.invalid_text(path, text, &rule(text));
}

/// Checks a name that must not be empty.
pub(in crate::registry::builtin) fn validate_required_name(
    text: &str,
    rule: fn(&str) -> Vec<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if text.is_empty() {
        errors.required(path, "");
    } else {
        validate_text(text, rule, path, errors);
    }
}

/// Checks a number that must not be negative.
pub(in crate::registry::builtin) fn validate_nonnegative(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number < 0 {
        errors.invalid(path, number, "must be greater than or equal to 0");
    }
}

/// Checks a number that must be greater than 0.
pub(in crate::registry::builtin) fn validate_positive(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number <= 0 {
        errors.invalid(path, number, "must be greater than zero");
    }
}

/// Checks the number of a port.
pub(in crate::registry::builtin) fn validate_port_number(port: i64, path: &Path<'_>, errors: &mut Errors) {
    if !(1..=65535).contains(&port) {
        errors.invalid(path, port, &inclusive_range(1, 65535));
    }
}

/// Checks the number or name of a port.
pub(in crate::registry::builtin) fn validate_port_number_or_name(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => validate_text(name, name::port_name, path, errors),
        other => validate_port_number(other.as_i64().unwrap_or_default(), path, errors),
    }
}

/// Checks the ID of a user or group.
pub(in crate::registry::builtin) fn validate_id(id: i64, path: &Path<'_>, errors: &mut Errors) {
    if !(0..=i64::from(i32::MAX)).contains(&id) {
        errors.invalid(path, id, &inclusive_range(0, i64::from(i32::MAX)));
    }
}

/// Returns the violations of a variable's name: printable ASCII except `=`.
pub(in crate::registry::builtin) fn environment_variable(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.is_empty() {
        wrong.push("environment variable name must be non-empty".into());
    }
    if !name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='".into(),
        );
    }
    wrong
}

/// Returns the violations of an HTTP header's name.
pub(in crate::registry::builtin) fn http_header(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![format!("{rule} (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')")]
}

/// Returns the violations of a search domain, whose labels may contain underscores.
pub(in crate::registry::builtin) fn subdomain_with_underscore(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label).as_bytes();
        let (Some(first), Some(last)) = (label.first(), label.last()) else { return false };
        alphanumeric(*first)
            && alphanumeric(*last)
            && label.iter().all(|byte| alphanumeric(*byte) || matches!(byte, b'-' | b'_'))
    };
    if !name.split('.').all(is_label) {
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        wrong.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{label}(\\.{label})*')"
        ));
    }
    wrong
}

/// Returns the violations of a host name that begins with `*.`.
pub(in crate::registry::builtin) fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    let rest = name.strip_prefix("*.").unwrap_or_default();
    if name::dns1123_subdomain(rest).iter().any(|why| why.contains("regex")) {
        let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
        wrong.push(format!(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
             lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is '\\*\\.{label}(\\.{label})*')"
        ));
    }
    wrong
}

/// Checks a path that begins with a domain, such as `example.com/controller`.
pub(in crate::registry::builtin) fn validate_domain_prefixed_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        errors.invalid(path, text, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    validate_text(host, name::dns1123_subdomain, path, errors);
    if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path, rest, why);
    }
}

/// Checks the name of a signer of certificates: a domain and a path.
pub(in crate::registry::builtin) fn validate_signer_name(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.is_empty() {
        return errors.required(path, "");
    }
    let Some((domain, rest)) = text.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, text, why);
    };
    if domain.len() > 253 {
        errors.too_long(path, 253);
    }
    validate_segments(domain, name::dns1123_label, path, errors);
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    validate_segments(rest, name::dns1123_subdomain, path, errors);
    if text.len() > 571 {
        errors.too_long(path, 571);
    }
}

/// Checks the segments between dots, up to the first that is wrong.
fn validate_segments(text: &str, rule: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut Errors) {
    let wrong = text.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    let (label, wrong) = wrong.unwrap_or_default();
    for why in wrong {
        errors.invalid(path, text, &format!("validating label {label:?}: {why}"));
    }
}

/// Checks an IP address in a field that accepts other than canonical forms.
pub(in crate::registry::builtin) fn validate_ip(text: &str, path: &Path<'_>, errors: &mut Errors) {
    match (text.parse::<IpAddr>(), without_leading_zeros(text)) {
        (Ok(IpAddr::V6(address)), _) if address.to_ipv4_mapped().is_some() => {
            errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
        }
        (Ok(_), _) => {}
        (Err(_), Some(_)) => errors.invalid(path, text, "must not have leading 0s"),
        (Err(_), None) => {
            errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
    }
}

/// Checks an IP address in its canonical form.
pub(in crate::registry::builtin) fn validate_canonical_ip(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if errors.any(|errors| validate_ip(text, path, errors)) {
        return;
    }
    if let Ok(address) = text.parse::<IpAddr>()
        && address.to_string() != text
    {
        errors.invalid(path, text, &format!("must be in canonical form ({:?})", address.to_string()));
    }
}

/// Returns the violations of a name that is an IP address in its canonical form.
pub(in crate::registry::builtin) fn canonical_ip(name: &str) -> Vec<String> {
    let causes = Errors::collect(|errors| validate_canonical_ip(name, &Path::new(""), errors));
    // The cause begins with the value, which the caller shows, too.
    let shown = format!("Invalid value: {}: ", Value::from(name));
    causes.iter().map(|cause| cause.message.strip_prefix(&shown).unwrap_or(&cause.message).to_owned()).collect()
}

/// Checks an IP address at which a backend can be reached.
///
/// Addresses of the loopback network are valid, unlike in Kubernetes, since pods of the embedded cluster have them.
pub(in crate::registry::builtin) fn validate_endpoint_ip(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(address) = text.parse::<IpAddr>().ok().or_else(|| without_leading_zeros(text)) else {
        errors.invalid(path, text, "must be a valid IP address");
        return;
    };
    if address.is_unspecified() {
        errors.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    let (link_local, multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Checks an address range in a field that accepts other than canonical forms.
pub(in crate::registry::builtin) fn validate_cidr(text: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(range) = Cidr::parse(text) else {
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return;
    };
    let (address, length) = text.split_once('/').unwrap_or_default();
    let mapped = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
    if address.parse::<IpAddr>().is_err() || (length.starts_with('0') && length != "0") {
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length");
    } else if matches!(range.address, IpAddr::V6(address) if mapped(address)) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    } else if !range.is_aligned() {
        errors.invalid(path, text, "must not have bits set beyond the prefix length");
    }
}

/// Checks an address range in its canonical form.
pub(in crate::registry::builtin) fn validate_canonical_cidr(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if errors.any(|errors| validate_cidr(text, path, errors)) {
        return;
    }
    if let Some(range) = Cidr::parse(text).map(Cidr::aligned).filter(|range| range.to_string() != text) {
        errors.invalid(path, text, &format!("must be in canonical form (\"{range}\")"));
    }
}

/// Returns the warning about an address that isn't in its usual form.
pub(in crate::registry::builtin) fn ip_warning(text: &str, path: &Path<'_>) -> Option<String> {
    let usual = match text.parse::<IpAddr>().ok() {
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            let usual = address.to_string();
            let why = format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({usual:?})");
            return (usual != text).then_some(why);
        }
        Some(IpAddr::V6(address)) => address.to_ipv4_mapped()?.into(),
        Some(_) => return None,
        None => without_leading_zeros(text)?,
    };
    Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{usual}\""))
}

/// Returns the warnings about an address range that isn't in its usual form.
pub(in crate::registry::builtin) fn cidr_warnings(text: &str, path: &Path<'_>) -> Vec<String> {
    let Some(range) = Cidr::parse(text) else { return Vec::new() };
    let mapped = matches!(range.address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    let mut warnings = Vec::new();
    if !range.is_aligned() {
        let single = format!("{}/{}", range.address, range.width());
        let whole = range.aligned();
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{whole}\" or {single:?}?)"
        ));
    }
    let (address, length) = text.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || (length.starts_with('0') && length != "0") || mapped {
        warnings.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use \"{}\"", range.aligned()));
    } else if warnings.is_empty() && range.address.is_ipv6() && range.to_string() != text {
        warnings.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{range}\")"));
    }
    warnings
}

/// Checks that a path has no element `..`.
pub(in crate::registry::builtin) fn validate_path_no_backsteps(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.split('/').any(|step| step == "..") {
        errors.invalid(path, text, "must not contain '..'");
    }
}

/// Checks a relative path that doesn't leave its directory.
pub(in crate::registry::builtin) fn validate_local_descending_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.invalid(path, text, "must be a relative path");
    }
    validate_path_no_backsteps(text, path, errors);
}

/// Checks a relative path that doesn't begin with `..`.
pub(in crate::registry::builtin) fn validate_local_non_reserved_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_local_descending_path(text, path, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.invalid(path, text, "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: impl Fn(&str, &Path<'_>, &mut Errors), good: &[&str], bad: &[(&str, &str)]) {
        for text in good {
            assert_eq!(Errors::collect(|errors| rule(text, &Path::new("a"), errors)), [], "{text}");
        }
        for (text, why) in bad {
            let causes = Errors::collect(|errors| rule(text, &Path::new("a"), errors));
            assert!(causes.len() == 1 && causes[0].message.ends_with(why), "{text}: {causes:?}");
        }
    }

    #[test]
    fn addresses() {
        let ip = "2001:db8::ffff)";
        let bad = [
            ("1.2.3", ip),
            ("1.2.3.04", "leading 0s"),
            ("::ffff:1.2.3.4", "IPv6 address"),
            ("", ip),
            ("1.2.3.256", ip),
        ];
        check(validate_ip, &["1.2.3.4", "::1", "FE80:0:0::1"], &bad);
        check(validate_canonical_ip, &["::1"], &[("FE80::1", "must be in canonical form (\"fe80::1\")")]);
        let cidr = "2001:db8::/64)";
        let bad = [
            ("10.0.0.1/8", "beyond the prefix length"),
            ("10.0.0.0", cidr),
            ("10.0.0.0/33", cidr),
            ("1.0.0.0/08", "length"),
        ];
        check(validate_cidr, &["10.0.0.0/8", "0.0.0.0/0", "::/0", "1.2.3.4/32"], &bad);
        let range = Cidr::parse("10.0.0.0/8").unwrap();
        assert!(range.contains("10.1.2.3".parse().unwrap()) && !range.contains("11.0.0.0".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
    }

    #[test]
    fn unusual_forms_are_warned_about() {
        let path = Path::new("a");
        assert_eq!(ip_warning("1.2.3.4", &path), None);
        assert_eq!(
            ip_warning("1.2.3.04", &path).unwrap(),
            "a: non-standard IP address \"1.2.3.04\" is invalid: use \"1.2.3.4\""
        );
        assert!(ip_warning("::ffff:1.2.3.4", &path).unwrap().ends_with("use \"1.2.3.4\""));
        assert!(
            ip_warning("FE80::1", &path).unwrap().ends_with("should be in RFC 5952 canonical format (\"fe80::1\")")
        );
        assert!(cidr_warnings("10.0.0.0/8", &path).is_empty());
        assert_eq!(
            cidr_warnings("10.0.0.1/8", &path),
            [
                "a: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
        assert!(cidr_warnings("10.0.0.0/08", &path)[0].ends_with("use \"10.0.0.0/8\""));
        assert!(cidr_warnings("FE80::/64", &path)[0].ends_with("canonical format (\"fe80::/64\")"));
    }

    #[test]
    fn paths() {
        check(
            validate_local_non_reserved_path,
            &["a/b", "a..b", ""],
            &[("/a", "relative path"), ("a/../b", "contain '..'"), ("..a", "start with '..'")],
        );
    }

    #[test]
    fn texts() {
        assert!(environment_variable("A b").is_empty() && environment_variable("a=b").len() == 1);
        assert!(http_header("X-A").is_empty() && http_header("X_A").len() == 1 && http_header("").len() == 1);
        assert!(subdomain_with_underscore("_a._b.c_d").is_empty() && subdomain_with_underscore("a..b").len() == 1);
        assert!(wildcard_subdomain("*.a.b").is_empty() && wildcard_subdomain("*a.b").len() == 1);
    }
}
