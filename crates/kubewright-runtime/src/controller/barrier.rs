//! The read-your-writes barrier: a key's next reconcile starts only when the cache shows the writes of the earlier ones
//! (ARCHITECTURE.md, invariant 2). A state machine without I/O; the time is an argument.
//!
//! A key that must wait is parked and takes no worker. If the cache doesn't catch up in time, or if a write was not
//! answered, so that its effect is unknown, the run starts with a live read of the objects that the writes were about.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use crate::{
    cache::{ExpectedState, ObjectSet},
    context::Expectation,
    object::{KindName, ObjectKey},
};

/// The time that a key waits for the cache.
pub(super) const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of keys whose fulfilled expectations are dropped in each round of the loop. Each run takes more than one
/// round and adds at most one key, so expectations don't accumulate.
const SWEEP_BATCH: usize = 8;

/// The time after which a cache that is still behind is made to list again.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// A kind in a namespace, or a cluster-scoped kind.
pub(crate) type Scope = (Arc<KindName>, Option<String>);

/// The objects that a run must read live.
pub(crate) type Stale = BTreeMap<Scope, ObjectSet>;

/// Whether a key may be reconciled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It may, after a live read of these objects.
    Ready { stale: Stale },
    /// It must be parked until [`Barrier::released`] returns it.
    Blocked,
}

/// The barrier's view of the cache.
pub(super) trait CacheView {
    /// Returns whether the cache shows the expected state.
    fn shows(&self, expected: &Expectation) -> bool;

    /// Returns the watch by which the state arrives. Of two versions that arrive by one watch, the lower one arrives no
    /// later.
    fn watch(&self, expected: &Expectation) -> Scope;
}

impl<F: Fn(&Expectation) -> bool> CacheView for F {
    fn shows(&self, expected: &Expectation) -> bool {
        self(expected)
    }

    fn watch(&self, expected: &Expectation) -> Scope {
        scope(expected)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// The states that the cache must show before each key's next run.
    expected: BTreeMap<ObjectKey, Vec<Expectation>>,
    /// The parked keys.
    parked: BTreeMap<ObjectKey, Parked>,
    deadlines: BTreeSet<(Duration, ObjectKey)>,
    /// The parked keys by the watch that they wait for, so that an event is compared with few of them.
    blocked: BTreeMap<Scope, Blocked>,
    /// The keys whose timeout has expired.
    overdue: BTreeSet<ObjectKey>,
    /// The scopes in which the cache was made to list again, with the time.
    relisted: BTreeMap<Scope, Duration>,
    /// The key after which the next sweep begins.
    swept: Option<ObjectKey>,
}

/// A parked key.
#[derive(Debug)]
struct Parked {
    until: Duration,
    /// One of the states that it waits for, and the watch by which that arrives.
    awaited: Expectation,
    watch: Scope,
}

/// The keys that wait for one watch.
#[derive(Debug, Default)]
struct Blocked {
    by_version: BTreeSet<(u64, ObjectKey)>,
    by_deletion: BTreeSet<ObjectKey>,
}

impl Barrier {
    /// Adds the expectations of a run of the key. In the scopes that the run has read live no effect is unknown any
    /// more.
    pub(super) fn expect(&mut self, key: &ObjectKey, added: Vec<Expectation>, read_live: &BTreeSet<Scope>) {
        let mut expected = self.expected.remove(key).unwrap_or_default();
        expected.retain(|known| known.state.is_some() || !read_live.contains(&scope(known)));
        added.into_iter().for_each(|new| add(&mut expected, new));
        if !expected.is_empty() {
            self.expected.insert(key.clone(), expected);
        }
    }

