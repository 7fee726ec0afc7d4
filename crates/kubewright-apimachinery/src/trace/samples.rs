//! Traces for tests.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{End, Next, Query, Read, Reason, RecordedEvent, Trace, Trigger, Write};

/// Returns noon plus some seconds.
pub(super) fn noon(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(12) + SignedDuration::from_secs(seconds)
}

/// Returns the trace of a run that did nothing.
pub(super) fn bare() -> Trace {
    Trace {
        controller: "podset".into(),
        kind: "PodSet".into(),
        object: "demo/web".into(),
        id: "00000000000000ab".into(),
        attempt: 1,
        started: noon(3),
        duration: Duration::from_micros(3100),
        queued: Duration::from_micros(40),
        end: End::Done,
        next: Next::Change,
        ..Trace::default()
    }
}

fn pod(name: &str) -> String {
    format!("demo/{name}")
}

pub(super) fn trigger(reason: Reason, name: &str) -> Trigger {
    Trigger { at: noon(3), ..Trigger::change(reason, "Pod", pod(name)) }
}

pub(super) fn read(query: Query, found: u32) -> Read {
    Read::cached("Pod", query, found)
}

pub(super) fn write(verb: &'static str, name: &str, status: u16) -> Write {
    Write { status: Some(status), duration: Some(Duration::from_millis(2)), ..Write::new(verb, "Pod", pod(name)) }
}

/// Returns a trace with an entry of each type.
pub(super) fn full() -> Trace {
    let changed = Trigger {
        fields: vec!["spec.replicas".into(), "metadata.labels[\"app\"]".into()],
        more_fields: 2,
        times: 3,
        at: noon(2),
        ..Trigger::change(Reason::Updated, "PodSet", pod("web"))
    };
    let failed = Trigger { at: noon(3), ..Trigger::new(Reason::Backoff) };
    let refused = Write { error: Some("pods is forbidden".into()), ..write("create", "web-2", 403) };
    let lost = Write { status: None, error: Some("connection reset".into()), ..write("delete", "web-3", 0) };
    let status = Write {
        kind: "PodSet".into(),
        subresource: Some("status".into()),
        changed: Some(false),
        ..write("patch", "web", 200)
    };
    let live = Read {
        live: true,
        found: None,
        duration: Some(Duration::from_millis(7)),
        error: Some("no answer".into()),
        ..read(Query::Name { object: pod("web-9") }, 0)
    };
    Trace {
        attempt: 3,
        queued: Duration::from_millis(250),
        held: Some(Duration::from_millis(200)),
        triggers: vec![changed, trigger(Reason::Deleted, "web-abc"), failed],
        more_triggers: 4,
        reads: vec![
            read(Query::Owner, 3),
            read(Query::Labels { namespace: Some("demo".into()), selector: "app=web".into() }, 1),
            read(Query::Name { object: pod("web-0") }, 1),
            read(Query::Index { index: "spec.nodeName".into(), value: "n1".into() }, 2),
            live,
        ],
        more_reads: 1,
        writes: vec![write("create", "web-1", 201), refused, lost, status],
        more_writes: 1,
        events: vec![RecordedEvent::new(false, "Created"), RecordedEvent::new(true, "FailedCreate")],
        more_events: 1,
        end: End::Failed { error: "create pods demo/web-2: pods is forbidden".into(), terminal: false },
        next: Next::After { delay: Duration::from_millis(1500), time: noon(5) },
        ..bare()
    }
}
