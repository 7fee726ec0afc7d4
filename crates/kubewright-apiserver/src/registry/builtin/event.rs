//! Events. `v1` and `events.k8s.io/v1` serve the same objects, which are stored in the form of `v1`.

use jiff::Timestamp;
use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use super::{
    check::one_of,
    columns::{integer, string},
};
use crate::{
    fields::{fill, has, remove, set, text},
    registry::{Column, Strategy},
    table::age_of,
};

/// The fields for field selectors, by their `v1` name, which is also their path.
pub(super) const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];

/// The fields with other names in `events.k8s.io/v1`, and their stored names.
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Returns the name of a selectable field in `events.k8s.io/v1`.
pub(super) fn served_name(stored: &str) -> String {
    let (first, rest) = stored.split_at(stored.find('.').unwrap_or(stored.len()));
    let served = RENAMED.iter().find(|(_, name)| *name == first).map_or(first, |(served, _)| served);
    format!("{served}{rest}")
}

/// Returns the value for the field selector `source`: the component, from either field that may contain it.
pub(super) fn source(event: &Value) -> String {
    let legacy = text(event, "/source/component");
    if legacy.is_empty() { text(event, "/reportingComponent").into() } else { legacy.into() }
}

/// The strategy of events of `v1`.
#[derive(Debug)]
pub(super) struct CoreEvents;

impl Strategy for CoreEvents {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        check_namespace(new, "involvedObject.namespace", &mut causes);
        // The rules of the newer API apply to events with an `eventTime`.
        if has(new, "/eventTime") {
            check_modern(new, "reportingComponent", "message", &mut causes);
        }
        causes
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of events of `events.k8s.io/v1`.
#[derive(Debug)]
pub(super) struct ModernEvents;

impl Strategy for ModernEvents {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        check_namespace(new, "regarding.namespace", &mut causes);
        // Events of older clients are left unchanged.
        if old.is_some_and(|old| !has(old, "/eventTime")) {
            return causes;
        }
        if !has(new, "/eventTime") {
            causes.push(Cause::required("eventTime", ""));
        }
        check_modern(new, "reportingController", "note", &mut causes);
        causes
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn decode(&self, object: &mut Value) {
        for (served, stored) in RENAMED {
            if let Some(value) = remove(object, served) {
                set(object, stored, value);
            }
        }
        // The stored form always has an `involvedObject`.
        fill(object, "involvedObject", json!({}));
    }

    fn encode(&self, object: &mut Value) {
        for (served, stored) in RENAMED {
            if let Some(value) = remove(object, stored) {
                set(object, served, value);
            }
        }
    }
}

/// Checks that an event is in the namespace of its object or, if the object has none, in a system namespace.
fn check_namespace(event: &Value, field: &str, causes: &mut Vec<Cause>) {
    let (own, about) = (text(event, "/metadata/namespace"), text(event, "/involvedObject/namespace"));
    let fits = if about.is_empty() { matches!(own, "default" | "kube-system" | "") } else { about == own };
    if !fits {
        causes.push(Cause::invalid(field, &about.into(), "does not match event.namespace"));
    }
}

fn check_modern(event: &Value, controller: &str, note: &str, causes: &mut Vec<Cause>) {
    let reporter = text(event, "/reportingComponent");
    if reporter.is_empty() {
        causes.push(Cause::required(controller, ""));
    } else {
        let sentences = name::label_key(reporter);
        causes.extend(sentences.iter().map(|why| Cause::invalid(controller, &reporter.into(), why)));
    }
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(event, &format!("/{field}"));
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if value.len() > limit {
            causes.push(Cause::invalid(field, &"".into(), &format!("can have at most {limit} characters")));
        }
    }
    if text(event, "/message").len() > 1024 {
        causes.push(Cause::invalid(note, &"".into(), "can have at most 1024 characters"));
    }
    if text(event, "/type").is_empty() {
        causes.push(Cause::required("type", ""));
    }
    one_of(event, "", "type", &["Normal", "Warning"], causes);
    causes.iter_mut().for_each(|cause| cause.field = cause.field.trim_start_matches('.').into());
}