    /// Returns whether a key that was taken from the queue may be reconciled.
    pub(super) fn check(&mut self, key: &ObjectKey, now: Duration, cache: impl CacheView) -> Readiness {
        let overdue = self.overdue.remove(key);
        self.settle(key, &cache);
        let Some(expected) = self.expected.get(key) else { return Readiness::Ready { stale: Stale::new() } };
        match missing(expected, &cache).filter(|_| !overdue).cloned() {
            Some(awaited) => {
                let watch = cache.watch(&awaited);
                self.park(key, Parked { until: now.saturating_add(CATCH_UP_TIMEOUT), awaited, watch });
                Readiness::Blocked
            }
            None => {
                let is_stale = |expected: &&Expectation| expected.state.is_none() || !cache.shows(expected);
                let mut stale = Stale::new();
                for expected in expected.iter().filter(is_stale) {
                    let known = stale.entry(scope(expected)).or_insert_with(|| expected.objects.clone());
                    known.merge(&expected.objects);
                }
                Readiness::Ready { stale }
            }
        }
    }

    /// Returns the parked keys that may be taken again, each with the state that didn't arrive if its timeout has
    /// expired.
    pub(super) fn released(&mut self, now: Duration, cache: impl CacheView) -> Vec<(ObjectKey, Option<Expectation>)> {
        self.sweep(&cache);
        let mut released = Vec::new();
        for key in self.unblocked(&cache) {
            let Some(Parked { until, .. }) = self.unpark(&key) else { continue };
            let next = self.expected.get(&key).and_then(|expected| missing(expected, &cache)).cloned();
            match next {
                Some(awaited) => {
                    let watch = cache.watch(&awaited);
                    self.park(&key, Parked { until, awaited, watch });
                }
                None => released.push((key, None)),
            }
        }
        while let Some((_, key)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now).cloned() {
            let parked = self.unpark(&key);
            self.overdue.insert(key.clone());
            released.push((key, parked.map(|parked| parked.awaited)));
        }
        released
    }

    /// Returns whether to make the cache list again, given a state that didn't arrive in time. True once for all keys
    /// that wait in the scope, and once a minute: meanwhile runs read live.
    pub(super) fn should_relist(&mut self, missing: &Expectation, now: Duration) -> bool {
        self.relisted.retain(|_, relisted| now.saturating_sub(*relisted) < RELIST_INTERVAL);
        let is_first = !self.relisted.contains_key(&scope(missing));
        if is_first {
            self.relisted.insert(scope(missing), now);
        }
        is_first
    }

    fn park(&mut self, key: &ObjectKey, parked: Parked) {
        let blocked = self.blocked.entry(parked.watch.clone()).or_default();
        match &parked.awaited.state {
            Some(ExpectedState::Version(version)) => drop(blocked.by_version.insert((*version, key.clone()))),
            _ => drop(blocked.by_deletion.insert(key.clone())),
        }
        self.deadlines.insert((parked.until, key.clone()));
        self.parked.insert(key.clone(), parked);
    }

    fn unpark(&mut self, key: &ObjectKey) -> Option<Parked> {
        let parked = self.parked.remove(key)?;
        self.deadlines.remove(&(parked.until, key.clone()));
        if let Some(blocked) = self.blocked.get_mut(&parked.watch) {
            match &parked.awaited.state {
                Some(ExpectedState::Version(version)) => drop(blocked.by_version.remove(&(*version, key.clone()))),
                _ => drop(blocked.by_deletion.remove(key)),
            }
            if blocked.by_version.is_empty() && blocked.by_deletion.is_empty() {
                self.blocked.remove(&parked.watch);
            }
        }
        Some(parked)
    }

    /// Returns the parked keys for which the awaited state has arrived.
    fn unblocked(&self, cache: &impl CacheView) -> Vec<ObjectKey> {
        let is_here = |key: &&ObjectKey| self.parked.get(*key).is_some_and(|parked| cache.shows(&parked.awaited));
        let here = self.blocked.values().flat_map(|blocked| {
            // In the order of versions, so that the first one that has not arrived ends the search.
            let versions = blocked.by_version.iter().map(|(_, key)| key).take_while(is_here);
            versions.chain(blocked.by_deletion.iter().filter(is_here))
        });
        here.cloned().collect()
    }

