//! The time and the number of an event's occurrences, for which each of the two APIs of events has fields of its own.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// Returns the time of the last occurrence.
pub(crate) fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let times = [
        series,
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}

/// Returns the number of occurrences.
pub(crate) fn count(event: &Event) -> i32 {
    event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(fields: Value, seen: &str, times: i32) {
        let mut event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "involvedObject": {}});
        event.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("fields"));
        let event: Event = serde_json::from_value(event).expect("an event");
        assert_eq!((last_seen(&event).map(|time| time.to_string()).as_deref(), count(&event)), (Some(seen), times));
    }

    #[test]
    fn both_apis_tell_when_and_how_often() {
        check(json!({}), "2026-01-01T00:00:00Z", 1);
        check(json!({"lastTimestamp": "2026-01-01T00:00:09Z", "count": 3}), "2026-01-01T00:00:09Z", 3);
        check(json!({"eventTime": "2026-01-01T00:00:05.000000Z"}), "2026-01-01T00:00:05Z", 1);
        let series = json!({"count": 4, "lastObservedTime": "2026-01-01T00:00:07.000000Z"});
        check(json!({"eventTime": "2026-01-01T00:00:05.000000Z", "series": series}), "2026-01-01T00:00:07Z", 4);
    }
}
