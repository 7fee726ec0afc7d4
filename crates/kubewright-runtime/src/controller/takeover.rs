//! Keys that come from another replica, with the leadership or by sharding: they are held until the cache is as new as what
//! that replica wrote last. Read-your-writes knows only this process's writes; this is the same for a predecessor's.
//!
//! Whatever the number of keys, each kind that the controller reads is listed once, as metadata, and the cache is waited for to
//! come as far. A cache that doesn't in time is made to list anew; it is not read past, as the [barrier](super::barrier) does,
//! since that would be a list for each key. If that doesn't help in time either, the round begins again: what the first lists
//! showed may be what can't be reached. A round begins when the first such key is wanted. Keys gained while it is under way
//! are the next one's: what is listed must be asked for after they were gained.
//!
//! A state machine: no I/O, the time is passed in.

use std::{collections::BTreeSet, fmt, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::barrier::PATIENCE;
use crate::{object::ObjectKey, shard::Gained};

/// With more gains than this a round begins though no key is wanted, so that they don't pile up.
const MANY: usize = 16;

/// How long a cache that was made to list has for it before the round begins again.
const FORCED_PATIENCE: Duration = Duration::from_secs(30);

/// Keys that were gained.
#[derive(Clone)]
enum Gain {
    /// All, with the leadership. They are wanted already.
    All,
    /// Some, by sharding.
    Of(Gained),
}

impl Gain {
    fn covers(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Of(gained) => gained(key),
        }
    }
}

/// What was gained and isn't taken over yet, for those who gain it. Clones are one.
#[derive(Clone, Default)]
pub(super) struct Gains(Arc<Mutex<Vec<Gain>>>);

impl Gains {
    /// Holds all keys.
    pub(super) fn all(&self) {
        self.0.lock().push(Gain::All);
    }

    /// Holds these keys.
    pub(super) fn some(&self, gained: Gained) {
        self.0.lock().push(Gain::Of(gained));
    }

    /// Whether a key must wait.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.0.lock().iter().any(|gain| gain.covers(key))
    }
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, but perhaps later.
    Wait,
    /// List all kinds.
    List,
    /// The cache doesn't come: it must list anew, to show [what is missing](Takeover::missing).
    Force,
}

/// How far a round is. It takes over as many gains as there were when it began: the first ones.
enum Round<P> {
    None,
    Listing { gains: usize },
    Waiting { gains: usize, proofs: Vec<P>, deadline: Duration, is_forced: bool },
}

/// See the [module](self). `P` is what proves that the cache shows enough.
pub(super) struct Takeover<P> {
    gains: Gains,
    round: Round<P>,
    /// How many of the gains were told of by [`Takeover::gained`].
    told: usize,
    /// The keys that were wanted meanwhile.
    parked: BTreeSet<ObjectKey>,
}

impl<P> fmt::Debug for Takeover<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("parked", &self.parked.len()).finish_non_exhaustive()
    }
}

impl<P> Takeover<P> {
    pub(super) fn new(gains: Gains) -> Self {
        Self { gains, round: Round::None, told: 0, parked: BTreeSet::new() }
    }

    /// What was gained since the last call, and is to be wanted: what has happened to it, happened to its former owner.
    pub(super) fn gained(&mut self) -> Vec<Gained> {
        let gains = self.gains.0.lock();
        let some = |gain: &Gain| if let Gain::Of(gained) = gain { Some(gained.clone()) } else { None };
        let gained = gains.iter().skip(self.told).filter_map(some).collect();
        self.told = gains.len();
        gained
    }

    /// Whether a key that was taken from the queue must be parked, until [`Takeover::released`] gives it back.
    pub(super) fn park(&mut self, key: &ObjectKey) -> bool {
        let is_held = self.gains.holds(key);
        if is_held {
            self.parked.insert(key.clone());
        }
        is_held
    }

    /// What to do next. It is said once.
    pub(super) fn step(&mut self, now: Duration) -> Step {
        match &mut self.round {
            Round::None => {
                let gains = self.gains.0.lock().len();
                if self.parked.is_empty() && gains <= MANY {
                    return Step::Wait;
                }
                self.round = Round::Listing { gains };
                Step::List
            }
            Round::Waiting { deadline, is_forced, .. } if *deadline <= now && !*is_forced => {
                (*deadline, *is_forced) = (now.saturating_add(FORCED_PATIENCE), true);
                Step::Force
            }
            Round::Waiting { gains, deadline, .. } if *deadline <= now => {
                self.round = Round::Listing { gains: *gains };
                Step::List
            }
            Round::Listing { .. } | Round::Waiting { .. } => Step::Wait,
        }
    }

    /// The lists have come.
    pub(super) fn listed(&mut self, proofs: Vec<P>, now: Duration) {
        if let Round::Listing { gains } = self.round {
            self.round = Round::Waiting { gains, proofs, deadline: now.saturating_add(PATIENCE), is_forced: false };
        }
    }

    /// The lists were cut off: they are to be asked for again.
    pub(super) fn failed(&mut self) {
        self.round = Round::None;
    }

    /// What the cache doesn't show yet.
    pub(super) fn missing(&self) -> &[P] {
        if let Round::Waiting { proofs, .. } = &self.round { proofs } else { &[] }
    }

