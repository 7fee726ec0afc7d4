//! The work queue of a controller: the keys that wait to be reconciled.
//!
//! [`Queue`] is a state machine without I/O and randomness, to which the time is an argument; [`SharedQueue`] shares it
//! between tasks. It guarantees that
//! * a key that was added is handed out afterwards, once for any number of additions;
//! * a key is never handed out while it is being processed: additions meanwhile are kept;
//! * keys with a higher priority come first, and within a priority those that became ready first;
//! * every operation takes logarithmic time, also with a million scheduled keys.
//!
//! It follows client-go's work queue, with three differences. Additions can be debounced. A key that is handed out
//! loses its pending delays: the result of its run determines when it runs again. And a delay may end at a time of the
//! wall clock, which is compared with the clock each time and not converted to a duration once, so that a changed clock
//! is followed.

mod backoff;
mod entries;
#[cfg(test)]
mod interleavings;
mod ready;
mod shared;
mod sync;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, hash::Hash, time::Duration};

use jiff::Timestamp;

pub use self::{backoff::Backoff, shared::SharedQueue};
use self::{entries::Entries, ready::Ready};

/// The priority of a key whose object has changed.
pub const NORMAL_PRIORITY: i32 = 0;

/// The priority of a key from a first list or a resync: behind all keys whose objects have changed.
pub const LOW_PRIORITY: i32 = -100;

/// The interval at which the wall clock is checked while a key waits for it: it may be set.
const WALL_CLOCK_CHECK: Duration = Duration::from_secs(10);

/// The current time, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back.
    pub monotonic: Duration,
    /// May jump.
    pub wall: Timestamp,
}

/// The time at which a key becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After this much monotonic time.
    After(Duration),
    /// When the wall clock shows this time.
    At(Timestamp),
    /// When the key hasn't been added in this way for a while.
    Debounced(Debounce),
}

/// A delay that each further addition extends, up to a limit. The run that follows belongs to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    /// The delay after the last addition.
    pub quiet: Duration,
    /// The longest delay after the first one.
    pub longest: Duration,
}

/// A key that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key. It is not handed out again before [`Queue::done`] or [`Queue::unpark`].
    pub key: K,
    /// Its priority.
    pub priority: i32,
    /// The time for which it was ready.
    pub waited: Duration,
    /// Whether nothing but the end of a delay made it ready.
    pub delayed: bool,
    /// The number of failures since its last success.
    pub failures: u32,
}

/// The state of a key in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It doesn't wait for anything.
    Idle,
    /// It is ready to be handed out.
    Ready,
    /// It is being processed.
    Working,
    /// It is parked.
    Parked,
    /// It will be ready after this duration, by the current clocks.
    Delayed(Duration),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Queue<K> {
    entries: Entries<K>,
    /// The ready keys, in the order in which they are handed out.
    ready: Ready,
    /// The keys that wait for monotonic time, and those that wait for the wall clock. A key may be in both.
    by_delay: BTreeMap<(Duration, u64), usize>,
    by_wall: BTreeMap<(Timestamp, u64), usize>,
    backoff: Backoff,
    working: usize,
    /// The number of times that a key became ready or pending.
    added: u64,
    /// Numbers additions, so that keys of equal priority keep their order.
    sequence: u64,
    closed: bool,
}

/// The state of a key. An empty entry is removed.
#[derive(Debug)]
struct Entry<K> {
    key: K,
    hash: u64,
    phase: Phase,
    /// The position of its next run, if it is to run. In [`Phase::Idle`] it is among the ready keys.
    demand: Option<ReadyPosition>,
    /// The position of the current run.
    current: Option<ReadyPosition>,
    delay: Option<(Duration, u64)>,
    wall: Option<(Timestamp, u64)>,
    /// The priority that it will have when a delay ends.
    delayed_priority: Option<i32>,
    /// A delay from additions that are not over yet. It is among those by monotonic time too.
    burst: Option<Burst>,
    failures: u32,
}

/// Additions that follow each other.
#[derive(Clone, Copy, Debug)]
struct Burst {
    first: Duration,
    due: (Duration, u64),
    priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Working,
    Parked,
}

