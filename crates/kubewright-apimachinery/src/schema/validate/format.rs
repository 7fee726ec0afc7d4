//! The string formats that kube-apiserver validates (<https://github.com/kubernetes/apiextensions-apiserver>). Other
//! formats are ignored.

use std::{net::Ipv6Addr, sync::LazyLock};

use regex::Regex;

use crate::{duration, name, url::Url};

/// Returns whether `text` has the format. Every text matches an unknown format.
pub(crate) fn is_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "byte" => is_base64(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "ipv4" => text.contains('.') && is_ip(text),
        "ipv6" => text.contains(':') && is_ip(text),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "uri" => Url::parse(text).is_ok(),
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => is_ssn(text),
        "k8s-short-name" => name::dns1123_label(text).is_empty(),
        "k8s-long-name" => name::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether `text` consists of `count` digits and is at most `max`.
fn is_number(text: &str, count: usize, max: u32) -> bool {
    text.len() == count && is_digits(text) && text.parse().is_ok_and(|number: u32| number <= max)
}

/// Checks a full date of RFC 3339.
fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Checks a date and time of RFC 3339.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let Some(zone) = time.find(['Z', 'z', '+', '-']) else { return false };
    let (time, zone) = time.split_at(zone);
    // As in Kubernetes, the separator of the fraction may be any character.
    let (time, fraction) = match time.split_at_checked(8) {
        Some((time, rest)) if !rest.is_empty() => {
            (time, rest.char_indices().nth(1).map(|(start, _)| &rest[start..]).or(Some("")))
        }
        _ => (time, None),
    };
    let parts: Vec<&str> = time.split(':').collect();
    let time_fits = match parts.as_slice() {
        [hours, minutes, seconds] => is_number(hours, 2, 23) && is_number(minutes, 2, 59) && is_number(seconds, 2, 59),
        _ => false,
    };
    let zone_fits = match zone {
        "Z" | "z" => true,
        _ => zone[1..]
            .split_once(':')
            .is_some_and(|(hours, minutes)| is_number(hours, 2, 23) && is_number(minutes, 2, 59)),
    };
    is_date(date) && time_fits && fraction.is_none_or(is_digits) && zone_fits
}

/// Checks a duration in Go's notation, `1h30m`, or one that contains a number and a unit in words, `2 days`. As in
/// Kubernetes, what is around those doesn't matter.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 19] = [
        "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "m", "min", "h", "hr", "hour", "d", "day", "w",
        "wk", "week",
    ];
    /// The units that may be continued, as in `seconds`.
    const STEMS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if duration::parse(text).is_ok() {
        return true;
    }
    let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
    let (mut rest, mut is_found) = (text, false);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let from = &rest[start..];
        let (number, after) = from.split_at(from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len()));
        let after = after.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let (unit, after) = after.split_at(after.find(|c| !is_unit(c)).unwrap_or(after.len()));
        rest = after;
        if unit.is_empty() {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        is_found |= UNITS.contains(&unit.as_str()) || STEMS.iter().any(|stem| unit.starts_with(stem));
    }
    is_found
}

/// Checks base64 with the standard alphabet and padding (RFC 4648).
fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Checks a UUID. Each dash is optional.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    let mut groups = [""; 5];
    for (group, length) in groups.iter_mut().zip([8, 4, 4, 4, 12]) {
        let Some((digits, after)) = rest.split_at_checked(length) else { return false };
        *group = digits;
        rest = after.strip_prefix('-').filter(|after| !after.is_empty()).unwrap_or(after);
    }
    let version_fits = version.is_none_or(|version| groups[2].starts_with(version));
    let variant_fits = !matches!(version, Some('4' | '5')) || groups[3].starts_with(['8', '9', 'a', 'b', 'A', 'B']);
    rest.is_empty() && groups.into_iter().all(is_hex) && version_fits && variant_fits
}

/// Checks an address, whose numbers may have leading zeros if it is an IPv4 address.
fn is_ip(text: &str) -> bool {
    is_ipv4(text) || text.parse::<Ipv6Addr>().is_ok()
}

fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let fits = |part: &&str| {
        is_digits(part) && part.trim_start_matches('0').len() <= 3 && part.parse().is_ok_and(|part: u32| part <= 255)
    };
    parts.len() == 4 && parts.iter().all(fits)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = if is_ipv4(address) {
        32
    } else if is_ip(address) {
        128
    } else {
        return false;
    };
    length.len() <= 3 && is_digits(length) && length.parse().is_ok_and(|length: u32| length <= max)
}

/// Checks a MAC address of 6, 8 or 20 bytes: `00:00:5e:00:53:01`, `00-00-…`, `0000.5e00.5301`, `00005e005301`.
fn is_mac(text: &str) -> bool {
    if matches!(text.len(), 12 | 16 | 40) && is_hex(text) {
        return true;
    }
    let (separator, digits) =
        if text.contains('.') { ('.', 4) } else { (if text.contains('-') { '-' } else { ':' }, 2) };
    let groups: Vec<&str> = text.split(separator).collect();
    let bytes = groups.len() * digits / 2;
    matches!(bytes, 6 | 8 | 20) && groups.iter().all(|group| group.len() == digits && is_hex(group))
}

/// Checks a host name: one label, in which a dash may follow the first character, or labels with dashes inside and a
/// last one of at least two letters.
fn is_hostname(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        const CHAR: &str = r"a-zA-Z0-9\p{S}\p{L}";
        let single = format!("[{CHAR}](-?[{CHAR}]{{0,62}})?");
        let several = format!(r"([{CHAR}](([{CHAR}-]{{0,61}}[{CHAR}])?)\.)+[a-zA-Z\p{{L}}]{{2,63}}");
        Regex::new(&format!("^({single}|{several})$")).ok()
    });
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Checks an address of RFC 5322, with or without a display name. Rare forms, such as comments, are not supported.
fn is_email(text: &str) -> bool {
    let address = match text.strip_suffix('>') {
        Some(named) => named.rsplit_once('<').map_or("", |(_, address)| address),
        None => text.trim_start(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let local_char = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let local_fits = quoted
        || !(local.is_empty() || local.starts_with('.') || local.ends_with('.') || local.contains(".."))
            && local.chars().all(local_char);
    // Domains have the same form as the part before them, or are addresses in brackets.
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_label = |label: &str| !label.is_empty() && label.chars().all(local_char);
    local_fits && literal.map_or_else(|| domain.split('.').all(is_label), is_ip)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    let part_fits = |part: &&str| {
        let is_padded = part.len() > 1 && part.starts_with('0');
        is_digits(part) && !is_padded && part.len() <= 3 && part.parse().is_ok_and(|number: u32| number <= 255)
    };
    parts.len() == 3 && parts.iter().all(part_fits)
}

/// Returns the digits of a number that may be grouped by spaces or dashes. A final `X` counts as 10.
fn grouped_digits(text: &str) -> Option<Vec<u32>> {
    let plain: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let last = plain.len().checked_sub(1)?;
    let digit = |(at, c): (usize, &char)| if at == last && *c == 'X' { Some(10) } else { c.to_digit(10) };
    plain.iter().enumerate().map(digit).collect()
}

fn is_isbn10(text: &str) -> bool {
    grouped_digits(text).is_some_and(|digits| {
        digits.len() == 10 && digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    grouped_digits(text).is_some_and(|digits| {
        let weights = [1, 3].into_iter().cycle();
        digits.len() == 13
            && !digits.contains(&10)
            && digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum::<u32>() % 10 == 0
    })
}

/// Checks a credit card number by its check digit (Luhn).
fn is_credit_card(text: &str) -> bool {
    grouped_digits(text).is_some_and(|digits| {
        let doubled = |(at, digit): (usize, &u32)| match (at % 2, *digit) {
            (0, digit) => digit,
            (_, digit) if digit > 4 => digit * 2 - 9,
            (_, digit) => digit * 2,
        };
        (13..=19).contains(&digits.len())
            && !digits.contains(&10)
            && digits.iter().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
    })
}

fn is_ssn(text: &str) -> bool {
    let is_separator = |at: usize| matches!(text.as_bytes().get(at), Some(b' ' | b'-'));
    let is_group = |from: usize, to: usize| text.get(from..to).is_some_and(is_digits);
    text.len() == 11 && is_group(0, 3) && is_separator(3) && is_group(4, 6) && is_separator(6) && is_group(7, 11)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, good: &[&str], bad: &[&str]) {
        good.iter().for_each(|text| assert!(is_format(format, text), "{text:?} is a {format}"));
        bad.iter().for_each(|text| assert!(!is_format(format, text), "{text:?} is no {format}"));
    }

    #[test]
    fn times() {
        let good = ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.123456+02:00", "2024-02-29t00:00:00z"];
        let bad = [
            "",
            "2026-01-31",
            "2026-01-31 23:59:59Z",
            "2026-02-30T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T23:59:59",
            "2026-01-31T23:59Z",
            "2026-01-31T23:59:59.Z",
            "2026-1-31T23:59:59Z",
        ];
        check("date-time", &good, &bad);
        check("date", &["2024-02-29"], &["2023-02-29", "2024-2-9", "20240229", "2024-02-29T00:00:00Z"]);
        let good = ["1h30m", "1.5s", "0", "-3ms", "2 days", "1w 2d", "1s1", "1e3s", "1S", "1H", "1h x", "1..5s"];
        check("duration", &good, &["", "5", "1x", "h", "1e3", "99999999999999999999 days"]);
    }

    #[test]
    fn identifiers() {
        let uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
        check("uuid", &[uuid, &uuid.replace('-', ""), &uuid.to_uppercase()], &["", "f47ac10b", "-", "ä"]);
        check("uuid", &[], &["f47ac10b58-cc-4372-a567-0e02b2c3d479", &format!("{uuid}-"), &format!("-{uuid}")]);
        check("uuid4", &[uuid], &["f47ac10b-58cc-3372-a567-0e02b2c3d479", "f47ac10b-58cc-4372-c567-0e02b2c3d479"]);
        check("uuid3", &["f47ac10b-58cc-3372-a567-0e02b2c3d479"], &[uuid]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901", "507f1f77bcf86cd79943901x"]);
        check("isbn", &["0-306-40615-2", "080442957X", "978-3-16-148410-0"], &["", "0-306-40615-3", "X"]);
        check("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "0"]);
        check("ssn", &["123-45-6789", "123 45 6789"], &["123456789", "1-2345-6789", "12345678", ""]);
        check("k8s-short-name", &["at-1"], &["At", "a.b"]);
        check("k8s-long-name", &["a.b"], &["A.b"]);
    }

    #[test]
    fn network() {
        check("ipv4", &["127.0.0.1", "127.0.0.01", "::ffff:1.2.3.4"], &["127.0.0", "1.2.3.256", "::1", ""]);
        check("ipv6", &["::1", "fe80::1", "::ffff:1.2.3.4"], &["127.0.0.1", ":::", ""]);
        check("cidr", &["10.0.0.0/8", "010.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "x/8"]);
        check(
            "mac",
            &["00:00:5e:00:53:01", "00-00-5e-00-53-01", "0000.5e00.5301"],
            &["00:00:5e", "", "g0:00:5e:00:53:01"],
        );
        let bad = ["", "a..b", "-a", "a_b", "a b", "1.2.3.4", "a.1", "A.b", "xn--a"];
        check("hostname", &["a", "1", "a-", "a-b", "example.com", "xn--a.de", "é.com"], &bad);
        check(
            "email",
            &["a@b.c", " a@b.c", "a@[1.2.3.4]", "First Last <a@b.c>", "a+b@c.d"],
            &["", "a", "@b", "a@", "a b@c.d", "a..b@c.d"],
        );
        check("uri", &["https://example.com/%20", "/a/b", "urn:x"], &["", "a b", "example", "https://%zz", ":x"]);
    }

    #[test]
    fn others() {
        check("byte", &["YQ==", "YWI=", "YWJj"], &["", "YQ", "Y===", "YQ=a", "Y Q="]);
        check("hexcolor", &["#fff", "a0b1c2"], &["#ffff", "#ggg"]);
        check("rgbcolor", &["rgb(0, 128,255)"], &["rgb(1%,2%,3%)", "rgb(01,2,3)", "rgb(0,0)", "rgb(256,0,0)", "0,0,0"]);
        check("password", &["anything"], &[]);
        check("no-such-format", &["anything"], &[]);
    }
}
