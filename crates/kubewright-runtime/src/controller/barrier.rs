//! Read your writes: a key's next reconcile starts only when the cache shows what its earlier ones wrote (architecture,
//! invariant 2). A state machine: no I/O, the time is passed in.
//!
//! A key that must wait is parked, and takes no worker. A cache that doesn't catch up in time, or a write whose answer was
//! lost, so that nobody knows what to wait for, is no reason to stand still: the run then reads live what it was about.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use crate::{
    cache::{Arrival, Objects},
    context::Write,
    object::{KindName, ObjectKey},
};

/// How long a key waits for the cache.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How many keys are looked at for what they no longer need to wait for, each time that the loop goes round: with each run, which
/// adds one at most, it does so more than once.
const SWEEP: usize = 8;

/// After this long a cache that is still behind is made to list anew again.
const FORCE_AGAIN: Duration = Duration::from_secs(60);

/// A kind in a namespace, or a cluster-scoped kind.
pub(crate) type Scope = (Arc<KindName>, Option<String>);

/// What a run must read live.
pub(crate) type Stale = BTreeMap<Scope, Objects>;

/// Whether a key may be worked on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may, if these are read live.
    Go { stale: Stale },
    /// It must be parked until [`Barrier::released`] gives it back.
    Wait,
}

/// What the cache shows.
pub(super) trait Shown {
    /// Whether it shows this write.
    fn has(&self, write: &Write) -> bool;

    /// By which of its watches it comes to show it: of two writes that come by one, the one of the lower version comes no later.
    fn watch(&self, write: &Write) -> Scope;
}

impl<F: Fn(&Write) -> bool> Shown for F {
    fn has(&self, write: &Write) -> bool {
        self(write)
    }

    fn watch(&self, write: &Write) -> Scope {
        scope(write)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// What the cache must show before the key's next run.
    owed: BTreeMap<ObjectKey, Vec<Write>>,
    /// The keys that are parked.
    parked: BTreeMap<ObjectKey, Parked>,
    deadlines: BTreeSet<(Duration, ObjectKey)>,
    /// The parked keys by the watch that they wait for, so that an event is compared with few.
    blocked: BTreeMap<Scope, Blocked>,
    /// The keys whose time ran out.
    overdue: BTreeSet<ObjectKey>,
    /// Where the cache was made to list anew, and when.
    forced: BTreeMap<Scope, Duration>,
    /// Where the next sweep begins.
    swept: Option<ObjectKey>,
}

/// A key that waits.
#[derive(Debug)]
struct Parked {
    until: Duration,
    /// One of the writes that it waits for, and by which watch that comes.
    write: Write,
    watch: Scope,
}

/// The keys that wait for something that comes by one watch.
#[derive(Debug, Default)]
struct Blocked {
    by_version: BTreeSet<(u64, ObjectKey)>,
    by_deletion: BTreeSet<ObjectKey>,
}

impl Barrier {
    /// Notes what a run of the key wrote, and which scopes it read live: what was uncertain there is so no longer.
    pub(super) fn owe(&mut self, key: &ObjectKey, writes: Vec<Write>, read_live: &BTreeSet<Scope>) {
        let mut owed = self.owed.remove(key).unwrap_or_default();
        owed.retain(|write| write.arrival.is_some() || !read_live.contains(&scope(write)));
        writes.into_iter().for_each(|write| add(&mut owed, write));
        if !owed.is_empty() {
            self.owed.insert(key.clone(), owed);
        }
    }

    /// Whether a key that was taken from the queue may be worked on.
    pub(super) fn check(&mut self, key: &ObjectKey, now: Duration, shown: impl Shown) -> Verdict {
        let overdue = self.overdue.remove(key);
        self.settle(key, &shown);
        let Some(owed) = self.owed.get(key) else { return Verdict::Go { stale: Stale::new() } };
        match awaited(owed, &shown).filter(|_| !overdue).cloned() {
            Some(write) => {
                let watch = shown.watch(&write);
                self.park(key, Parked { until: now.saturating_add(PATIENCE), write, watch });
                Verdict::Wait
            }
            None => {
                let is_stale = |write: &&Write| write.arrival.is_none() || !shown.has(write);
                let mut stale = Stale::new();
                for write in owed.iter().filter(is_stale) {
                    let known = stale.entry(scope(write)).or_insert_with(|| write.objects.clone());
                    known.merge(&write.objects);
                }
                Verdict::Go { stale }
            }
        }
    }