/// A position among the ready keys.
#[derive(Clone, Copy, Debug)]
struct ReadyPosition {
    priority: i32,
    sequence: u64,
    /// When it became ready.
    since: Duration,
    /// Whether only the end of a delay made it ready.
    delayed: bool,
}

impl ReadyPosition {
    /// Returns the higher of both priorities with the earlier of both positions.
    fn merge(self, other: Self) -> Self {
        Self {
            priority: self.priority.max(other.priority),
            sequence: self.sequence.min(other.sequence),
            since: self.since.min(other.since),
            delayed: self.delayed && other.delayed,
        }
    }

    fn order(self) -> (i32, u64) {
        (self.priority, self.sequence)
    }
}

impl<K> Entry<K> {
    fn new(key: K, hash: u64) -> Self {
        Self {
            key,
            hash,
            phase: Phase::Idle,
            demand: None,
            current: None,
            delay: None,
            wall: None,
            delayed_priority: None,
            burst: None,
            failures: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.phase == Phase::Idle
            && self.demand.is_none()
            && self.delay.is_none()
            && self.wall.is_none()
            && self.burst.is_none()
            && self.failures == 0
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Returns an empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self::seeded(backoff, 0)
    }

    /// [`Queue::new`] with a seed for the hashes of keys. Use a random one where untrusted users choose the keys, since
    /// they could choose keys that collide. The seed has no other effect.
    pub fn seeded(backoff: Backoff, seed: u64) -> Self {
        Self {
            entries: Entries::new(seed),
            ready: Ready::default(),
            by_delay: BTreeMap::new(),
            by_wall: BTreeMap::new(),
            backoff,
            working: 0,
            added: 0,
            sequence: 0,
            closed: false,
        }
    }

    /// Adds a key. Of several additions the earliest time and the highest priority count. Returns whether the key is to
    /// run now and was not before.
    pub fn add(&mut self, key: K, priority: i32, when: When, now: Now) -> bool {
        if self.closed {
            return false;
        }
        let slot = self.entries.slot(key);
        match when {
            When::After(delay) if !delay.is_zero() => {
                self.delay(slot, priority, now.monotonic.saturating_add(delay));
                false
            }
            When::At(time) if time > now.wall => {
                self.delay_until(slot, priority, time);
                false
            }
            When::Debounced(debounce) if !debounce.quiet.is_zero() => {
                self.debounce(slot, priority, debounce, now.monotonic);
                false
            }
            _ => self.demand(slot, priority, now.monotonic, false),
        }
    }

    /// Hands out the next ready key, if there is one.
    pub fn take(&mut self, now: Now) -> Option<Taken<K>> {
        self.promote(now);
        let slot = self.ready.pop()?;
        let entry = self.entries.at_mut(slot)?;
        let position = entry.demand.take()?;
        entry.phase = Phase::Working;
        entry.current = Some(position);
        let (key, failures) = (entry.key.clone(), entry.failures);
        self.working += 1;
        self.forget_delays(slot);
        let ReadyPosition { priority, since, delayed, .. } = position;
        Some(Taken { key, priority, waited: now.monotonic.saturating_sub(since), delayed, failures })
    }

    /// Ends the processing of a key. If it was added meanwhile, it is ready again.
    pub fn done(&mut self, key: &K) {
        let Some((slot, entry)) = self.find(key, Phase::Working) else { return };
        entry.current = None;
        self.working -= 1;
        self.release(slot);
    }

    /// Returns a key that was handed out and can't be processed yet. It is not handed out again before
    /// [`Queue::unpark`].
    pub fn park(&mut self, key: &K) {
        let Some((_, entry)) = self.find(key, Phase::Working) else { return };
        entry.phase = Phase::Parked;
        entry.demand = [entry.current.take(), entry.demand].into_iter().flatten().reduce(ReadyPosition::merge);
        self.working -= 1;
    }

    /// Makes a parked key ready, in its old position.
    pub fn unpark(&mut self, key: &K) {
        if let Some((slot, _)) = self.find(key, Phase::Parked) {
            self.release(slot);
        }
    }

    /// Counts a failure of the key and returns the delay before its retry. `fraction`, from 0 to 1, is the jitter.
    pub fn back_off(&mut self, key: &K, fraction: f64) -> Duration {
        let slot = self.entries.slot(key.clone());
        let failures = self.entries.at(slot).map_or(0, |entry| entry.failures);
        if let Some(entry) = self.entries.at_mut(slot) {
            entry.failures = failures.saturating_add(1);
        }
        self.backoff.delay(failures, fraction)
    }

    /// Resets the failures of the key.
    pub fn forget(&mut self, key: &K) {
        let Some(slot) = self.entries.find(key) else { return };
        if let Some(entry) = self.entries.at_mut(slot) {
            entry.failures = 0;
        }
        self.clean(slot);
    }

    /// Returns the time until a delayed key may be ready; zero if a key is ready, `None` if none waits.
    pub fn next_wake(&self, now: Now) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let delay = self.by_delay.first_key_value().map(|((due, _), _)| due.saturating_sub(now.monotonic));
        let wall = self.by_wall.first_key_value().map(|((due, _), _)| {
            let left = Duration::try_from(due.duration_since(now.wall)).unwrap_or_default();
            left.min(WALL_CLOCK_CHECK)
        });
        delay.into_iter().chain(wall).min()
    }

