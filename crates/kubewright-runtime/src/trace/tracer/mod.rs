//! The tracer of one controller: the state of its keys and their traces.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    ControllerPage, End, KeyPage, Limits, Next, Phase, Present, Reason, RunNotes, Summary, Trace, Trigger,
    recorder::cut,
    ring::Ring,
    triggers::{NewTrigger, ObservedChange, Triggers},
};
use crate::{
    object::ObjectKey,
    queue::{KeyState, LOW_PRIORITY, Now, Taken},
};

/// The greatest capacity that the table of waiting and running keys keeps when it is empty.
const FEW_WAITING: usize = 256;
/// The maximum number of waiting keys for which triggers are kept. Further keys run as usual, with [`Reason::Unknown`].
const MOST_WAITING: usize = 10_000;

/// Access to the state of a controller, for its traces.
pub(crate) trait ControllerInfo: Send + Sync {
    fn now(&self) -> Now;

    /// Returns whether the cache has the object.
    fn exists(&self, key: &ObjectKey) -> bool;

    /// Returns the state of the key in the queue.
    fn key_state(&self, key: &ObjectKey) -> KeyState;

    /// Returns whether this replica works on the key.
    fn is_ours(&self, key: &ObjectKey) -> bool;

    /// Returns the number of ready keys.
    fn ready(&self) -> usize;

    /// Returns the kinds that have not been listed yet, each with the error.
    fn missing(&self) -> Vec<String>;
}

/// The traces of one controller.
///
/// # Locks
/// Methods that document it are called under the queue's lock: the lock order is queue, then tracer, never the reverse.
/// While the tracer's lock is held, no other lock is taken, no method of [`ControllerInfo`] is called, and no objects
/// are compared, because every event and every worker takes this lock.
pub(crate) struct Tracer {
    controller: Arc<str>,
    kind: Cow<'static, str>,
    group: Cow<'static, str>,
    workers: usize,
    /// The number of ended runs of all controllers.
    ended: Arc<AtomicU64>,
    info: Box<dyn ControllerInfo>,
    /// Whether the runs note the versions of objects.
    has_versions: bool,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    runs: u64,
    failures: u64,
    /// The waiting and running keys, usually few.
    keys: HashMap<ObjectKey, Live>,
    /// True if triggers were dropped because of the limit, so that a key without triggers need not come from the first
    /// list.
    overflowed: bool,
    ring: Ring,
}

/// The state of a waiting or running key.
#[derive(Default)]
struct Live {
    waiting: Triggers,
    held: Option<Now>,
    running: Option<(Timestamp, String)>,
}

impl Live {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_none() && self.running.is_none()
    }
}

/// A run that has started.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) key: ObjectKey,
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) triggers: Triggers,
    pub(crate) queued: Duration,
    pub(crate) held: Option<Duration>,
    pub(crate) started: Now,
}