    /// The parked keys that may be taken again, each with the write that didn't come if its time ran out.
    pub(super) fn released(&mut self, now: Duration, shown: impl Shown) -> Vec<(ObjectKey, Option<Write>)> {
        self.sweep(&shown);
        let mut released = Vec::new();
        for key in self.unblocked(&shown) {
            let Some(Parked { until, .. }) = self.unpark(&key) else { continue };
            let next = self.owed.get(&key).and_then(|owed| awaited(owed, &shown)).cloned();
            match next {
                Some(write) => {
                    let watch = shown.watch(&write);
                    self.park(&key, Parked { until, write, watch });
                }
                None => released.push((key, None)),
            }
        }
        while let Some((_, key)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now).cloned() {
            let parked = self.unpark(&key);
            self.overdue.insert(key.clone());
            released.push((key, parked.map(|parked| parked.write)));
        }
        released
    }

    /// Whether the cache is to list anew what this write didn't come to show in. It is said once for all keys that wait there,
    /// and once a minute: what each of them wrote is read live meanwhile.
    pub(super) fn forces(&mut self, write: &Write, now: Duration) -> bool {
        self.forced.retain(|_, forced| now.saturating_sub(*forced) < FORCE_AGAIN);
        let is_first = !self.forced.contains_key(&scope(write));
        if is_first {
            self.forced.insert(scope(write), now);
        }
        is_first
    }

    fn park(&mut self, key: &ObjectKey, parked: Parked) {
        let blocked = self.blocked.entry(parked.watch.clone()).or_default();
        match &parked.write.arrival {
            Some(Arrival::Version(version)) => drop(blocked.by_version.insert((*version, key.clone()))),
            _ => drop(blocked.by_deletion.insert(key.clone())),
        }
        self.deadlines.insert((parked.until, key.clone()));
        self.parked.insert(key.clone(), parked);
    }

    fn unpark(&mut self, key: &ObjectKey) -> Option<Parked> {
        let parked = self.parked.remove(key)?;
        self.deadlines.remove(&(parked.until, key.clone()));
        if let Some(blocked) = self.blocked.get_mut(&parked.watch) {
            match &parked.write.arrival {
                Some(Arrival::Version(version)) => drop(blocked.by_version.remove(&(*version, key.clone()))),
                _ => drop(blocked.by_deletion.remove(key)),
            }
            if blocked.by_version.is_empty() && blocked.by_deletion.is_empty() {
                self.blocked.remove(&parked.watch);
            }
        }
        Some(parked)
    }

    /// The parked keys for which what they were parked for has arrived.
    fn unblocked(&self, shown: &impl Shown) -> Vec<ObjectKey> {
        let is_here = |key: &&ObjectKey| self.parked.get(*key).is_some_and(|parked| shown.has(&parked.write));
        let here = self.blocked.values().flat_map(|blocked| {
            // In the order of versions, so that the first which isn't here ends the search.
            let versions = blocked.by_version.iter().map(|(_, key)| key).take_while(is_here);
            versions.chain(blocked.by_deletion.iter().filter(is_here))
        });
        here.cloned().collect()
    }

    /// When the first parked key's time runs out.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Forgets what a key need no longer wait for.
    fn settle(&mut self, key: &ObjectKey, shown: &impl Shown) {
        let Some(owed) = self.owed.get_mut(key) else { return };
        // All at one moment: a create may have arrived and, with it, the object whose deletion has not.
        if owed.iter().all(|write| write.arrival.is_some() && shown.has(write)) {
            self.owed.remove(key);
        }
    }

    /// Settles some keys that may never be taken again, in turn, so that they don't pile up.
    fn sweep(&mut self, shown: &impl Shown) {
        let from = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.owed.range((from, Bound::Unbounded)).take(SWEEP).map(|(key, _)| key.clone());
        let next = next.collect::<Vec<_>>();
        next.iter().for_each(|key| self.settle(key, shown));
        // At the end it begins anew.
        self.swept = next.last().filter(|_| next.len() == SWEEP).cloned();
    }
}

/// Something that is yet to come and can be waited for.
fn awaited<'a>(owed: &'a [Write], shown: &impl Shown) -> Option<&'a Write> {
    owed.iter().find(|write| write.arrival.is_some() && !shown.has(write))
}

fn scope(write: &Write) -> Scope {
    (write.kind.clone(), write.namespace.clone())
}

/// Adds a write, or raises the version that is waited for in its scope.
fn add(owed: &mut Vec<Write>, write: Write) {
    let of_scope = owed.iter_mut().filter(|known| known.kind == write.kind && known.namespace == write.namespace);
    for known in of_scope {
        if merge(&mut known.arrival, &write.arrival) {
            known.objects.merge(&write.objects);
            return;
        }
    }
    owed.push(write);
}

