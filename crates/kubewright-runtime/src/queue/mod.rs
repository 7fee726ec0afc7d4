//! The work queue: keys that wait to be reconciled.
//!
//! [`Queue`] is a state machine: it does no I/O, draws no randomness and is told the time; [`SharedQueue`] puts it between
//! tasks. It guarantees that
//! * a key that was added is handed out after that, once however often it was added;
//! * a key is never handed out while it is being worked on: what comes meanwhile is remembered;
//! * a higher priority goes first, and within a priority the key that became ready first;
//! * every operation is of logarithmic cost, also with a million scheduled keys.
//!
//! Its terms are those of Kubernetes' controllers, with two differences. A key that is handed out loses its pending
//! delays: the run's own outcome says when to look again. And a delay may end at a time of the wall clock, which is then
//! read anew instead of being converted once, so that a clock that is set is followed.

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

/// The priority of what has just changed.
pub const NORMAL_PRIORITY: i32 = 0;

/// The priority of what a first list shows: behind everything that has just changed.
pub const LOW_PRIORITY: i32 = -100;

/// While a key waits for the wall clock, look at it at least this often: it may be set.
const WALL_CLOCK_CHECK: Duration = Duration::from_secs(10);

/// The time, as the queue is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back.
    pub monotonic: Duration,
    /// May jump.
    pub wall: Timestamp,
}

/// When a key is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After this much monotonic time.
    After(Duration),
    /// When the wall clock shows this time.
    At(Timestamp),
}

/// A key that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key. It is ours until [`Queue::done`] or [`Queue::park`].
    pub key: K,
    /// The priority with which it waited.
    pub priority: i32,
    /// How long it was ready.
    pub waited: Duration,
    /// Only the end of a delay made it ready.
    pub delayed: bool,
    /// How often it has failed since it last succeeded.
    pub failures: u32,
}

/// What the queue does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Idle,
    /// It waits to be handed out.
    Ready,
    /// It is being worked on.
    Working,
    /// It is parked.
    Parked,
    /// It will be ready after this long, as far as that is known now.
    Delayed(Duration),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Queue<K> {
    entries: Entries<K>,
    /// What is ready, best first.
    ready: Ready,
    /// What waits for monotonic time, and for the wall clock. A key may be in both.
    by_delay: BTreeMap<(Duration, u64), usize>,
    by_wall: BTreeMap<(Timestamp, u64), usize>,
    backoff: Backoff,
    working: usize,
    /// How often a key came to be wanted now.
    added: u64,
    /// Numbers everything that waits, so that equals are in the order of their coming.
    sequence: u64,
    closed: bool,
}

/// All that is known of a key. An entry that says nothing is removed.
#[derive(Debug)]
struct Entry<K> {
    key: K,
    hash: u64,
    phase: Phase,
    /// It is wanted. In [`Phase::Idle`] it is therefore among the ready.
    demand: Option<Ticket>,
    /// The ticket of the work under way.
    current: Option<Ticket>,
    delay: Option<(Duration, u64)>,
    wall: Option<(Timestamp, u64)>,
    /// The priority it will be ready with when a delay ends.
    delayed_priority: Option<i32>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Working,
    Parked,
}

/// A place among the ready.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    priority: i32,
    sequence: u64,
    /// When it became ready.
    since: Duration,
    /// A delay has ended, and nothing else wants it.
    delayed: bool,
}

impl Ticket {
    /// The better of both priorities, the earlier of both places.
    fn merge(self, other: Self) -> Self {
        Self {
            priority: self.priority.max(other.priority),
            sequence: self.sequence.min(other.sequence),
            since: self.since.min(other.since),
            delayed: self.delayed && other.delayed,
        }
    }

    fn place(self) -> (i32, u64) {
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
            failures: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.phase == Phase::Idle
            && self.demand.is_none()
            && self.delay.is_none()
            && self.wall.is_none()
            && self.failures == 0
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self::seeded(backoff, 0)
    }

    /// [`Queue::new`], where keys are hashed with a seed. Draw it by lot where strangers choose the keys: they could choose
    /// such as are slow to tell apart. The queue does the same with any seed.
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

