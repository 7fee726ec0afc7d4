use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event as Stored};

use super::{
    Event,
    correlator::{Correlator, Decision, Write},
    recorder::PendingEvent,
};

const MINUTE: Duration = Duration::from_secs(60);

fn regarding(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("cnat.d2iq.com/v1alpha1".into()),
        kind: Some("At".into()),
        namespace: Some("jobs".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-of-{name}")),
        ..ObjectReference::default()
    }
}

/// A correlator and its clock.
struct Bench {
    correlator: Correlator,
    now: Duration,
}

impl Bench {
    fn new() -> Self {
        Self { correlator: Correlator::new("pod-1"), now: Duration::from_secs(1000) }
    }

    fn observe(&mut self, object: ObjectReference, event: Event) -> Decision {
        let time = Timestamp::UNIX_EPOCH.checked_add(self.now).unwrap();
        let pending = PendingEvent { regarding: object, event, controller: "at-controller".into(), time };
        self.correlator.observe(pending, self.now)
    }

    fn pending(&mut self, name: &str) -> Decision {
        self.observe(regarding(name), Event::normal("PhaseChange", "PENDING"))
    }

    fn wait(&mut self, time: Duration) -> Vec<Write> {
        self.now += time;
        self.correlator.refresh(self.now)
    }
}

fn created(decision: Decision) -> Stored {
    match decision {
        Decision::Write(Write::Create(event)) => *event,
        other => panic!("not a creation: {other:?}"),
    }
}

fn count(write: &Write) -> i32 {
    match write {
        Write::Repeat(event) => event.series.as_ref().unwrap().count,
        Write::Create(event) => panic!("not a repeat: {event:?}"),
    }
}

#[test]
fn a_new_event_has_all_that_the_api_requires_and_nothing_that_it_forbids() {
    let event =
        created(Bench::new().observe(regarding("run"), Event::warning("NoImage", "no such image").action("Pull")));
    assert_eq!(event.metadata.namespace.as_deref(), Some("jobs"));
    assert_eq!(event.metadata.name.as_deref(), Some("run.000000e8d4a51000"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reason.as_deref(), Some("NoImage"));
    assert_eq!(event.action.as_deref(), Some("Pull"));
    assert_eq!(event.note.as_deref(), Some("no such image"));
    assert_eq!(event.reporting_controller.as_deref(), Some("at-controller"));
    assert_eq!(event.reporting_instance.as_deref(), Some("pod-1"));
    assert_eq!(event.regarding, Some(regarding("run")));
    assert!(event.event_time.is_some() && event.series.is_none());
    assert!(event.deprecated_source.is_none() && event.deprecated_count.is_none());
    assert!(event.deprecated_first_timestamp.is_none() && event.deprecated_last_timestamp.is_none());
}

#[test]
fn an_event_of_a_cluster_scoped_object_goes_to_the_default_namespace() {
    let node = ObjectReference { namespace: None, ..regarding("node-1") };
    let event = created(Bench::new().observe(node, Event::normal("Seen", "")));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn long_texts_are_cut_between_characters() {
    let event = Event::normal("R".repeat(200), format!("x{}", "ß".repeat(600))).action("A".repeat(200));
    let event = created(Bench::new().observe(regarding(&"n".repeat(253)), event));
    assert_eq!(event.note.unwrap(), format!("x{}", "ß".repeat(511)));
    assert_eq!(event.reason.unwrap().len(), 128);
    assert_eq!(event.action.unwrap().len(), 128);
    assert_eq!(event.metadata.name.unwrap().len(), 253);
}

#[test]
fn names_never_repeat_and_keep_their_order() {
    let mut bench = Bench::new();
    let first = created(bench.observe(regarding("run"), Event::normal("PhaseChange", "PENDING")));
    let mut second = created(bench.observe(regarding("run"), Event::normal("PhaseChange", "RUNNING")));
    assert!(first.metadata.name < second.metadata.name);
    let before = second.metadata.name.clone();
    bench.correlator.rename(&mut second);
    assert!(before < second.metadata.name);
}

#[test]
fn repeats_become_a_series() {
    let mut bench = Bench::new();
    created(bench.pending("run"));
    let Decision::Write(second) = bench.pending("run") else { panic!("the first repeat is written at once") };
    assert_eq!(count(&second), 2);
    for _ in 0..3 {
        bench.now += Duration::from_secs(1);
        assert_eq!(bench.pending("run"), Decision::Gathered);
    }
    assert_eq!(bench.wait(MINUTE), []);
    assert_eq!(bench.wait(4 * MINUTE).iter().map(count).collect::<Vec<_>>(), [5]);
    assert_eq!(bench.wait(4 * MINUTE), []);
    created(bench.pending("run"));
}

#[test]
fn a_series_that_goes_on_is_never_new() {
    let mut bench = Bench::new();
    created(bench.pending("run"));
    let mut written = Vec::new();
    for _ in 0..60 {
        written.extend(bench.wait(MINUTE));
        if let Decision::Write(write) = bench.pending("run") {
            written.push(write);
        }
    }
    written.extend(bench.correlator.flush(bench.now));
    let counts: Vec<_> = written.iter().map(count).collect();
    assert_eq!(counts.last(), Some(&61));
    assert!(counts.len() <= 14, "one write in five minutes: {counts:?}");
}

#[test]
fn events_that_differ_in_any_field_are_separate_series() {
    let base = || Event::normal("PhaseChange", "PENDING");
    let mut bench = Bench::new();
    created(bench.observe(regarding("run"), base()));
    for (object, event) in [
        ("run", Event::normal("PhaseChange", "RUNNING")),
        ("run", Event::normal("Phase", "PENDING").action("PhaseChange")),
        ("run", Event::warning("PhaseChange", "PENDING")),
        ("run", base().action("Other")),
        ("run", base().related(regarding("pod"))),
        ("walk", base()),
    ] {
        created(bench.observe(regarding(object), event));
    }
    let recreated = ObjectReference { uid: Some("another".into()), ..regarding("run") };
    created(bench.observe(recreated, base()));
}

#[test]
fn an_object_has_25_new_events_and_then_one_in_five_minutes() {
    let mut bench = Bench::new();
    let mut number = 0;
    let mut allowed = |bench: &mut Bench, object: &str| {
        let mut allowed = 0;
        for _ in 0..40 {
            number += 1;
            let decision = bench.observe(regarding(object), Event::normal("Step", format!("{number}")));
            allowed += u32::from(matches!(decision, Decision::Write(_)));
        }
        allowed
    };
    assert_eq!(allowed(&mut bench, "chatty"), 25);
    assert_eq!(allowed(&mut bench, "quiet"), 25);
    bench.wait(4 * MINUTE);
    assert_eq!(allowed(&mut bench, "chatty"), 0);
    bench.wait(MINUTE);
    assert_eq!(allowed(&mut bench, "chatty"), 1);
    bench.wait(15 * MINUTE);
    assert_eq!(allowed(&mut bench, "chatty"), 3);
    bench.wait(1000 * MINUTE);
    assert_eq!(allowed(&mut bench, "chatty"), 25);
}

#[test]
fn ended_series_are_forgotten() {
    let mut bench = Bench::new();
    for number in 0..5000 {
        bench.pending(&format!("run-{number}"));
    }
    assert!(!bench.correlator.is_idle());
    assert_eq!(bench.wait(30 * MINUTE), []);
    assert!(bench.correlator.is_idle());
}
