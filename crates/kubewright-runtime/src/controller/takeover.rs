//! The takeover of keys from another replica, with the leadership or by sharding: the keys are held until the cache
//! shows the last writes of that replica. The [barrier](super::barrier) does this for the writes of this process.
//!
//! Each kind that the controller reads is listed once, as metadata, for any number of keys; then the cache must catch
//! up with the lists. If it doesn't in time, it is made to list again. Keys are not read live, as by the barrier, since
//! that would take a list for each. If that doesn't help in time either, the round starts over, since the state of the
//! first lists may be unreachable. A round begins when the first acquired key is taken from the queue. Keys acquired
//! during a round wait for the next one, since lists must be requested after the acquisition.
//!
//! A state machine without I/O; the time is an argument.

use std::{collections::BTreeSet, fmt, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::barrier::CATCH_UP_TIMEOUT;
use crate::{object::ObjectKey, shard::Acquired};

/// With more acquisitions than this a round begins even if no key is taken, so that they don't accumulate.
const MAX_PENDING: usize = 16;

/// The time for a forced list, after which the round starts over.
const RELIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The keys of one acquisition.
#[derive(Clone)]
enum AcquiredKeys {
    /// All keys, with the leadership. The first list enqueues them.
    All,
    /// Some keys, by sharding.
    Some(Acquired),
}

impl AcquiredKeys {
    fn contain(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Some(acquired) => acquired(key),
        }
    }
}

/// The acquired keys that are not taken over yet. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Handoff(Arc<Mutex<Vec<AcquiredKeys>>>);

impl Handoff {
    /// Adds all keys.
    pub(super) fn add_all(&self) {
        self.0.lock().push(AcquiredKeys::All);
    }

    /// Adds these keys.
    pub(super) fn add(&self, acquired: Acquired) {
        self.0.lock().push(AcquiredKeys::Some(acquired));
    }

    /// Returns whether a key is held.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.0.lock().iter().any(|keys| keys.contain(key))
    }
}

/// The next step of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do now.
    Wait,
    /// List all kinds, then call [`Takeover::listed`].
    List,
    /// Make the cache list again for the [checks](Takeover::missing) that don't pass.
    Relist,
}

/// The state of a round. It takes over the first `count` acquisitions, those before it began.
enum Round<C> {
    None,
    Listing { count: usize },
    Waiting { count: usize, checks: Vec<C>, deadline: Duration, has_relisted: bool },
}

/// See the [module](self). `C` is the check that the cache has caught up.
pub(super) struct Takeover<C> {
    handoff: Handoff,
    round: Round<C>,
    /// The number of acquisitions that [`Takeover::take_acquired`] has returned.
    returned: usize,
    /// The held keys that were taken from the queue.
    parked: BTreeSet<ObjectKey>,
}

impl<C> fmt::Debug for Takeover<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("parked", &self.parked.len()).finish_non_exhaustive()
    }
}

impl<C> Takeover<C> {
    pub(super) fn new(handoff: Handoff) -> Self {
        Self { handoff, round: Round::None, returned: 0, parked: BTreeSet::new() }
    }

    /// Returns the keys acquired since the last call, which are to be enqueued: their changes until now reached the
    /// former owner.
    pub(super) fn take_acquired(&mut self) -> Vec<Acquired> {
        let pending = self.handoff.0.lock();
        let some = |keys: &AcquiredKeys| if let AcquiredKeys::Some(keys) = keys { Some(keys.clone()) } else { None };
        let acquired = pending.iter().skip(self.returned).filter_map(some).collect();
        self.returned = pending.len();
        acquired
    }

    /// Returns whether a key that was taken from the queue must be parked, until [`Takeover::released`] returns it.
    pub(super) fn park(&mut self, key: &ObjectKey) -> bool {
        let is_held = self.handoff.holds(key);
        if is_held {
            self.parked.insert(key.clone());
        }
        is_held
    }

    /// Returns the next step, each once.
    pub(super) fn step(&mut self, now: Duration) -> Step {
        match &mut self.round {
            Round::None => {
                let count = self.handoff.0.lock().len();
                if self.parked.is_empty() && count <= MAX_PENDING {
                    return Step::Wait;
                }
                self.round = Round::Listing { count };
                Step::List
            }
            Round::Waiting { deadline, has_relisted, .. } if *deadline <= now && !*has_relisted => {
                (*deadline, *has_relisted) = (now.saturating_add(RELIST_TIMEOUT), true);
                Step::Relist
            }
            Round::Waiting { count, deadline, .. } if *deadline <= now => {
                self.round = Round::Listing { count: *count };
                Step::List
            }
            Round::Listing { .. } | Round::Waiting { .. } => Step::Wait,
        }
    }

    /// Continues after the lists, with a check for each.
    pub(super) fn listed(&mut self, checks: Vec<C>, now: Duration) {
        if let Round::Listing { count } = self.round {
            let deadline = now.saturating_add(CATCH_UP_TIMEOUT);
            self.round = Round::Waiting { count, checks, deadline, has_relisted: false };
        }
    }

    /// Starts the round over after the lists were aborted.
    pub(super) fn failed(&mut self) {
        self.round = Round::None;
    }

    /// Returns the checks that have not passed.
    pub(super) fn missing(&self) -> &[C] {
        if let Round::Waiting { checks, .. } = &self.round { checks } else { &[] }
    }