    /// Wants a key. Of several wishes the earliest time and the highest priority count. Returns whether the key is wanted
    /// now and wasn't before.
    pub fn add(&mut self, key: K, priority: i32, when: When, now: Now) -> bool {
        if self.closed {
            return false;
        }
        let place = self.entries.place(key);
        match when {
            When::After(delay) if !delay.is_zero() => {
                self.delay(place, priority, now.monotonic.saturating_add(delay));
                false
            }
            When::At(time) if time > now.wall => {
                self.delay_until(place, priority, time);
                false
            }
            _ => self.demand(place, priority, now.monotonic, false),
        }
    }

    /// Hands out the best of the ready keys, if there is one.
    pub fn take(&mut self, now: Now) -> Option<Taken<K>> {
        self.promote(now);
        let place = self.ready.pop()?;
        let entry = self.entries.at_mut(place)?;
        let ticket = entry.demand.take()?;
        entry.phase = Phase::Working;
        entry.current = Some(ticket);
        let (key, failures) = (entry.key.clone(), entry.failures);
        self.working += 1;
        self.forget_delays(place);
        let Ticket { priority, since, delayed, .. } = ticket;
        Some(Taken { key, priority, waited: now.monotonic.saturating_sub(since), delayed, failures })
    }

    /// The work on a key has ended. If it was wanted meanwhile it is ready again.
    pub fn done(&mut self, key: &K) {
        let Some((place, entry)) = self.find(key, Phase::Working) else { return };
        entry.current = None;
        self.working -= 1;
        self.release(place);
    }

    /// The key that was handed out can't be worked on yet. It gives its place back, and isn't handed out again before
    /// [`Queue::unpark`].
    pub fn park(&mut self, key: &K) {
        let Some((_, entry)) = self.find(key, Phase::Working) else { return };
        entry.phase = Phase::Parked;
        entry.demand = [entry.current.take(), entry.demand].into_iter().flatten().reduce(Ticket::merge);
        self.working -= 1;
    }

    /// A parked key is ready, in its old place.
    pub fn unpark(&mut self, key: &K) {
        if let Some((place, _)) = self.find(key, Phase::Parked) {
            self.release(place);
        }
    }

    /// Counts a failure of the key and says how long to wait. `fraction`, from 0 to 1, spreads the delays.
    pub fn back_off(&mut self, key: &K, fraction: f64) -> Duration {
        let place = self.entries.place(key.clone());
        let failures = self.entries.at(place).map_or(0, |entry| entry.failures);
        if let Some(entry) = self.entries.at_mut(place) {
            entry.failures = failures.saturating_add(1);
        }
        self.backoff.delay(failures, fraction)
    }

    /// Forgets the failures of the key: it has succeeded.
    pub fn forget(&mut self, key: &K) {
        let Some(place) = self.entries.find(key) else { return };
        if let Some(entry) = self.entries.at_mut(place) {
            entry.failures = 0;
        }
        self.clean(place);
    }

    /// How long until a delayed key may be ready; zero if one is. `None` if none waits.
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

    /// What becomes of a key.
    pub fn standing(&self, key: &K, now: Now) -> Standing {
        let Some(entry) = self.entries.find(key).and_then(|place| self.entries.at(place)) else {
            return Standing::Idle;
        };
        let delay = entry.delay.map(|(due, _)| due.saturating_sub(now.monotonic));
        let wall = entry.wall.map(|(due, _)| Duration::try_from(due.duration_since(now.wall)).unwrap_or_default());
        match (entry.phase, entry.demand) {
            (Phase::Working, _) => Standing::Working,
            (Phase::Parked, _) => Standing::Parked,
            (Phase::Idle, Some(_)) => Standing::Ready,
            (Phase::Idle, None) => delay.into_iter().chain(wall).min().map_or(Standing::Idle, Standing::Delayed),
        }
    }

    /// Takes no more keys and hands out no more. The work under way goes on.
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

    /// How many keys are ready, by priority, the highest first. Priorities that none has are left out.
    pub fn depths(&self) -> impl Iterator<Item = (i32, usize)> {
        self.ready.depths()
    }

