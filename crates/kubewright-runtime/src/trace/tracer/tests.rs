//! Objects are compared while no lock is held.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::MutexGuard;

use super::*;
use crate::trace::{Difference, Traces};

struct Idle;

impl ControllerInfo for Idle {
    fn now(&self) -> Now {
        moment()
    }

    fn exists(&self, _: &ObjectKey) -> bool {
        true
    }

    fn key_state(&self, _: &ObjectKey) -> KeyState {
        KeyState::Ready
    }

    fn is_ours(&self, _: &ObjectKey) -> bool {
        true
    }

    fn ready(&self) -> usize {
        0
    }

    fn missing(&self) -> Vec<String> {
        Vec::new()
    }
}

fn moment() -> Now {
    Now { monotonic: Duration::ZERO, wall: Timestamp::UNIX_EPOCH }
}

/// Returns the trigger of an updated pod.
fn updated(name: &str) -> Trigger {
    Trigger::change(Reason::Updated, "Pod", format!("demo/{name}"))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("demo", name)
}

/// A tracer, and a queue's lock that encloses the tracer's lock, as in the dispatcher and in the cache's events.
struct Scene {
    tracer: Arc<Tracer>,
    queue: Arc<Mutex<()>>,
    compared: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let tracer =
            Tracer::new("podset", ["".into(), "PodSet".into()], 1, Limits::default(), Arc::default(), Box::new(Idle));
        Self { tracer: Arc::new(tracer), queue: Arc::default(), compared: Arc::default() }
    }

    fn queue(&self) -> MutexGuard<'_, ()> {
        self.queue.lock()
    }

    /// Compares two states of an object, and fails if one of the locks is held during that.
    fn difference(&self, field: &str) -> Difference {
        let (tracer, queue) = (self.tracer.clone(), self.queue.clone());
        let (compared, field) = (self.compared.clone(), field.to_owned());
        Arc::new(move || {
            assert!(tracer.state.try_lock().is_some(), "{field} is compared under the tracer's lock");
            assert!(queue.try_lock().is_some(), "{field} is compared under the queue's lock");
            compared.fetch_add(1, Ordering::Relaxed);
            vec![field.clone()]
        })
    }

    fn change(&self, name: &str, field: &str) -> Updated {
        Updated { trigger: updated(name), difference: self.difference(field) }
    }

    fn taken(&self, name: &str) -> Triggers {
        let taken = Taken { key: key(name), priority: 0, waited: Duration::ZERO, failures: 0, delayed: false };
        let _queue = self.queue();
        self.tracer.taken(&taken, moment())
    }
}

struct Updated {
    trigger: Trigger,
    difference: Difference,
}

impl ObservedChange for Updated {
    fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    fn fields(&self) -> Vec<String> {
        (self.difference)()
    }

    fn difference(&self) -> Option<Difference> {
        Some(self.difference.clone())
    }
}

#[test]
fn a_change_is_compared_without_a_lock() {
    let scene = Scene::new();
    let first = scene.tracer.trigger(&scene.change("a", "spec.first"));
    // Another thread came first, so both comparisons were deferred.
    let second = scene.tracer.trigger(&scene.change("a", "spec.second"));
    for trigger in [first, second] {
        let _queue = scene.queue();
        scene.tracer.wanted(&key("a"), trigger, moment().wall);
    }
    assert_eq!(scene.compared.load(Ordering::Relaxed), 0);
    let third = scene.tracer.trigger(&scene.change("a", "spec.third"));
    assert_eq!(scene.compared.load(Ordering::Relaxed), 1, "a key waits: it is compared at once");
    {
        let _queue = scene.queue();
        scene.tracer.wanted(&key("a"), third, moment().wall);
    }
    let page = scene.tracer.key(&key("a"));
    assert_eq!(page.waiting.len(), 1);
    assert_eq!((page.waiting[0].fields.as_slice(), page.waiting[0].times), (FIELDS.map(String::from).as_slice(), 3));

    let mut triggers = scene.taken("a");
    triggers.settle();
    assert_eq!(triggers.kept[0].fields, FIELDS);
}

const FIELDS: [&str; 3] = ["spec.first", "spec.second", "spec.third"];

#[test]
fn a_key_that_is_held_back_keeps_its_triggers_without_comparing() {
    let scene = Scene::new();
    let want = |field: &str| {
        let NewTrigger { trigger, .. } = updated("a").into();
        let trigger = NewTrigger { trigger, difference: Some(scene.difference(field)) };
        let _queue = scene.queue();
        scene.tracer.wanted(&key("a"), trigger, moment().wall);
    };
    want("spec.first");
    let triggers = scene.taken("a");
    want("spec.second");
    {
        let _queue = scene.queue();
        scene.tracer.held(&key("a"), triggers, moment());
    }
    assert_eq!(scene.compared.load(Ordering::Relaxed), 0);
    assert_eq!(scene.tracer.key(&key("a")).waiting[0].fields, FIELDS[..2]);
}

#[test]
fn differences_that_were_not_computed_are_bounded() {
    let scene = Scene::new();
    let mut triggers = Triggers::default();
    for number in 0..100 {
        let difference = Some(scene.difference(&format!("spec.field{number}")));
        triggers.add(NewTrigger { trigger: updated("a"), difference });
    }
    triggers.settle();
    assert_eq!(scene.compared.load(Ordering::Relaxed), 8);
    assert_eq!((triggers.kept[0].fields.len(), triggers.kept[0].times), (8, 100));
}

#[test]
fn ended_runs_of_all_controllers_are_counted() {
    let traces = Traces::default();
    let tracer = |name| traces.controller(name, ["".into(), "PodSet".into()], 1, Idle).expect("traces are on");
    let (podset, replica) = (tracer("podset"), tracer("replica"));
    let run = |tracer: &Tracer| {
        let begun = || Begun {
            key: key("a"),
            id: "1".into(),
            attempt: 0,
            triggers: Triggers::default(),
            queued: Duration::ZERO,
            held: None,
            started: moment(),
        };
        tracer.began(&mut begun());
        let running = traces.ended_runs();
        tracer.ended(begun(), Duration::ZERO, RunNotes::default(), End::Done, Next::Change);
        (running, traces.ended_runs())
    };
    assert_eq!([run(&podset), run(&podset), run(&replica)], [(0, 1), (1, 2), (2, 3)]);
    traces.forget("podset");
    assert_eq!((traces.ended_runs(), Traces::off().ended_runs()), (3, 0));
}
