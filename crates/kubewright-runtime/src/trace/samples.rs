//! Traces for tests.

use std::{borrow::Cow, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{End, Next, Query, Read, Reason, RecordedEvent, Trace, Trigger, Write};
use crate::object::ObjectKey;

/// Returns noon plus some seconds.
pub(super) fn noon(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(12) + SignedDuration::from_secs(seconds)
}

/// Returns the trace of a run that did nothing.
pub(super) fn bare() -> Trace {
    Trace {
        controller: "podset".into(),
        kind: Cow::Borrowed("PodSet"),
        object: ObjectKey::namespaced("demo", "web"),
        id: "00000000000000ab".into(),
        attempt: 1,
        started: noon(3),
        duration: Duration::from_micros(3100),
        queued: Duration::from_micros(40),
        held: None,
        triggers: Vec::new(),
        more_triggers: 0,
        reads: Vec::new(),
        more_reads: 0,
        writes: Vec::new(),
        more_writes: 0,
        events: Vec::new(),
        more_events: 0,
        end: End::Done,
        next: Next::Change,
    }
}

pub(super) fn pod(name: &str) -> ObjectKey {
    ObjectKey::namespaced("demo", name)
}

pub(super) fn trigger(reason: Reason, name: &str) -> Trigger {
    Trigger::change(reason, "Pod".into(), pod(name)).at(noon(3))
}

pub(super) fn read(query: Query, found: u32) -> Read {
    Read { kind: "Pod".into(), query, live: false, found: Some(found), duration: None, error: None }
}

pub(super) fn write(verb: &'static str, name: &str, status: u16) -> Write {
    Write {
        verb: verb.into(),
        kind: "Pod".into(),
        object: pod(name),
        subresource: None,
        dry_run: false,
        status: Some(status),
        error: None,
        changed: None,
        duration: Some(Duration::from_millis(2)),
    }
}

/// Returns a trace with an entry of each type.
pub(super) fn full() -> Trace {
    let changed = Trigger {
        fields: vec!["spec.replicas".into(), "metadata.labels[\"app\"]".into()],
        more_fields: 2,
        times: 3,
        ..Trigger::change(Reason::Updated, "PodSet".into(), pod("web")).at(noon(2))
    };
    let refused = Write { error: Some("pods is forbidden".into()), ..write("create", "web-2", 403) };
    let lost = Write { status: None, error: Some("connection reset".into()), ..write("delete", "web-3", 0) };
    let status = Write {
        kind: "PodSet".into(),
        subresource: Some("status".into()),
        changed: Some(false),
        ..write("patch", "web", 200)
    };
    let failed = Read { found: None, error: Some("no answer".into()), ..read(Query::Name { object: pod("web-9") }, 0) };
    let live = Read { live: true, duration: Some(Duration::from_millis(7)), ..failed };
    Trace {
        attempt: 3,
        queued: Duration::from_millis(250),
        held: Some(Duration::from_millis(200)),
        triggers: vec![changed, trigger(Reason::Deleted, "web-abc"), Trigger::new(Reason::Backoff).at(noon(3))],
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
        events: vec![
            RecordedEvent { warning: false, reason: "Created".into() },
            RecordedEvent { warning: true, reason: "FailedCreate".into() },
        ],
        more_events: 1,
        end: End::Failed { error: "create pods demo/web-2: pods is forbidden".into(), terminal: false },
        next: Next::After { delay: Duration::from_millis(1500), time: noon(5) },
        ..bare()
    }
}