    /// Returns the state of a key.
    pub fn key_state(&self, key: &K, now: Now) -> KeyState {
        let Some(entry) = self.entries.find(key).and_then(|slot| self.entries.at(slot)) else {
            return KeyState::Idle;
        };
        let delay = [entry.delay, entry.burst.map(|burst| burst.due)].into_iter().flatten().min();
        let delay = delay.map(|(due, _)| due.saturating_sub(now.monotonic));
        let wall = entry.wall.map(|(due, _)| Duration::try_from(due.duration_since(now.wall)).unwrap_or_default());
        match (entry.phase, entry.demand) {
            (Phase::Working, _) => KeyState::Working,
            (Phase::Parked, _) => KeyState::Parked,
            (Phase::Idle, Some(_)) => KeyState::Ready,
            (Phase::Idle, None) => delay.into_iter().chain(wall).min().map_or(KeyState::Idle, KeyState::Delayed),
        }
    }

    /// Stops accepting and handing out keys. Keys that are being processed stay until they are done.
    pub fn close(&mut self) {
        self.closed = true;
        self.ready.clear();
        self.by_delay.clear();
        self.by_wall.clear();
        self.entries.retain(|entry| {
            let stays = entry.phase == Phase::Working;
            if stays {
                *entry = Entry { phase: entry.phase, ..Entry::new(entry.key.clone(), entry.hash) };
            }
            stays
        });
    }

    /// Returns the number of ready keys by priority, the highest first. Priorities without keys are left out.
    pub fn depths(&self) -> impl Iterator<Item = (i32, usize)> {
        self.ready.depths()
    }

    /// Returns the number of times that a key was to run and was not before: on an addition, or at the end of a delay.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Returns the number of keys that are being processed.
    pub fn working(&self) -> usize {
        self.working
    }

    /// Returns the entry of a key, if it is in this phase.
    fn find(&mut self, key: &K, phase: Phase) -> Option<(usize, &mut Entry<K>)> {
        let slot = self.entries.find(key)?;
        let entry = self.entries.at_mut(slot).filter(|entry| entry.phase == phase)?;
        Some((slot, entry))
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Makes a key run, counted from `since`; it is ready unless it is being processed or parked.
    fn demand(&mut self, slot: usize, priority: i32, since: Duration, delayed: bool) -> bool {
        let position = ReadyPosition { priority, sequence: self.next_sequence(), since, delayed };
        let Some(entry) = self.entries.at_mut(slot) else { return false };
        let old = entry.demand;
        self.added += u64::from(old.is_none());
        let new = old.map_or(position, |old| old.merge(position));
        entry.demand = Some(new);
        let is_free = entry.phase == Phase::Idle;
        if is_free && old.map(ReadyPosition::order) != Some(new.order()) {
            if let Some(old) = old {
                self.ready.remove(old, slot);
            }
            self.ready.insert(new, slot);
        }
        old.is_none()
    }

    fn delay(&mut self, slot: usize, priority: i32, due: Duration) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.at_mut(slot) else { return };
        entry.delayed_priority = entry.delayed_priority.max(Some(priority));
        match entry.delay {
            Some((known, _)) if known <= due => return,
            Some(later) => {
                self.by_delay.remove(&later);
            }
            None => {}
        }
        entry.delay = Some((due, sequence));
        self.by_delay.insert((due, sequence), slot);
    }

