//! Formatting of times, lists and quoted text for sentences.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};

/// Formats a duration.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => "less than a millisecond".into(),
        s if s < 1.0 => format!("{:.0}ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Formats the time since a point in time.
pub(super) fn ago(now: Timestamp, time: Timestamp) -> String {
    match now.duration_since(time).as_secs_f64() {
        s if s < 1.0 => "just now".into(),
        s => format!("{} ago", duration(s)),
    }
}

/// Formats the time until a point in time.
pub(super) fn until(now: Timestamp, time: Timestamp) -> String {
    match time.duration_since(now).as_secs_f64() {
        s if s < 1.0 => "now".into(),
        s => format!("in {} ({})", duration(s), time.strftime("%H:%M:%SZ")),
    }
}

/// Joins parts: `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Formats an ordinal number: 1st, 2nd, 3rd, 4th.
pub(super) fn ordinal(number: u32) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// Removes line breaks and control characters, which a terminal would interpret.
pub(super) fn clean(text: &str) -> String {
    let line: Vec<_> = text.split_whitespace().collect();
    line.join(" ").chars().filter(|c| !c.is_control()).collect()
}

/// Formats external text as the end of a sentence.
pub(super) fn quoted(text: &str) -> String {
    let text = clean(text);
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

/// Formats the key of an object: `namespace/name`, or the name.
pub(super) fn key(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_formatted_for_sentences() {
        assert_eq!([1, 2, 3, 11, 12, 21, 104].map(ordinal), ["1st", "2nd", "3rd", "11th", "12th", "21st", "104th"]);
        let parts = ["a", "b", "c"].map(String::from);
        assert_eq!(
            (list(&parts[..1]), list(&parts[..2]), list(&parts)),
            ("a".into(), "a and b".into(), "a, b and c".into())
        );
        assert_eq!([0.0031, 5.2, 600.0, 9000.0].map(duration), ["3ms", "5s", "10 minutes", "2 hours"]);
        assert_eq!(quoted("no\nsuch \u{1b}[31mpod"), "no such [31mpod.");
    }
}