/// Returns the columns of events in both APIs. They have no leading name column.
pub(super) fn columns() -> Vec<Column> {
    let mut name = string("Name", |event, _| show(event, "/metadata/name").into()).wide();
    name.format = "name".into();
    vec![
        string("Last Seen", |event, now| last_seen(event, now).into()),
        string("Type", |event, _| show(event, "/type").into()),
        string("Reason", |event, _| show(event, "/reason").into()),
        string("Object", |event, _| about(event).into()),
        string("Subobject", |event, _| show(event, "/involvedObject/fieldPath").into()).wide(),
        string("Source", |event, _| reporter(event).into()).wide(),
        string("Message", |event, _| show(event, "/message").trim().into()),
        string("First Seen", |event, now| first_seen(event, now).into()).wide(),
        integer("Count", |event, _| count(event).into()).wide(),
        name,
    ]
}

/// Returns the value at a pointer of the stored form, for an event in either form.
fn look<'a>(event: &'a Value, pointer: &str) -> Option<&'a Value> {
    let found = event.pointer(pointer).or_else(|| {
        let (field, rest) =
            pointer[1..].split_once('/').map_or((&pointer[1..], None), |(field, rest)| (field, Some(rest)));
        let (served, _) = RENAMED.iter().find(|(_, stored)| *stored == field)?;
        let value = event.get(served)?;
        rest.map_or(Some(value), |rest| value.pointer(&format!("/{rest}")))
    });
    found.filter(|value| !value.is_null())
}

fn show<'a>(event: &'a Value, pointer: &str) -> &'a str {
    look(event, pointer).and_then(Value::as_str).unwrap_or_default()
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    age_of(look(event, "/firstTimestamp").or_else(|| look(event, "/eventTime")), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    match look(event, "/series/lastObservedTime").or_else(|| look(event, "/lastTimestamp")) {
        Some(time) => age_of(Some(time), now),
        None => first_seen(event, now),
    }
}

fn count(event: &Value) -> i64 {
    let times = |pointer| look(event, pointer).and_then(Value::as_i64);
    times("/series/count").or_else(|| times("/count")).unwrap_or_default().max(1)
}

fn about(event: &Value) -> String {
    let kind = show(event, "/involvedObject/kind").to_lowercase();
    match show(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn reporter(event: &Value) -> String {
    let (mut who, mut at) = (show(event, "/source/component"), show(event, "/source/host"));
    if who.is_empty() {
        (who, at) = (show(event, "/reportingComponent"), show(event, "/reportingInstance"));
    }
    if at.is_empty() { who.into() } else { format!("{who}, {at}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modern() -> Value {
        json!({
            "metadata": {"name": "e", "namespace": "default"}, "eventTime": "2024-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "began", "reason": "Started",
            "type": "Normal", "action": "Start", "reportingController": "example.com/c", "reportingInstance": "c-1",
            "series": {"count": 3, "lastObservedTime": "2024-01-01T00:04:00.000000Z"},
        })
    }

    #[test]
    fn both_forms_of_events_have_the_same_content() {
        let mut event = modern();
        ModernEvents.decode(&mut event);
        assert_eq!(event["involvedObject"]["name"], "p");
        assert_eq!(event["message"], "began");
        assert_eq!(event["reportingComponent"], "example.com/c");
        assert_eq!(ModernEvents.validate(None, &event), []);
        ModernEvents.encode(&mut event);
        assert_eq!(event, modern());
    }

    #[test]
    fn columns_read_either_form() {
        let now = "2024-01-01T00:05:00Z".parse().unwrap();
        let mut stored = modern();
        ModernEvents.decode(&mut stored);
        for event in [modern(), stored] {
            assert_eq!(last_seen(&event, now), "60s");
            assert_eq!(first_seen(&event, now), "5m");
            assert_eq!(
                (count(&event), about(&event), reporter(&event)),
                (3, "pod/p".into(), "example.com/c, c-1".into())
            );
            assert_eq!(show(&event, "/message"), "began");
        }
    }

    #[test]
    fn an_event_needs_its_fields_and_namespace() {
        let check = |change: fn(&mut Value), expect: &str| {
            let mut event = modern();
            change(&mut event);
            ModernEvents.decode(&mut event);
            assert_eq!(ModernEvents.validate(None, &event)[0].to_string(), expect);
        };
        check(|event| drop(remove(event, "eventTime")), "eventTime: Required value");
        check(|event| drop(remove(event, "reportingController")), "reportingController: Required value");
        check(
            |event| event["regarding"]["namespace"] = "other".into(),
            "regarding.namespace: Invalid value: \"other\": does not match event.namespace",
        );
        check(
            |event| event["type"] = "Odd".into(),
            "type: Unsupported value: \"Odd\": supported values: \"Normal\", \"Warning\"",
        );
    }
}
