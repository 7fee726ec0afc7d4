//! Sentences about an object in the API server: its conditions, owners and events.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{ResourceExt, api::DynamicObject};
use kubewright_apimachinery::text::{ago, clean, list, quoted};
use serde_json::Value;

use super::children::{key, problem};
use crate::event::{count, last_seen};

/// The number of most recent events that are shown.
const EVENTS: usize = 5;

/// Describes an object by its metadata and conditions.
pub(super) fn object(kind: &str, object: &DynamicObject, now: Timestamp) -> Vec<String> {
    let meta = &object.metadata;
    let created = meta.creation_timestamp.as_ref().map(|time| format!(", created {}", ago(now, time.0)));
    let mut lines = vec![format!("{kind} {} exists{}.", key(object), created.unwrap_or_default())];
    lines.extend(owners(object));
    if let Some(time) = &meta.deletion_timestamp {
        let finalizers: Vec<_> = object.finalizers().iter().map(|finalizer| clean(finalizer)).collect();
        let since = ago(now, time.0);
        lines.push(match finalizers.as_slice() {
            [] => format!("It was deleted {since} and is about to be removed."),
            _ => format!("It was deleted {since} and stays until its finalizers are removed: {}.", list(&finalizers)),
        });
    }
    let status = &object.data["status"];
    if let (Some(seen), Some(generation)) = (status["observedGeneration"].as_i64(), meta.generation)
        && seen < generation
    {
        lines.push(format!(
            "Its status is of generation {seen}, but its spec has generation {generation}: the operator has not observed it yet."
        ));
    }
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.extend(plain(conditions));
    let informative = conditions.iter().filter(|found| !is_plain(found));
    lines.extend(informative.filter_map(|found| condition(found, meta.generation, now)));
    lines.extend(problem(kind, object, now).filter(|_| kind == "Pod").map(|problem| format!("It {problem}")));
    if status.is_null() {
        lines.push("It has no status: no operator has written one yet.".into());
    }
    lines
}

fn owners(object: &DynamicObject) -> Option<String> {
    let found = object.owner_references().iter().map(|owner| {
        let verb = if owner.controller == Some(true) { "is controlled by" } else { "is owned by" };
        format!("{verb} {} {}", clean(&owner.kind), clean(&owner.name))
    });
    let found: Vec<_> = found.collect();
    (!found.is_empty()).then(|| format!("It {}, and is deleted with its owner.", list(&found)))
}

/// Returns whether a condition is `True` without a reason and a message.
fn is_plain(found: &Value) -> bool {
    let is_empty = |field: &str| found[field].as_str().is_none_or(str::is_empty);
    found["status"] == "True" && is_empty("reason") && is_empty("message")
}

/// Describes conditions without a reason and a message in one sentence, as pods have them.
fn plain(conditions: &[Value]) -> Option<String> {
    let names: Vec<_> = conditions
        .iter()
        .filter(|found| is_plain(found))
        .filter_map(|found| found["type"].as_str())
        .map(clean)
        .collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty()).then(|| format!("{} {verb} True.", list(&names)))
}

fn condition(found: &Value, generation: Option<i64>, now: Timestamp) -> Option<String> {
    let text = |field: &str| found[field].as_str().filter(|text| !text.is_empty());
    let (kind, status) = (clean(text("type")?), clean(text("status")?));
    let since = text("lastTransitionTime").and_then(|time| time.parse::<Timestamp>().ok());
    let since = since.map(|time| format!(" since {}", time.strftime("%Y-%m-%d %H:%M:%SZ")));
    let age =
        text("lastTransitionTime").and_then(|time| time.parse().ok()).map(|time| format!(" ({})", ago(now, time)));
    let reason = text("reason").map(|reason| format!(", with reason {}", clean(reason))).unwrap_or_default();
    let message = text("message").map_or_else(|| ".".into(), |message| format!(": {}", quoted(message)));
    let old = match (found["observedGeneration"].as_i64(), generation) {
        (Some(seen), Some(now)) if seen < now => format!(" This was observed for generation {seen}, not {now}."),
        _ => String::new(),
    };
    Some(format!("{kind} is {status}{}{}{reason}{message}{old}", since.unwrap_or_default(), age.unwrap_or_default()))
}