    /// Returns the time at which the first parked key's timeout expires.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Drops the expectations of a key when all of them are fulfilled.
    fn settle(&mut self, key: &ObjectKey, cache: &impl CacheView) {
        let Some(expected) = self.expected.get_mut(key) else { return };
        // At one moment: a creation may have arrived and, with it, an object whose deletion has not.
        if expected.iter().all(|expected| expected.state.is_some() && cache.shows(expected)) {
            self.expected.remove(key);
        }
    }

    /// Settles the next few keys, since some are never taken again.
    fn sweep(&mut self, cache: &impl CacheView) {
        let from = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.expected.range((from, Bound::Unbounded)).take(SWEEP_BATCH).map(|(key, _)| key.clone());
        let next = next.collect::<Vec<_>>();
        next.iter().for_each(|key| self.settle(key, cache));
        // After the last key it starts over.
        self.swept = next.last().filter(|_| next.len() == SWEEP_BATCH).cloned();
    }
}

/// Returns a state that the cache doesn't show yet.
fn missing<'a>(expected: &'a [Expectation], cache: &impl CacheView) -> Option<&'a Expectation> {
    expected.iter().find(|expected| expected.state.is_some() && !cache.shows(expected))
}

fn scope(expected: &Expectation) -> Scope {
    (expected.kind.clone(), expected.namespace.clone())
}

/// Adds an expectation, or merges it with another one in its scope.
fn add(expected: &mut Vec<Expectation>, new: Expectation) {
    for known in expected.iter_mut().filter(|known| known.kind == new.kind && known.namespace == new.namespace) {
        if merge(&mut known.state, &new.state) {
            known.objects.merge(&new.objects);
            return;
        }
    }
    expected.push(new);
}

