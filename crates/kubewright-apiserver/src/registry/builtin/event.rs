//! Events. `v1` and `events.k8s.io/v1` serve the same objects, which are stored in the form of `v1`.

use jiff::Timestamp;
use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use super::{
    columns,
    validation::{Errors, IMMUTABLE, Path, Shown, field, int, string, validate_text},
};
use crate::{
    fields::{fill, remove, set, text},
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
        Errors::collect(|errors| validate_legacy_event(new, "reportingComponent", errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::path_segment
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
        Errors::collect(|errors| {
            validate_legacy_event(new, "reportingController", errors);
            match old {
                None => validate_new_event(new, errors),
                Some(old) => validate_event_update(old, new, errors),
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
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

/// Checks an event of either API, in stored form. The rules of the newer API apply to events with an `eventTime`. Names
/// of fields in messages are those of the stored form, except for `reporter`.
fn validate_legacy_event(event: &Value, reporter: &str, errors: &mut Errors) {
    let (own, about) = (string(&event["metadata"], "namespace"), string(&event["involvedObject"], "namespace"));
    let is_modern = field(event, "eventTime").is_some();
    let fits = match (is_modern, about) {
        (false, "") => matches!(own, "default" | ""),
        (false, about) => own == about,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        errors.invalid(&Path::new("involvedObject.namespace"), about, "does not match event.namespace");
    }
    if is_modern {
        let path = Path::new(reporter);
        let name = string(event, "reportingComponent");
        if name.is_empty() {
            errors.required(&path, "");
        }
        validate_text(name, name::label_key, &path, errors);
        for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)] {
            let length = string(event, field).len();
            if length == 0 && field != "message" {
                errors.required(&Path::new(field), "");
            }
            if length > limit {
                errors.invalid(&Path::new(field), "", &format!("can have at most {limit} characters"));
            }
        }
    }
    validate_text(own, name::dns1123_subdomain, &Path::new("namespace"), errors);
}

/// Checks a new event of the newer API.
fn validate_new_event(event: &Value, errors: &mut Errors) {
    validate_series(event, errors);
    if field(event, "eventTime").is_none() {
        errors.required(&Path::new("eventTime"), "");
    }
    let kind = string(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid(&Path::new("type"), "", &format!("has invalid value: {kind}"));
    }
    let source = &event["source"];
    let of_older_api = [
        ("firstTimestamp", field(event, "firstTimestamp").is_some()),
        ("lastTimestamp", field(event, "lastTimestamp").is_some()),
        ("count", int(event, "count") != 0),
        ("source", !string(source, "component").is_empty() || !string(source, "host").is_empty()),
    ];
    for (field, is_set) in of_older_api {
        if is_set {
            errors.invalid(&Path::new(field), "", "needs to be unset");
        }
    }
}

fn validate_series(event: &Value, errors: &mut Errors) {
    let Some(series) = field(event, "series") else { return };
    if int(series, "count") < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if field(series, "lastObservedTime").is_none() {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}

/// Checks an update by the newer API, which only changes the series.
fn validate_event_update(old: &Value, new: &Value, errors: &mut Errors) {
    const FIXED: &[(&str, &str)] = &[
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    if old["series"] != new["series"] {
        validate_series(new, errors);
    }
    for (field, shown) in FIXED {
        if old[*field] != new[*field] {
            errors.invalid(&Path::new(shown), shown_field(field, &new[*field]), IMMUTABLE);
        }
    }
}

/// Shows a field of an event, references and sources in the form of Kubernetes' internal types.
fn shown_field(field: &str, value: &Value) -> Shown {
    let object = |names: &[(&'static str, &str)]| {
        Shown::object(names.iter().map(|(shown, name)| (*shown, Shown::from(string(value, name)))))
    };
    match field {
        "involvedObject" | "related" if value.is_object() => object(&[
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ]),
        "source" => object(&[("Component", "component"), ("Host", "host")]),
        _ => value.clone().into(),
    }
}

/// Returns the columns of events in both APIs. They have no leading name column.
pub(super) fn columns() -> Vec<Column> {
    let mut name = columns::string("Name", |event, _| show(event, "/metadata/name").into()).wide();
    name.format = "name".into();
    vec![
        columns::string("Last Seen", |event, now| last_seen(event, now).into()),
        columns::string("Type", |event, _| show(event, "/type").into()),
        columns::string("Reason", |event, _| show(event, "/reason").into()),
        columns::string("Object", |event, _| about(event).into()),
        columns::string("Subobject", |event, _| show(event, "/involvedObject/fieldPath").into()).wide(),
        columns::string("Source", |event, _| reporter(event).into()).wide(),
        columns::string("Message", |event, _| show(event, "/message").trim().into()),
        columns::string("First Seen", |event, now| first_seen(event, now).into()).wide(),
        columns::string("Count", |event, _| count(event).into()).wide(),
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
            |event| {
                event["metadata"]["namespace"] = "other".into();
                event["regarding"]["namespace"] = "".into();
            },
            "involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
        );
        check(|event| event["type"] = "Odd".into(), "type: Invalid value: \"\": has invalid value: Odd");
        check(|event| event["deprecatedCount"] = 1.into(), "count: Invalid value: \"\": needs to be unset");
        let (mut old, mut new) = (modern(), modern());
        new["note"] = "other".into();
        [&mut old, &mut new].into_iter().for_each(|event| ModernEvents.decode(event));
        let causes = ModernEvents.validate(Some(&old), &new);
        assert_eq!(causes[0].to_string(), "message: Invalid value: \"other\": field is immutable");
    }
}
