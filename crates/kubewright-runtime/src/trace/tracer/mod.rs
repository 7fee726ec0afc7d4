//! The tracer of one controller: the state of its keys and their traces.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    ControllerPage, End, KeyPage, Limits, Next, Phase, Present, Reason, RunNotes, Summary, Trace, Trigger, VERSION,
    recorder::cut,
    ring::Ring,
    triggers::{NewTrigger, ObservedChange, Triggers},
};
use crate::{
    object::ObjectKey,
    queue::{KeyState, LOW_PRIORITY, Now, Taken},
};

/// The maximum number of waiting keys for which triggers are kept. Further keys run as usual, with [`Reason::Unknown`].
const MOST_WAITING: usize = 10_000;

/// The state of its controller that a tracer reads.
pub(crate) trait Surroundings: Send + Sync {
    fn now(&self) -> Now;

    /// Returns whether the cache has the object.
    fn exists(&self, key: &ObjectKey) -> bool;

    /// Returns the state of the key in the queue.
    fn standing(&self, key: &ObjectKey) -> KeyState;

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
/// While the tracer's lock is held, no other lock is taken, no method of [`Surroundings`] is called, and no objects are
/// compared, because every event and every worker takes this lock.
pub(crate) struct Tracer {
    controller: Arc<str>,
    kind: Cow<'static, str>,
    group: Cow<'static, str>,
    workers: usize,
    surroundings: Box<dyn Surroundings>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    runs: u64,
    failures: u64,
    /// The waiting and running keys, usually few.
    keys: BTreeMap<ObjectKey, Live>,
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
        surroundings: Box<dyn Surroundings>,
    ) -> Self {
        let state = State {
            phase: Phase::Standby,
            runs: 0,
            failures: 0,
            keys: BTreeMap::new(),
            overflowed: false,
            ring: Ring::new(limits),
        };
        Self { controller: controller.into(), kind, group, workers, surroundings, state: Mutex::new(state) }
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
        Trigger { fields: change.fields(), ..change.trigger() }.into()
    }

    /// Records a trigger of a key and its time. Call it while holding the queue's lock under which the key is added.
    pub(crate) fn wanted(&self, key: &ObjectKey, trigger: impl Into<NewTrigger>, at: Timestamp) {
        let NewTrigger { trigger, difference } = trigger.into();
        // A key that is taken without a trigger and has not waited for a timer comes from the first list.
        if trigger.reason == Reason::InitialList {
            return;
        }
        let State { keys, overflowed, .. } = &mut *self.state.lock();
        if keys.len() >= MOST_WAITING && !keys.contains_key(key) {
            *overflowed = true;
            return;
        }
        let waiting = &mut keys.entry(key.clone()).or_default().waiting;
        waiting.add(NewTrigger { trigger: trigger.at(at), difference });
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
            triggers.add(Trigger::new(reason).at(now.wall).into());
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
        let trace = self.trace(begun, ended, notes, end, next);
        let mut state = self.state.lock();
        state.runs += 1;
        state.failures += u64::from(trace.end != End::Done);
        if let Some(live) = state.keys.get_mut(&trace.object) {
            live.running = None;
        }
        state.clean(&trace.object);
        state.ring.push(Arc::new(trace));
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
        Trace {
            controller: self.controller.clone(),
            kind: self.kind.clone(),
            object: key,
            id,
            attempt,
            started: started.wall,
            duration: ended.saturating_sub(started.monotonic),
            queued,
            held,
            triggers: triggers.kept,
            more_triggers: triggers.more,
            reads: notes.reads,
            more_reads: notes.more_reads,
            writes: notes.writes,
            more_writes: notes.more_writes,
            events: notes.events,
            more_events: notes.more_events,
            end,
            next,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        // These take the queue's lock, so the tracer's must not be held.
        let (ready, missing) = (self.surroundings.ready(), self.surroundings.missing());
        let state = self.state.lock();
        let count = |is: fn(&Live) -> bool| state.keys.values().filter(|live| is(live)).count();
        Summary {
            name: self.controller.to_string(),
            kind: self.kind.clone(),
            group: self.group.clone(),
            phase: state.phase,
            missing: if state.phase == Phase::Syncing { missing } else { Vec::new() },
            workers: self.workers,
            ready,
            held: count(|live| live.held.is_some()),
            running: count(|live| live.running.is_some()),
            runs: state.runs,
            failures: state.failures,
            kept: state.ring.len(),
            keys: state.ring.keys(),
            bytes: state.ring.bytes(),
            displaced: state.ring.displaced(),
        }
    }

    pub(super) fn last(&self, most: usize) -> Vec<Arc<Trace>> {
        self.state.lock().ring.last(most)
    }

    pub(super) fn of(&self, key: &ObjectKey) -> Vec<Arc<Trace>> {
        self.state.lock().ring.of(key)
    }

    pub(super) fn page(&self, most: usize) -> ControllerPage {
        let runs = self.last(most).iter().map(|trace| trace.as_ref().clone()).collect();
        ControllerPage { version: VERSION, time: self.surroundings.now().wall, controller: self.summary(), runs }
    }

    pub(super) fn key(&self, key: &ObjectKey) -> KeyPage {
        let (now, exists, standing) =
            (self.surroundings.now(), self.surroundings.exists(key), self.surroundings.standing(key));
        let is_ours = self.surroundings.is_ours(key);
        let controller = self.summary();
        let (running, held, mut waiting, runs) = {
            let state = self.state.lock();
            let live = state.keys.get(key);
            let waiting = live.map(|live| live.waiting.clone()).unwrap_or_default();
            let running = live.and_then(|live| live.running.clone());
            (running, live.and_then(|live| live.held), waiting, state.ring.of(key))
        };
        waiting.settle();
        let present = match (running, held, standing) {
            (Some((since, id)), _, _) => Present::Running { since, id },
            (None, Some(since), KeyState::Parked) => Present::Held { since: since.wall },
            (None, ..) if !is_ours => Present::Elsewhere,
            (None, _, KeyState::Ready | KeyState::Parked | KeyState::Working) => Present::Ready,
            (None, _, KeyState::Delayed(left)) => Present::Delayed { left },
            (None, _, KeyState::Idle) => Present::Idle,
        };
        KeyPage {
            version: VERSION,
            time: now.wall,
            controller,
            object: key.clone(),
            exists,
            present,
            waiting: waiting.kept,
            runs: runs.iter().map(|trace| trace.as_ref().clone()).collect(),
        }
    }
}

impl State {
    fn clean(&mut self, key: &ObjectKey) {
        if self.keys.get(key).is_some_and(Live::is_empty) {
            self.keys.remove(key);
        }
        self.overflowed &= !self.keys.is_empty();
    }
}

/// The tracers of a manager's controllers, by name.
pub(super) type Tracers = BTreeMap<String, Arc<Tracer>>;

#[cfg(test)]
mod tests;