/// Merges two states in a scope, if it is enough to wait for one. Returns whether it is.
fn merge(known: &mut Option<ExpectedState>, new: &Option<ExpectedState>) -> bool {
    match (known, new) {
        (Some(ExpectedState::Version(known)), Some(ExpectedState::Version(new))) => {
            *known = (*known).max(*new);
            true
        }
        (
            Some(ExpectedState::Absent { key, uid, list }),
            Some(ExpectedState::Absent { key: new_key, uid: new_uid, list: new_list }),
        ) if (&*key, &*uid) == (new_key, new_uid) => {
            *list = (*list).max(*new_list);
            true
        }
        (known, new) => known == new,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

    use super::*;
    use crate::object::Object;

    fn key() -> ObjectKey {
        ObjectKey::namespaced("a", "owner")
    }

    fn expect<K: Object>(state: Option<ExpectedState>) -> Expectation {
        let objects = ObjectSet::one(ObjectKey::namespaced("a", "child"));
        Expectation { kind: KindName::of::<K>().into(), namespace: Some("a".into()), state, objects }
    }

    fn version<K: Object>(version: u64) -> Expectation {
        expect::<K>(Some(ExpectedState::Version(version)))
    }

    /// A cache of pods at this version, which shows no deletion.
    fn at(seen: u64) -> impl Fn(&Expectation) -> bool {
        move |expected| matches!(expected.state, Some(ExpectedState::Version(version)) if version <= seen)
    }

    fn scope_of<K: Object>() -> BTreeSet<Scope> {
        BTreeSet::from([(KindName::of::<K>().into(), Some("a".into()))])
    }

    fn stale<K: Object>() -> Readiness {
        let objects = ObjectSet::one(ObjectKey::namespaced("a", "child"));
        Readiness::Ready { stale: scope_of::<K>().into_iter().map(|scope| (scope, objects.clone())).collect() }
    }

    const READY: Readiness = Readiness::Ready { stale: Stale::new() };
    const T0: Duration = Duration::ZERO;

    #[test]
    fn a_key_waits_for_its_newest_write_and_not_for_others() {
        let mut barrier = Barrier::default();
        barrier.expect(&key(), vec![version::<Pod>(7), version::<Pod>(9), version::<Pod>(8)], &BTreeSet::new());
        assert_eq!(barrier.check(&ObjectKey::cluster("other"), T0, at(0)), READY);
        assert_eq!(barrier.check(&key(), T0, at(8)), Readiness::Blocked);
        assert!(barrier.released(T0, at(8)).is_empty());
        assert_eq!(barrier.next_deadline(), Some(CATCH_UP_TIMEOUT));
        assert_eq!(barrier.released(T0, at(9)), [(key(), None)]);
        assert_eq!((barrier.check(&key(), T0, at(9)), barrier.next_deadline()), (READY, None));
        assert!(barrier.expected.is_empty());
    }

    /// A write that changes nothing is answered with a version that the cache has long seen.
    #[test]
    fn a_write_without_effect_blocks_no_key() {
        let mut barrier = Barrier::default();
        barrier.expect(&key(), vec![version::<Pod>(3)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(40)), READY);
    }

    #[test]
    fn a_timeout_leads_to_a_live_read_and_the_expectation_remains() {
        let mut barrier = Barrier::default();
        barrier.expect(&key(), vec![version::<Pod>(7)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(0)), Readiness::Blocked);
        assert!(barrier.released(CATCH_UP_TIMEOUT - Duration::from_millis(1), at(0)).is_empty());
        assert_eq!(barrier.released(CATCH_UP_TIMEOUT, at(0)), [(key(), Some(version::<Pod>(7)))]);
        assert_eq!(barrier.check(&key(), CATCH_UP_TIMEOUT, at(0)), stale::<Pod>());
        barrier.expect(&key(), vec![], &scope_of::<Pod>());
        assert_eq!(barrier.check(&key(), CATCH_UP_TIMEOUT, at(6)), Readiness::Blocked, "the cache is still behind");
    }

    #[test]
    fn a_lost_response_is_resolved_by_a_live_read() {
        let mut barrier = Barrier::default();
        barrier.expect(&key(), vec![expect::<Pod>(None), version::<Job>(5)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(4)), Readiness::Blocked, "known effects come first");
        assert_eq!(barrier.released(T0, at(5)), [(key(), None)]);
        let read = scope_of::<Pod>();
        assert_eq!(barrier.check(&key(), T0, at(5)), stale::<Pod>());
        barrier.expect(&key(), vec![], &BTreeSet::new());
        assert_ne!(barrier.check(&key(), T0, at(5)), READY, "the live read failed: the effect is still unknown");
        barrier.expect(&key(), vec![version::<Pod>(12)], &read);
        assert_eq!(barrier.check(&key(), T0, at(11)), Readiness::Blocked, "the state that was read live must arrive");
        assert_eq!(barrier.released(T0, at(12)), [(key(), None)]);
        assert_eq!(barrier.check(&key(), T0, at(12)), READY);
    }

    #[test]
    fn the_objects_of_the_writes_are_read_live() {
        let mut barrier = Barrier::default();
        let named = |name: &str, state| Expectation {
            objects: ObjectSet::one(ObjectKey::namespaced("a", name)),
            ..expect::<Pod>(state)
        };
        let read = |barrier: &mut Barrier, seen| match barrier.check(&key(), T0, at(seen)) {
            Readiness::Ready { stale } => stale.into_values().collect::<Vec<_>>(),
            Readiness::Blocked => Vec::new(),
        };
        barrier.expect(
            &key(),
            vec![named("one", None), named("two", Some(ExpectedState::Version(3)))],
            &BTreeSet::new(),
        );
        assert_eq!(read(&mut barrier, 3), [ObjectSet::one(ObjectKey::namespaced("a", "one"))]);
        barrier.expect(&key(), vec![named("three", None)], &BTreeSet::new());
        let both = ["one", "three"].map(|name| ObjectKey::namespaced("a", name));
        assert_eq!(read(&mut barrier, 3), [ObjectSet::Keys(both.into())]);
        barrier.expect(&key(), vec![Expectation { objects: ObjectSet::All, ..named("", None) }], &BTreeSet::new());
        assert_eq!(read(&mut barrier, 3), [ObjectSet::All]);
    }

    #[test]
    fn the_cache_lists_once_for_all_keys() {
        let (mut barrier, soon) = (Barrier::default(), Duration::from_secs(1));
        assert!(barrier.should_relist(&version::<Pod>(3), T0) && !barrier.should_relist(&version::<Pod>(4), soon));
        assert!(barrier.should_relist(&version::<Job>(3), soon), "another kind");
        assert!(barrier.should_relist(&version::<Pod>(5), RELIST_INTERVAL) && barrier.relisted.len() == 2);
    }

    #[test]
    fn each_parked_key_is_released_by_its_own_last_expectation() {
        let mut barrier = Barrier::default();
        let gone = || {
            expect::<Job>(Some(ExpectedState::Gone { key: ObjectKey::cluster("job"), uid: "u".into(), version: None }))
        };
        let name = |version: u64| ObjectKey::cluster(&format!("k{version}"));
        for seen in [5, 3, 4] {
            barrier.expect(&name(seen), vec![version::<Pod>(seen)], &BTreeSet::new());
            assert_eq!(barrier.check(&name(seen), T0, at(0)), Readiness::Blocked);
        }
        barrier.expect(&key(), vec![version::<Pod>(4), gone()], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(0)), Readiness::Blocked);
        let released = |barrier: &mut Barrier, seen| barrier.released(T0, at(seen)).into_iter().map(|(key, _)| key);
        assert!(released(&mut barrier, 4).eq([name(3), name(4)]), "the last one waits for the deletion now");
        assert!(released(&mut barrier, 5).eq([name(5)]));
        let all = |_: &Expectation| true;
        assert_eq!(barrier.released(T0, all), [(key(), None)]);
        assert!(barrier.blocked.is_empty() && barrier.deadlines.is_empty() && barrier.parked.is_empty());
    }

    /// A single watch of all namespaces, which counts the comparisons.
    struct Watch(u64, Cell<usize>);

    impl CacheView for &Watch {
        fn shows(&self, expected: &Expectation) -> bool {
            self.1.update(|count| count + 1);
            at(self.0)(expected)
        }

        fn watch(&self, expected: &Expectation) -> Scope {
            (expected.kind.clone(), None)
        }
    }

    #[test]
    fn an_event_is_compared_with_few_keys() {
        let mut barrier = Barrier::default();
        let name = |number: u64| ObjectKey::namespaced(&format!("n{number}"), "owner");
        for number in 0..500 {
            let expected = Expectation { namespace: Some(format!("n{number}")), ..version::<Pod>(100 + number) };
            barrier.expect(&name(number), vec![expected], &BTreeSet::new());
            assert_eq!(barrier.check(&name(number), T0, &Watch(0, Cell::default())), Readiness::Blocked);
        }
        for number in 0..500 {
            let watch = Watch(100 + number, Cell::default());
            assert_eq!(barrier.released(T0, &watch), [(name(number), None)]);
            assert!(watch.1.get() <= SWEEP_BATCH + 4, "{} comparisons", watch.1.get());
        }
        assert!(barrier.blocked.is_empty() && barrier.parked.is_empty());
    }

    #[test]
    fn expectations_of_keys_that_never_run_again_are_dropped() {
        let mut barrier = Barrier::default();
        for number in 0..3 * SWEEP_BATCH {
            let key = ObjectKey::cluster(&format!("k{number:04}"));
            barrier.expect(&key, vec![version::<Pod>(7)], &BTreeSet::new());
        }
        for _ in 0..5 {
            assert!(barrier.released(T0, at(7)).is_empty());
        }
        assert!(barrier.expected.is_empty());
    }
}