impl Tracer {
    pub(super) fn new(
        controller: &str,
        [group, kind]: [Cow<'static, str>; 2],
        workers: usize,
        limits: Limits,
        ended: Arc<AtomicU64>,
        info: Box<dyn ControllerInfo>,
    ) -> Self {
        let state = State {
            phase: Phase::Standby,
            runs: 0,
            failures: 0,
            keys: HashMap::new(),
            overflowed: false,
            ring: Ring::new(limits),
        };
        let (controller, has_versions) = (controller.into(), false);
        Self { controller, kind, group, workers, ended, info, has_versions, state: Mutex::new(state) }
    }

    /// Sets whether the runs note the versions of objects.
    pub(super) fn with_versions(self, has_versions: bool) -> Self {
        Self { has_versions, ..self }
    }

    pub(crate) fn has_versions(&self) -> bool {
        self.has_versions
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.state.lock().phase = phase;
    }

    /// Returns the trigger of a change, for [`Tracer::wanted`]. Call it without holding a lock, since it may compare
    /// two states of an object. If no key is waiting or running, the run begins at once and the comparison is deferred
    /// until after it; only a few old states are kept for that.
    pub(crate) fn trigger(&self, change: &impl ObservedChange) -> NewTrigger {
        // A lock taken in the condition itself would be held until the end of the statement.
        let is_idle = self.state.lock().keys.is_empty();
        if is_idle {
            return NewTrigger { trigger: change.trigger(), difference: change.difference() };
        }
        let mut trigger = change.trigger();
        trigger.fields = change.fields();
        trigger.into()
    }

    /// Records a trigger of a key and its time. Call it while holding the queue's lock under which the key is added.
    pub(crate) fn wanted(&self, key: &ObjectKey, trigger: impl Into<NewTrigger>, at: Timestamp) {
        let NewTrigger { mut trigger, difference } = trigger.into();
        // A key that is taken without a trigger and has not waited for a timer comes from the first list.
        if trigger.reason == Reason::InitialList {
            return;
        }
        let State { keys, overflowed, .. } = &mut *self.state.lock();
        if keys.len() >= MOST_WAITING && !keys.contains_key(key) {
            *overflowed = true;
            return;
        }
        trigger.at = at;
        keys.entry(key.clone()).or_default().waiting.add(NewTrigger { trigger, difference });
    }

    /// Takes the triggers of a key. Call it while holding the queue's lock under which the key is taken.
    pub(crate) fn taken(&self, taken: &Taken<ObjectKey>, now: Now) -> Triggers {
        let mut state = self.state.lock();
        let mut triggers = match state.keys.get_mut(&taken.key) {
            Some(live) => std::mem::take(&mut live.waiting),
            None => Triggers::default(),
        };
        if triggers.is_empty() {
            let reason = match (taken.delayed, taken.failures) {
                (true, 0) => Reason::Timer,
                (true, _) => Reason::Backoff,
                (false, _) if state.overflowed || taken.priority > LOW_PRIORITY => Reason::Unknown,
                (false, _) => Reason::InitialList,
            };
            let mut trigger = Trigger::new(reason);
            trigger.at = now.wall;
            triggers.add(trigger.into());
        }
        state.clean(&taken.key);
        triggers
    }

    /// Records that the key waits for the cache to show its last writes. Call it while holding the queue's lock.
    pub(crate) fn held(&self, key: &ObjectKey, triggers: Triggers, now: Now) {
        let mut state = self.state.lock();
        let live = state.keys.entry(key.clone()).or_default();
        let later = std::mem::replace(&mut live.waiting, triggers);
        live.waiting.append(later);
        live.held.get_or_insert(now);
    }

    /// Records the start of a run.
    pub(crate) fn began(&self, begun: &mut Begun) {
        let mut state = self.state.lock();
        let live = state.keys.entry(begun.key.clone()).or_default();
        begun.held = live.held.take().map(|since| begun.started.monotonic.saturating_sub(since.monotonic));
        live.running = Some((begun.started.wall, begun.id.clone()));
    }

    /// Stores the trace of a run. Call it while holding the queue's lock under which the key is marked as done.
    pub(crate) fn ended(&self, begun: Begun, ended: Duration, notes: RunNotes, end: End, next: Next) {
        let key = begun.key.clone();
        let trace = self.trace(begun, ended, notes, end, next);
        let mut state = self.state.lock();
        state.runs += 1;
        state.failures += u64::from(trace.end != End::Done);
        if let Some(live) = state.keys.get_mut(&key) {
            live.running = None;
        }
        state.clean(&key);
        state.ring.push(key, Arc::new(trace));
        // After the trace is kept, so that who sees the number finds the trace.
        self.ended.fetch_add(1, Ordering::Release);
    }

    fn trace(&self, begun: Begun, ended: Duration, notes: RunNotes, end: End, next: Next) -> Trace {
        let Begun { key, id, attempt, triggers, queued, held, started } = begun;
        let hidden = || "errors about Secrets are not shown here, only in the log".to_owned();
        let end = match end {
            // The reconciler's error most likely contains the API server's.
            End::Failed { terminal, .. } if notes.hides_errors => End::Failed { error: hidden(), terminal },
            End::Panicked { .. } if notes.hides_errors => End::Panicked { error: hidden() },
            End::Failed { error, terminal } => End::Failed { error: cut(error), terminal },
            End::Panicked { error } => End::Panicked { error: cut(error) },
            end => end,
        };
        let mut trace = Trace::default();
        (trace.controller, trace.kind) = (self.controller.clone(), self.kind.clone());
        (trace.object, trace.id, trace.attempt) = (key.to_string(), id, attempt);
        (trace.started, trace.duration) = (started.wall, ended.saturating_sub(started.monotonic));
        (trace.queued, trace.held) = (queued, held);
        (trace.triggers, trace.more_triggers) = (triggers.kept, triggers.more);
        (trace.reads, trace.more_reads) = (notes.reads, notes.more_reads);
        (trace.writes, trace.more_writes) = (notes.writes, notes.more_writes);
        (trace.events, trace.more_events) = (notes.events, notes.more_events);
        (trace.end, trace.next) = (end, next);
        trace
    }

    pub(super) fn summary(&self) -> Summary {
        // These take the queue's lock, so the tracer's must not be held.
        let (ready, missing) = (self.info.ready(), self.info.missing());
        let state = self.state.lock();
        let count = |is: fn(&Live) -> bool| state.keys.values().filter(|live| is(live)).count();
        let mut summary = Summary::new(&self.controller, self.kind.clone(), self.group.clone());
        summary.phase = state.phase;
        if state.phase == Phase::Syncing {
            summary.missing = missing;
        }
        summary.workers = self.workers;
        summary.ready = ready;
        summary.held = count(|live| live.held.is_some());
        summary.running = count(|live| live.running.is_some());
        (summary.runs, summary.failures) = (state.runs, state.failures);
        (summary.kept, summary.keys) = (state.ring.len(), state.ring.keys());
        (summary.bytes, summary.displaced) = (state.ring.bytes(), state.ring.displaced());
        summary
    }

    pub(super) fn last(&self, most: usize) -> Vec<Arc<Trace>> {
        self.state.lock().ring.last(most)
    }

    pub(super) fn of(&self, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.state.lock().ring.of(key)
    }

    pub(super) fn page(&self, most: usize) -> ControllerPage {
        let runs = self.last(most).iter().map(|trace| trace.as_ref().clone()).collect();
        ControllerPage::new(self.info.now().wall, self.summary(), runs)
    }

    pub(super) fn key(&self, key: &ObjectKey) -> KeyPage {
        let key_state = self.info.key_state(key);
        let is_ours = self.info.is_ours(key);
        let mut page = KeyPage::new(self.info.now().wall, self.summary(), key.to_string());
        page.exists = self.info.exists(key);
        let (running, held, mut waiting, runs) = {
            let state = self.state.lock();
            let live = state.keys.get(key);
            let waiting = live.map(|live| live.waiting.clone()).unwrap_or_default();
            let running = live.and_then(|live| live.running.clone());
            (running, live.and_then(|live| live.held), waiting, state.ring.of(key))
        };
        waiting.settle();
        page.present = match (running, held, key_state) {
            (Some((since, id)), _, _) => Present::Running { since, id },
            (None, Some(since), KeyState::Parked) => Present::Held { since: since.wall },
            (None, ..) if !is_ours => Present::Elsewhere,
            (None, _, KeyState::Ready | KeyState::Parked | KeyState::Working) => Present::Ready,
            (None, _, KeyState::Delayed(left)) => Present::Delayed { left },
            (None, _, KeyState::Idle) => Present::Idle,
        };
        page.waiting = waiting.kept;
        page.runs = runs.iter().map(|trace| trace.as_ref().clone()).collect();
        page
    }
}

impl State {
    fn clean(&mut self, key: &ObjectKey) {
        if self.keys.get(key).is_some_and(Live::is_empty) {
            self.keys.remove(key);
            // The memory of many keys is given back.
            if self.keys.is_empty() && self.keys.capacity() > FEW_WAITING {
                self.keys = HashMap::new();
            }
        }
        self.overflowed &= !self.keys.is_empty();
    }
}

/// The tracers of a manager's controllers, by name.
pub(super) type Tracers = BTreeMap<String, Arc<Tracer>>;

#[cfg(test)]
mod tests;