    fn delay_until(&mut self, slot: usize, priority: i32, time: Timestamp) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.at_mut(slot) else { return };
        entry.delayed_priority = entry.delayed_priority.max(Some(priority));
        match entry.wall {
            Some((known, _)) if known <= time => return,
            Some(later) => {
                self.by_wall.remove(&later);
            }
            None => {}
        }
        entry.wall = Some((time, sequence));
        self.by_wall.insert((time, sequence), slot);
    }

    /// Delays a key until its additions pause. A key that is ready anyway includes the addition.
    fn debounce(&mut self, slot: usize, priority: i32, Debounce { quiet, longest }: Debounce, now: Duration) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.at_mut(slot) else { return };
        if entry.demand.is_some() {
            self.demand(slot, priority, now, false);
            return;
        }
        let known = entry.burst;
        let first = known.map_or(now, |known| known.first);
        let due = (now.saturating_add(quiet).min(first.saturating_add(longest)), sequence);
        entry.burst =
            Some(Burst { first, due, priority: known.map_or(priority, |known| known.priority.max(priority)) });
        if let Some(known) = known {
            self.by_delay.remove(&known.due);
        }
        self.by_delay.insert(due, slot);
    }

    /// Makes keys ready whose delays have ended.
    fn promote(&mut self, now: Now) {
        while let Some(first) = self.by_delay.first_entry().filter(|first| first.key().0 <= now.monotonic) {
            let (due, slot) = first.remove_entry();
            match self.entries.at_mut(slot).and_then(|entry| entry.burst.take_if(|burst| burst.due == due)) {
                Some(burst) => drop(self.demand(slot, burst.priority, due.0, false)),
                None => self.end_delay(slot, due.0, |entry| entry.delay = None),
            }
        }
        while let Some(first) = self.by_wall.first_entry().filter(|first| first.key().0 <= now.wall) {
            let slot = first.remove();
            self.end_delay(slot, now.monotonic, |entry| entry.wall = None);
        }
    }

    fn end_delay(&mut self, slot: usize, since: Duration, clear: impl FnOnce(&mut Entry<K>)) {
        let Some(entry) = self.entries.at_mut(slot) else { return };
        clear(entry);
        let priority = entry.delayed_priority.unwrap_or(NORMAL_PRIORITY);
        if entry.delay.is_none() && entry.wall.is_none() {
            entry.delayed_priority = None;
        }
        self.demand(slot, priority, since, true);
    }

    fn forget_delays(&mut self, slot: usize) {
        let Some(entry) = self.entries.at_mut(slot) else { return };
        entry.delayed_priority = None;
        let delays = [entry.delay.take(), entry.burst.take().map(|burst| burst.due)];
        let wall = entry.wall.take();
        for due in delays.into_iter().flatten() {
            self.by_delay.remove(&due);
        }
        if let Some(due) = wall {
            self.by_wall.remove(&due);
        }
    }

    /// Makes a key that is no longer processed or parked ready, if it was added.
    fn release(&mut self, slot: usize) {
        let Some(entry) = self.entries.at_mut(slot) else { return };
        entry.phase = Phase::Idle;
        match entry.demand {
            Some(position) => self.ready.insert(position, slot),
            None => self.clean(slot),
        }
    }

    /// Removes a key's entry if it is empty.
    fn clean(&mut self, slot: usize) {
        if self.entries.at(slot).is_some_and(Entry::is_empty) {
            self.entries.remove(slot);
        }
    }
}