/// Describes the most recent events, oldest first.
pub(super) fn events(events: &[Event], now: Timestamp) -> Vec<String> {
    let mut dated: Vec<_> = events.iter().map(|event| (last_seen(event), event)).collect();
    dated.sort_by_key(|(time, _)| *time);
    let skipped = dated.len().saturating_sub(EVENTS);
    let mut lines: Vec<_> =
        dated.into_iter().skip(skipped).map(|(time, event)| describe_event(event, time, now)).collect();
    if skipped > 0 {
        lines.insert(0, format!("{skipped} older events are omitted; see kubectl describe."));
    }
    lines
}

fn describe_event(event: &Event, time: Option<Timestamp>, now: Timestamp) -> String {
    fn text(text: &Option<String>) -> Option<Cow<'_, str>> {
        text.as_deref().map(clean).filter(|text| !text.is_empty())
    }
    let source = event.source.as_ref().and_then(|source| text(&source.component));
    let who = text(&event.reporting_component).or(source).unwrap_or_else(|| "an unknown client".into());
    let kind = if event.type_.as_deref() == Some("Warning") { "warned of" } else { "reported" };
    let times = count(event);
    let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
    let when = time.map_or_else(String::new, |time| format!("{}, ", ago(now, time)));
    let reason = text(&event.reason).unwrap_or_else(|| "no reason".into());
    let message = event.message.as_deref().map_or_else(|| ".".into(), |message| format!(": {}", quoted(message)));
    let line = format!("{when}{who} {kind} {reason}{times}{message}");
    let mut chars = line.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:10Z".parse().unwrap()
    }

    #[test]
    fn an_object_is_described() {
        let given: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "app.example.com/v1", "kind": "PodSet",
            "metadata": {
                "name": "web", "namespace": "demo", "generation": 4, "creationTimestamp": "2026-01-01T12:00:00Z",
                "deletionTimestamp": "2026-01-01T12:00:05Z", "finalizers": ["a.example/x", "b.example/y"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Farm", "name": "big", "uid": "u", "controller": true}],
            },
            "status": {"observedGeneration": 3, "conditions": [
                {
                    "type": "Ready", "status": "False", "reason": "Missing", "message": "2 of 3 pods are ready",
                    "lastTransitionTime": "2026-01-01T12:00:03Z", "observedGeneration": 3,
                },
                {"type": "Odd"},
            ]},
        }))
        .unwrap();
        assert_eq!(
            object("PodSet", &given, now()),
            [
                "PodSet demo/web exists, created 10s ago.",
                "It is controlled by Farm big, and is deleted with its owner.",
                "It was deleted 5s ago and stays until its finalizers are removed: a.example/x and b.example/y.",
                "Its status is of generation 3, but its spec has generation 4: the operator has not observed it yet.",
                "Ready is False since 2026-01-01 12:00:03Z (7s ago), with reason Missing: 2 of 3 pods are ready. \
                 This was observed for generation 3, not 4.",
            ]
        );
        let bare: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        assert_eq!(
            object("Farm", &bare, now()),
            ["Farm web exists.", "It has no status: no operator has written one yet."]
        );
    }

    #[test]
    fn the_newest_events_are_described() {
        let event = |second: u32, count: i32| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "type": if count > 1 { "Warning" } else { "Normal" }, "reason": "Failed",
                "message": "no room", "source": {"component": "podset"}, "count": count,
                "lastTimestamp": format!("2026-01-01T12:00:0{second}Z"),
            }))
            .unwrap()
        };
        let given: Vec<_> = [event(7, 3), event(1, 1), event(2, 1), event(3, 1), event(4, 1), event(5, 1)].into();
        let found = events(&given, now());
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], "1 older events are omitted; see kubectl describe.");
        assert_eq!(found[1], "8s ago, podset reported Failed: no room.");
        assert_eq!(found[5], "3s ago, podset warned of Failed (3 times): no room.");
        assert!(events(&[], now()).is_empty());
    }
}