    /// The keys that may be taken again, when the cache has come far enough.
    pub(super) fn released(&mut self, mut is_shown: impl FnMut(&mut P) -> bool) -> Option<BTreeSet<ObjectKey>> {
        let Round::Waiting { gains, proofs, .. } = &mut self.round else { return None };
        proofs.retain_mut(|proof| !is_shown(proof));
        if !proofs.is_empty() {
            return None;
        }
        self.gains.0.lock().drain(..*gains);
        self.told = self.told.saturating_sub(*gains);
        self.round = Round::None;
        let (held, parked) = mem::take(&mut self.parked).into_iter().partition(|key| self.gains.holds(key));
        self.parked = held;
        Some(parked)
    }

    /// When patience ends.
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

    fn starting_with(prefix: &'static str) -> Gained {
        Arc::new(move |key| key.name().starts_with(prefix))
    }

    fn released(takeover: &mut Takeover<u64>, seen: u64) -> Option<Vec<String>> {
        let released = takeover.released(|version| *version <= seen);
        released.map(|keys| keys.iter().map(|key| key.name().to_owned()).collect())
    }

    #[test]
    fn nothing_gained_holds_nothing() {
        let mut takeover = Takeover::<u64>::new(Gains::default());
        assert!(!takeover.park(&key("a")));
        assert_eq!((takeover.step(T0), released(&mut takeover, 9)), (Step::Wait, None));
    }

    #[test]
    fn all_keys_wait_for_one_list_and_until_it_is_shown() {
        let gains = Gains::default();
        gains.all();
        let mut takeover = Takeover::new(gains);
        assert_eq!(takeover.step(T0), Step::Wait, "nobody wants anything");
        assert!(takeover.gained().is_empty(), "what wants them is the cache's first list");
        assert!(takeover.park(&key("a")) && takeover.park(&key("b")));
        assert_eq!((takeover.step(T0), takeover.step(T0)), (Step::List, Step::Wait));
        assert!(takeover.park(&key("c")));
        assert_eq!(released(&mut takeover, 9), None, "it isn't known yet what to wait for");
        takeover.listed(vec![5, 7], T0);
        assert_eq!((released(&mut takeover, 6), takeover.missing()), (None, &[7][..]));
        assert_eq!(released(&mut takeover, 7), Some(["a", "b", "c"].map(String::from).into()));
        assert!(!takeover.park(&key("a")) && takeover.next_deadline().is_none());
    }

    #[test]
    fn patience_ends_in_a_forced_list_and_then_in_another_round() {
        let gains = Gains::default();
        gains.all();
        let mut takeover = Takeover::new(gains);
        takeover.park(&key("a"));
        takeover.step(T0);
        takeover.listed(vec![7], T0);
        assert_eq!(takeover.next_deadline(), Some(PATIENCE));
        assert_eq!(takeover.step(PATIENCE - Duration::from_millis(1)), Step::Wait);
        assert_eq!((takeover.step(PATIENCE), takeover.step(PATIENCE)), (Step::Force, Step::Wait));
        assert!(takeover.park(&key("b")));
        let again = PATIENCE + FORCED_PATIENCE;
        assert_eq!(takeover.next_deadline(), Some(again));
        assert_eq!((takeover.step(again), takeover.step(again)), (Step::List, Step::Wait));
        // The versions that the first lists showed may never be reached, as after a restore of etcd.
        takeover.listed(vec![3], again);
        assert_eq!(released(&mut takeover, 3).map(|keys| keys.len()), Some(2));
    }

    /// A list that was under way when a key was gained may lack what its owner wrote last.
    #[test]
    fn keys_gained_meanwhile_wait_for_the_next_list() {
        let gains = Gains::default();
        let mut takeover = Takeover::new(gains.clone());
        gains.some(starting_with("a"));
        assert_eq!((takeover.gained().len(), takeover.gained().len()), (1, 0));
        assert!(takeover.park(&key("a1")) && !takeover.park(&key("b1")));
        assert_eq!(takeover.step(T0), Step::List);
        gains.some(starting_with("b"));
        assert_eq!(takeover.gained().len(), 1);
        assert!(takeover.park(&key("b1")));
        takeover.listed(vec![3], T0);
        assert_eq!(released(&mut takeover, 3), Some(vec!["a1".into()]));
        assert!(takeover.gained().is_empty() && !takeover.park(&key("a1")));
        assert_eq!(takeover.step(T0), Step::List);
        takeover.listed(vec![], T0);
        assert_eq!(released(&mut takeover, 3), Some(vec!["b1".into()]));
    }

    #[test]
    fn lists_that_were_cut_off_are_asked_for_again_and_gains_do_not_pile_up() {
        let gains = Gains::default();
        let mut takeover = Takeover::<u64>::new(gains.clone());
        (0..=MANY).for_each(|_| gains.some(starting_with("a")));
        assert_eq!(takeover.step(T0), Step::List);
        takeover.failed();
        assert_eq!(takeover.step(T0), Step::List);
        takeover.listed(vec![], T0);
        assert_eq!(released(&mut takeover, 0), Some(vec![]));
        assert!(gains.0.lock().is_empty());
    }
}