    /// Returns the keys to unpark, once all checks pass.
    pub(super) fn released(&mut self, mut passes: impl FnMut(&mut C) -> bool) -> Option<BTreeSet<ObjectKey>> {
        let Round::Waiting { count, checks, .. } = &mut self.round else { return None };
        checks.retain_mut(|check| !passes(check));
        if !checks.is_empty() {
            return None;
        }
        self.handoff.0.lock().drain(..*count);
        self.returned = self.returned.saturating_sub(*count);
        self.round = Round::None;
        let (held, parked) = mem::take(&mut self.parked).into_iter().partition(|key| self.handoff.holds(key));
        self.parked = held;
        Some(parked)
    }

    /// Returns the time of the next step.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.round {
            Round::Waiting { deadline, .. } => Some(deadline),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::ZERO;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster(name)
    }

    fn starting_with(prefix: &'static str) -> Acquired {
        Arc::new(move |key| key.name().starts_with(prefix))
    }

    fn released(takeover: &mut Takeover<u64>, seen: u64) -> Option<Vec<String>> {
        let released = takeover.released(|version| *version <= seen);
        released.map(|keys| keys.iter().map(|key| key.name().to_owned()).collect())
    }

    #[test]
    fn no_key_is_held_without_an_acquisition() {
        let mut takeover = Takeover::<u64>::new(Handoff::default());
        assert!(!takeover.park(&key("a")));
        assert_eq!((takeover.step(T0), released(&mut takeover, 9)), (Step::Wait, None));
    }

    #[test]
    fn all_keys_wait_until_the_cache_has_caught_up_with_one_list() {
        let handoff = Handoff::default();
        handoff.add_all();
        let mut takeover = Takeover::new(handoff);
        assert_eq!(takeover.step(T0), Step::Wait, "no key was taken");
        assert!(takeover.take_acquired().is_empty(), "the first list enqueues them");
        assert!(takeover.park(&key("a")) && takeover.park(&key("b")));
        assert_eq!((takeover.step(T0), takeover.step(T0)), (Step::List, Step::Wait));
        assert!(takeover.park(&key("c")));
        assert_eq!(released(&mut takeover, 9), None, "there are no checks yet");
        takeover.listed(vec![5, 7], T0);
        assert_eq!((released(&mut takeover, 6), takeover.missing()), (None, &[7][..]));
        assert_eq!(released(&mut takeover, 7), Some(["a", "b", "c"].map(String::from).into()));
        assert!(!takeover.park(&key("a")) && takeover.next_deadline().is_none());
    }

    #[test]
    fn after_a_timeout_the_cache_lists_again_and_then_the_round_starts_over() {
        let handoff = Handoff::default();
        handoff.add_all();
        let mut takeover = Takeover::new(handoff);
        takeover.park(&key("a"));
        takeover.step(T0);
        takeover.listed(vec![7], T0);
        assert_eq!(takeover.next_deadline(), Some(CATCH_UP_TIMEOUT));
        assert_eq!(takeover.step(CATCH_UP_TIMEOUT - Duration::from_millis(1)), Step::Wait);
        assert_eq!((takeover.step(CATCH_UP_TIMEOUT), takeover.step(CATCH_UP_TIMEOUT)), (Step::Relist, Step::Wait));
        assert!(takeover.park(&key("b")));
        let again = CATCH_UP_TIMEOUT + RELIST_TIMEOUT;
        assert_eq!(takeover.next_deadline(), Some(again));
        assert_eq!((takeover.step(again), takeover.step(again)), (Step::List, Step::Wait));
        // The versions of the first lists may be unreachable, as after a restore of etcd.
        takeover.listed(vec![3], again);
        assert_eq!(released(&mut takeover, 3).map(|keys| keys.len()), Some(2));
    }

    /// A list that was requested before a key was acquired may lack the last writes of its former owner.
    #[test]
    fn keys_acquired_during_a_round_wait_for_the_next() {
        let handoff = Handoff::default();
        let mut takeover = Takeover::new(handoff.clone());
        handoff.add(starting_with("a"));
        assert_eq!((takeover.take_acquired().len(), takeover.take_acquired().len()), (1, 0));
        assert!(takeover.park(&key("a1")) && !takeover.park(&key("b1")));
        assert_eq!(takeover.step(T0), Step::List);
        handoff.add(starting_with("b"));
        assert_eq!(takeover.take_acquired().len(), 1);
        assert!(takeover.park(&key("b1")));
        takeover.listed(vec![3], T0);
        assert_eq!(released(&mut takeover, 3), Some(vec!["a1".into()]));
        assert!(takeover.take_acquired().is_empty() && !takeover.park(&key("a1")));
        assert_eq!(takeover.step(T0), Step::List);
        takeover.listed(vec![], T0);
        assert_eq!(released(&mut takeover, 3), Some(vec!["b1".into()]));
    }

    #[test]
    fn aborted_lists_are_repeated_and_acquisitions_do_not_accumulate() {
        let handoff = Handoff::default();
        let mut takeover = Takeover::<u64>::new(handoff.clone());
        (0..=MAX_PENDING).for_each(|_| handoff.add(starting_with("a")));
        assert_eq!(takeover.step(T0), Step::List);
        takeover.failed();
        assert_eq!(takeover.step(T0), Step::List);
        takeover.listed(vec![], T0);
        assert_eq!(released(&mut takeover, 0), Some(vec![]));
        assert!(handoff.0.lock().is_empty());
    }
}