/// Makes one of two arrivals in a scope, if one is enough to wait for.
fn merge(known: &mut Option<Arrival>, new: &Option<Arrival>) -> bool {
    match (known, new) {
        (Some(Arrival::Version(known)), Some(Arrival::Version(new))) => {
            *known = (*known).max(*new);
            true
        }
        (
            Some(Arrival::Absent { key, uid, list }),
            Some(Arrival::Absent { key: new_key, uid: new_uid, list: new_list }),
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

    fn write<K: Object>(arrival: Option<Arrival>) -> Write {
        let objects = Objects::one(ObjectKey::namespaced("a", "child"));
        Write { kind: KindName::of::<K>().into(), namespace: Some("a".into()), arrival, objects }
    }

    fn version<K: Object>(version: u64) -> Write {
        write::<K>(Some(Arrival::Version(version)))
    }

    /// A cache of pods at this version, which shows no deletion.
    fn at(seen: u64) -> impl Fn(&Write) -> bool {
        move |write| matches!(write.arrival, Some(Arrival::Version(version)) if version <= seen)
    }

    fn scope_of<K: Object>() -> BTreeSet<Scope> {
        BTreeSet::from([(KindName::of::<K>().into(), Some("a".into()))])
    }

    fn stale<K: Object>() -> Verdict {
        let objects = Objects::one(ObjectKey::namespaced("a", "child"));
        Verdict::Go { stale: scope_of::<K>().into_iter().map(|scope| (scope, objects.clone())).collect() }
    }

    const FREE: Verdict = Verdict::Go { stale: Stale::new() };
    const T0: Duration = Duration::ZERO;

    #[test]
    fn a_key_waits_for_its_newest_write_and_not_for_others() {
        let mut barrier = Barrier::default();
        barrier.owe(&key(), vec![version::<Pod>(7), version::<Pod>(9), version::<Pod>(8)], &BTreeSet::new());
        assert_eq!(barrier.check(&ObjectKey::cluster("other"), T0, at(0)), FREE);
        assert_eq!(barrier.check(&key(), T0, at(8)), Verdict::Wait);
        assert!(barrier.released(T0, at(8)).is_empty());
        assert_eq!(barrier.next_deadline(), Some(PATIENCE));
        assert_eq!(barrier.released(T0, at(9)), [(key(), None)]);
        assert_eq!((barrier.check(&key(), T0, at(9)), barrier.next_deadline()), (FREE, None));
        assert!(barrier.owed.is_empty());
    }

    /// A write that changes nothing is answered with a version that the cache has long seen.
    #[test]
    fn a_write_without_effect_holds_nothing_up() {
        let mut barrier = Barrier::default();
        barrier.owe(&key(), vec![version::<Pod>(3)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(40)), FREE);
    }

    #[test]
    fn patience_ends_in_a_live_read_and_the_debt_remains() {
        let mut barrier = Barrier::default();
        barrier.owe(&key(), vec![version::<Pod>(7)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(0)), Verdict::Wait);
        assert!(barrier.released(PATIENCE - Duration::from_millis(1), at(0)).is_empty());
        assert_eq!(barrier.released(PATIENCE, at(0)), [(key(), Some(version::<Pod>(7)))]);
        assert_eq!(barrier.check(&key(), PATIENCE, at(0)), stale::<Pod>());
        barrier.owe(&key(), vec![], &scope_of::<Pod>());
        assert_eq!(barrier.check(&key(), PATIENCE, at(6)), Verdict::Wait, "the cache is still behind");
    }

    /// Rows 1 and 2 of the faults: the write took effect, the answer was lost.
    #[test]
    fn row_2_a_lost_answer_is_cleared_up_by_a_live_read() {
        let mut barrier = Barrier::default();
        barrier.owe(&key(), vec![write::<Pod>(None), version::<Job>(5)], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(4)), Verdict::Wait, "first what can be waited for");
        assert_eq!(barrier.released(T0, at(5)), [(key(), None)]);
        let read = scope_of::<Pod>();
        assert_eq!(barrier.check(&key(), T0, at(5)), stale::<Pod>());
        barrier.owe(&key(), vec![], &BTreeSet::new());
        assert_ne!(barrier.check(&key(), T0, at(5)), FREE, "the live read failed: still uncertain");
        barrier.owe(&key(), vec![version::<Pod>(12)], &read);
        assert_eq!(barrier.check(&key(), T0, at(11)), Verdict::Wait, "what was read live must come");
        assert_eq!(barrier.released(T0, at(12)), [(key(), None)]);
        assert_eq!(barrier.check(&key(), T0, at(12)), FREE);
    }

    #[test]
    fn what_is_read_live_is_what_was_written() {
        let mut barrier = Barrier::default();
        let named = |name: &str, arrival| Write {
            objects: Objects::one(ObjectKey::namespaced("a", name)),
            ..write::<Pod>(arrival)
        };
        let read = |barrier: &mut Barrier, seen| match barrier.check(&key(), T0, at(seen)) {
            Verdict::Go { stale } => stale.into_values().collect::<Vec<_>>(),
            Verdict::Wait => Vec::new(),
        };
        barrier.owe(&key(), vec![named("one", None), named("two", Some(Arrival::Version(3)))], &BTreeSet::new());
        assert_eq!(read(&mut barrier, 3), [Objects::one(ObjectKey::namespaced("a", "one"))]);
        barrier.owe(&key(), vec![named("three", None)], &BTreeSet::new());
        let both = ["one", "three"].map(|name| ObjectKey::namespaced("a", name));
        assert_eq!(read(&mut barrier, 3), [Objects::These(both.into())]);
        barrier.owe(&key(), vec![Write { objects: Objects::Any, ..named("", None) }], &BTreeSet::new());
        assert_eq!(read(&mut barrier, 3), [Objects::Any]);
    }

    #[test]
    fn the_cache_is_made_to_list_anew_once_for_all() {
        let (mut barrier, soon) = (Barrier::default(), Duration::from_secs(1));
        assert!(barrier.forces(&version::<Pod>(3), T0) && !barrier.forces(&version::<Pod>(4), soon));
        assert!(barrier.forces(&version::<Job>(3), soon), "another kind");
        assert!(barrier.forces(&version::<Pod>(5), FORCE_AGAIN) && barrier.forced.len() == 2);
    }

    #[test]
    fn each_parked_key_is_released_by_its_own_last_write() {
        let mut barrier = Barrier::default();
        let gone =
            || write::<Job>(Some(Arrival::Gone { key: ObjectKey::cluster("job"), uid: "u".into(), version: None }));
        let name = |version: u64| ObjectKey::cluster(&format!("k{version}"));
        for seen in [5, 3, 4] {
            barrier.owe(&name(seen), vec![version::<Pod>(seen)], &BTreeSet::new());
            assert_eq!(barrier.check(&name(seen), T0, at(0)), Verdict::Wait);
        }
        barrier.owe(&key(), vec![version::<Pod>(4), gone()], &BTreeSet::new());
        assert_eq!(barrier.check(&key(), T0, at(0)), Verdict::Wait);
        let released = |barrier: &mut Barrier, seen| barrier.released(T0, at(seen)).into_iter().map(|(key, _)| key);
        assert!(released(&mut barrier, 4).eq([name(3), name(4)]), "the last one waits for the deletion now");
        assert!(released(&mut barrier, 5).eq([name(5)]));
        let all = |_: &Write| true;
        assert_eq!(barrier.released(T0, all), [(key(), None)]);
        assert!(barrier.blocked.is_empty() && barrier.deadlines.is_empty() && barrier.parked.is_empty());
    }

    /// One watch of all namespaces, which counts how often it is asked.
    struct Watch(u64, Cell<usize>);

    impl Shown for &Watch {
        fn has(&self, write: &Write) -> bool {
            self.1.update(|asked| asked + 1);
            at(self.0)(write)
        }

        fn watch(&self, write: &Write) -> Scope {
            (write.kind.clone(), None)
        }
    }

    /// However many keys wait, in however many namespaces.
    #[test]
    fn an_event_is_compared_with_few_keys() {
        let mut barrier = Barrier::default();
        let name = |number: u64| ObjectKey::namespaced(&format!("n{number}"), "owner");
        for number in 0..500 {
            let write = Write { namespace: Some(format!("n{number}")), ..version::<Pod>(100 + number) };
            barrier.owe(&name(number), vec![write], &BTreeSet::new());
            assert_eq!(barrier.check(&name(number), T0, &Watch(0, Cell::default())), Verdict::Wait);
        }
        for number in 0..500 {
            let watch = Watch(100 + number, Cell::default());
            assert_eq!(barrier.released(T0, &watch), [(name(number), None)]);
            assert!(watch.1.get() <= SWEEP + 4, "{} questions", watch.1.get());
        }
        assert!(barrier.blocked.is_empty() && barrier.parked.is_empty());
    }

    #[test]
    fn keys_that_never_run_again_are_forgotten() {
        let mut barrier = Barrier::default();
        for number in 0..3 * SWEEP {
            let key = ObjectKey::cluster(&format!("k{number:04}"));
            barrier.owe(&key, vec![version::<Pod>(7)], &BTreeSet::new());
        }
        for _ in 0..5 {
            assert!(barrier.released(T0, at(7)).is_empty());
        }
        assert!(barrier.owed.is_empty());
    }
}