    /// How often a key that wasn't wanted came to be: at once, or when a delay was over.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// How many keys are being worked on.
    pub fn working(&self) -> usize {
        self.working
    }

    /// The entry of a key that is in this phase.
    fn find(&mut self, key: &K, phase: Phase) -> Option<(usize, &mut Entry<K>)> {
        let place = self.entries.find(key)?;
        let entry = self.entries.at_mut(place).filter(|entry| entry.phase == phase)?;
        Some((place, entry))
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Makes a key wanted since `since`; it is ready unless it is worked on or parked.
    fn demand(&mut self, place: usize, priority: i32, since: Duration, delayed: bool) -> bool {
        let ticket = Ticket { priority, sequence: self.next_sequence(), since, delayed };
        let Some(entry) = self.entries.at_mut(place) else { return false };
        let old = entry.demand;
        self.added += u64::from(old.is_none());
        let new = old.map_or(ticket, |old| old.merge(ticket));
        entry.demand = Some(new);
        let is_free = entry.phase == Phase::Idle;
        if is_free && old.map(Ticket::place) != Some(new.place()) {
            if let Some(old) = old {
                self.ready.remove(old, place);
            }
            self.ready.insert(new, place);
        }
        old.is_none()
    }

    fn delay(&mut self, place: usize, priority: i32, due: Duration) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.at_mut(place) else { return };
        entry.delayed_priority = entry.delayed_priority.max(Some(priority));
        match entry.delay {
            Some((known, _)) if known <= due => return,
            Some(later) => {
                self.by_delay.remove(&later);
            }
            None => {}
        }
        entry.delay = Some((due, sequence));
        self.by_delay.insert((due, sequence), place);
    }

    fn delay_until(&mut self, place: usize, priority: i32, time: Timestamp) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.at_mut(place) else { return };
        entry.delayed_priority = entry.delayed_priority.max(Some(priority));
        match entry.wall {
            Some((known, _)) if known <= time => return,
            Some(later) => {
                self.by_wall.remove(&later);
            }
            None => {}
        }
        entry.wall = Some((time, sequence));
        self.by_wall.insert((time, sequence), place);
    }

    /// Makes ready what has waited long enough.
    fn promote(&mut self, now: Now) {
        while let Some(first) = self.by_delay.first_entry().filter(|first| first.key().0 <= now.monotonic) {
            let ((due, _), place) = first.remove_entry();
            self.end_delay(place, due, |entry| entry.delay = None);
        }
        while let Some(first) = self.by_wall.first_entry().filter(|first| first.key().0 <= now.wall) {
            let place = first.remove();
            self.end_delay(place, now.monotonic, |entry| entry.wall = None);
        }
    }

    fn end_delay(&mut self, place: usize, since: Duration, clear: impl FnOnce(&mut Entry<K>)) {
        let Some(entry) = self.entries.at_mut(place) else { return };
        clear(entry);
        let priority = entry.delayed_priority.unwrap_or(NORMAL_PRIORITY);
        if entry.delay.is_none() && entry.wall.is_none() {
            entry.delayed_priority = None;
        }
        self.demand(place, priority, since, true);
    }

    fn forget_delays(&mut self, place: usize) {
        let Some(entry) = self.entries.at_mut(place) else { return };
        entry.delayed_priority = None;
        if let Some(due) = entry.delay.take() {
            self.by_delay.remove(&due);
        }
        if let Some(due) = entry.wall.take() {
            self.by_wall.remove(&due);
        }
    }

    /// Puts a key that is no longer worked on or parked among the ready, if it is wanted.
    fn release(&mut self, place: usize) {
        let Some(entry) = self.entries.at_mut(place) else { return };
        entry.phase = Phase::Idle;
        match entry.demand {
            Some(ticket) => self.ready.insert(ticket, place),
            None => self.clean(place),
        }
    }

    /// Forgets a key of which there is nothing to know.
    fn clean(&mut self, place: usize) {
        if self.entries.at(place).is_some_and(Entry::is_empty) {
            self.entries.remove(place);
        }
    }
}
