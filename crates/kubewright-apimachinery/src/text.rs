//! Formatting of times, lists and external text in messages for people.

use std::{
    borrow::{Borrow, Cow},
    time::Duration,
};

use jiff::Timestamp;

/// Formats a duration, such as `40µs`, `3.1ms`, `1.5s`, `10 minutes` or `3 days`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1e-6 => "0s".into(),
        s if s < 1e-3 => format!("{:.0}µs", s * 1e6),
        s if s < 0.1 => format!("{}ms", rounded(s * 1e3)),
        s if s < 1.0 => format!("{:.0}ms", s * 1e3),
        s if s < 10.0 => format!("{}s", rounded(s)),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Rounds to one decimal.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Formats the time since a point in time: `5s ago` or `just now`.
pub fn ago(now: Timestamp, time: Timestamp) -> String {
    match u64::try_from(now.duration_since(time).as_secs()) {
        Ok(seconds @ 1..) => format!("{} ago", duration(Duration::from_secs(seconds))),
        _ => "just now".into(),
    }
}

/// Formats the time until a point in time: `in 9s (12:00:19Z)` or `now`, with the date if it is half a day or more.
pub fn until(now: Timestamp, time: Timestamp) -> String {
    match Duration::try_from(time.duration_since(now)) {
        Ok(left) if left >= Duration::from_hours(12) => format!("in {} ({time:.0})", duration(left)),
        Ok(left) if left >= Duration::from_secs(1) => format!("in {} ({})", duration(left), clock(time)),
        _ => "now".into(),
    }
}

/// Returns the time of day in UTC, to the second.
pub fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%SZ").to_string()
}

/// Joins parts: `a`, `a and b`, `a, b and c`.
pub fn list<S: Borrow<str>>(parts: &[S]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.borrow().to_owned(),
        [first @ .., last] => format!("{} and {}", first.join(", "), last.borrow()),
    }
}

/// Formats an ordinal number: 1st, 2nd, 3rd, 4th.
pub fn ordinal(number: u32) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// Returns the English plural of a kind.
pub fn plural(kind: &str) -> String {
    let is_vowel = |c: char| "aeiou".contains(c.to_ascii_lowercase());
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{stem}ies"),
        _ if kind == "Endpoints" => kind.into(),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// Removes line breaks and control characters, which a terminal would interpret.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let line = text.split(char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).collect::<String>().into()
}

/// Formats external text as the end of a sentence.
pub fn quoted(text: &str) -> String {
    let text = clean(text.trim());
    if text.ends_with(['.', '!', '?']) { text.into_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_readable_unit() {
        let text = [0.0, 0.000_04, 0.0031, 0.25, 1.5, 5.0, 30.4, 600.0, 9000.0, 400_000.0]
            .map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(text, ["0s", "40µs", "3.1ms", "250ms", "1.5s", "5s", "30s", "10 minutes", "2 hours", "5 days"]);
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!([999, 5900].map(|millis| ago(at(millis), at(0))), ["just now", "5s ago"]);
        assert_eq!(ago(at(0), at(5000)), "just now");
        assert_eq!([0, 999, 9000].map(|millis| until(at(0), at(millis))), ["now", "now", "in 9s (00:00:09Z)"]);
        assert_eq!(until(at(0), at(86_400_000)), "in 24 hours (1970-01-02T00:00:00Z)");
    }

    #[test]
    fn values_are_formatted_for_sentences() {
        assert_eq!([1, 2, 3, 11, 12, 21, 104].map(ordinal), ["1st", "2nd", "3rd", "11th", "12th", "21st", "104th"]);
        let parts = ["a", "b", "c"].map(String::from);
        assert_eq!([0, 1, 2, 3].map(|most| list(&parts[..most])), ["", "a", "a and b", "a, b and c"]);
        assert_eq!(quoted("no\nsuch \u{1b}[31mpod"), "no such [31mpod.");
    }

    #[test]
    fn kinds_have_plurals() {
        for (kind, expected) in [
            ("Pod", "Pods"),
            ("NetworkPolicy", "NetworkPolicies"),
            ("Gateway", "Gateways"),
            ("Ingress", "Ingresses"),
            ("Endpoints", "Endpoints"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
