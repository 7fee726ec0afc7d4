//! The state of one watch: turns watch events into changes of the store. No I/O.
//!
//! A watch may repeat events, coalesce them, or deliver some from an older connection: they are recognised by their
//! resource versions. A list after a gap shows which objects were deleted meanwhile. An API server whose etcd was
//! restored continues from older versions: events that prove this are accepted, and events that suggest it lead to
//! another list.

use std::collections::BTreeSet;

use kubewright_packed::RawObject;

use super::{
    codec::Undecodable,
    decoded::Types,
    delta::{Cause, StoreChange},
    list_watch::Event,
    store::{Row, Store, Version},
};
use crate::object::{ObjectKey, version_of};

/// Decodes and packs an object, under this key.
type Encode<'a> = &'a dyn Fn(ObjectKey, &RawObject) -> Result<(Row, Types), Undecodable>;

/// The progress of a watch of one namespace, or of all.
#[derive(Debug)]
pub(super) struct WatchState {
    scope: Option<String>,
    /// The resource version up to which everything has been seen.
    observed: u64,
    /// The value of `observed` after the last list: later events are newer.
    listed: u64,
    /// The newest version that the API server has returned to a write or a live read.
    noted: u64,
    listing: Option<Listing>,
    synced: bool,
    begun: bool,
    failure: Option<String>,
    /// The generation of types with whose fields all objects are kept, and that of the next list.
    generation: u64,
    next_generation: u64,
    /// Whether the next complete list is accepted whatever versions it has.
    has_forgotten: bool,
    rollback: Option<Rollback>,
}

/// A sign that the API server has returned to an older state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rollback {
    /// It may have: a list decides.
    Suspected,
    /// It has.
    Certain,
}

/// A list that is being received.
#[derive(Debug)]
struct Listing {
    /// [`WatchState::noted`] before the list was requested: a consistent list is at least as new.
    floor: u64,
    highest: u64,
    generation: u64,
    /// Whether the versions seen before are void.
    has_forgotten: bool,
    /// Whether the list proves that the API server has returned to an older state.
    is_older: bool,
    /// The keys of the list, if the store had objects before that the list may lack.
    keys: Option<BTreeSet<ObjectKey>>,
}

impl Listing {
    /// Returns how far a stored object with the same version can replace the listed one.
    fn stored_copy(&self, generation: u64) -> StoredCopy {
        match self.has_forgotten {
            true => StoredCopy::Unreliable,
            false if self.generation != generation => StoredCopy::Partial,
            false => StoredCopy::Complete,
        }
    }
}

impl WatchState {
    pub(super) fn new(scope: Option<String>) -> Self {
        Self {
            scope,
            observed: 0,
            listed: 0,
            noted: 0,
            listing: None,
            synced: false,
            begun: false,
            failure: Some("not started".into()),
            generation: 0,
            next_generation: 0,
            has_forgotten: false,
            rollback: None,
        }
    }

    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    pub(super) fn covers(&self, namespace: Option<&str>) -> bool {
        self.scope.is_none() || self.scope.as_deref() == namespace
    }

    /// Returns the resource version up to which everything has been seen.
    pub(super) fn observed(&self) -> u64 {
        self.observed
    }

    /// Returns whether a first list is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Drops all versions that were seen.
    pub(super) fn forget_versions(&mut self) {
        (self.observed, self.listed, self.noted, self.has_forgotten) = (0, 0, 0, true);
    }

    /// Returns the sign of a rollback that was found since the last call.
    pub(super) fn take_rollback(&mut self) -> Option<Rollback> {
        self.rollback.take()
    }

    /// Records that a list is about to begin.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Returns whether a list has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begun || self.synced || self.listing.is_some()
    }

    /// Keeps the fields of another generation of types from the next list on.
    pub(super) fn expect_generation(&mut self, generation: u64) {
        self.next_generation = generation;
    }

    /// Returns the generation of types with whose fields all objects are kept.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
    }

    pub(super) fn recover(&mut self) {
        self.failure = None;
    }

    /// Records a version that the API server has returned to another request than this watch.
    pub(super) fn note_version(&mut self, version: u64) {
        self.noted = self.noted.max(version);
    }

    /// Returns the key under which [`WatchState::take`] will encode the object of this event, if it is likely to.
    pub(super) fn wants(&self, store: &Store, event: &Event<RawObject>) -> Option<ObjectKey> {
        let (Event::Apply(draft) | Event::InitApply(draft) | Event::Delete(draft)) = event else { return None };
        let key = ObjectKey::of(draft);
        let known = store.get(&key).filter(|known| known.is(draft));
        let version = || Version::of(draft.metadata.resource_version.as_deref());
        let is_wanted = match event {
            Event::Apply(_) => version_of(draft).is_none_or(|version| version > self.observed),
            Event::Delete(_) => known.is_some(),
            _ => match &self.listing {
                Some(listing) if listing.stored_copy(self.generation) == StoredCopy::Complete => {
                    known.is_none_or(|known| known.version != version())
                }
                listing => listing.is_some(),
            },
        };
        is_wanted.then(|| known.map_or_else(|| store.shared(key), |known| known.key.clone()))
    }

    /// Takes in one event and passes each change of the store to `emit`.
    ///
    /// # Errors
    /// When the event's object can't be decoded. The store keeps its last state.
    pub(super) fn take(
        &mut self,
        store: &mut Store,
        event: Event<RawObject>,
        encode: Encode<'_>,
        mut emit: impl FnMut(StoreChange),
    ) -> Result<(), Undecodable> {
        match event {
            Event::Init => {
                let keys = store.has_any(self.scope()).then(BTreeSet::new);
                let (generation, floor) = (self.next_generation, self.noted);
                // What was known of a list that ended early is still so: objects that it had are in the store already.
                let failed = self.listing.take();
                let has_forgotten =
                    std::mem::take(&mut self.has_forgotten) || failed.as_ref().is_some_and(|list| list.has_forgotten);
                let is_older = failed.is_some_and(|list| list.is_older);
                self.listing = Some(Listing { floor, highest: 0, generation, has_forgotten, is_older, keys });
                Ok(())
            }
            Event::InitApply(draft) => {
                let cause = if self.synced { Cause::Event } else { Cause::FirstList };
                let is_older = self.is_older(store, &draft);
                let Some(listing) = &mut self.listing else { return Ok(()) };
                listing.highest = listing.highest.max(version_of(&draft).unwrap_or_default());
                if let Some(keys) = &mut listing.keys {
                    keys.insert(ObjectKey::of(&draft));
                }
                let copy = listing.stored_copy(self.generation);
                let taken = put(store, &draft, cause, copy, encode, emit);
                // An object that can't be decoded may have existed before without being stored.
                listing.is_older |= is_older && taken.is_ok();
                taken
            }
            Event::InitDone => {
                self.finish_list(store, emit);
                Ok(())
            }
            Event::Apply(draft) => {
                self.failure = None;
                let seen = version_of(&draft).unwrap_or(u64::MAX);
                if seen <= self.observed {
                    self.check_old_event(store, &draft, seen);
                    return Ok(());
                }
                self.observe(version_of(&draft));
                put(store, &draft, Cause::Event, StoredCopy::Complete, encode, emit)
            }
            Event::Delete(draft) => {
                self.failure = None;
                self.observe(version_of(&draft));
                let key = ObjectKey::of(&draft);
                // The store may have a later object with this name, which is not the deleted one.
                let is_same = store.get(&key).is_some_and(|known| known.is(&draft));
                if is_same && let Some(known) = store.remove(&key) {
                    // The object as the event shows it, or else as it was last seen.
                    let (last, types) = encode(known.key.clone(), &draft).unwrap_or((known, Types::default()));
                    emit(StoreChange::new(Some(last), None, types, Cause::Event));
                }
                Ok(())
            }
        }
    }

    /// Checks an event that is older than what was seen. It is a repetition if it is newer than the list, or if the
    /// stored object is at least as new. Otherwise the API server may have returned to an older state, which a list
    /// decides.
    #[cold]
    fn check_old_event(&mut self, store: &Store, draft: &RawObject, seen: u64) {
        let known = store.get(&ObjectKey::of(draft)).filter(|known| known.is(draft));
        let is_repeated = known.is_some_and(|known| known.version.number().is_none_or(|known| known >= seen));
        if seen <= self.listed && !is_repeated {
            self.rollback = Some(Rollback::Suspected);
        }
    }

    /// Returns whether a listed object proves that the API server has returned to an older state.
    fn is_older(&self, store: &Store, draft: &RawObject) -> bool {
        let Some(version) = version_of(draft).filter(|_| self.listed > 0) else { return false };
        match store.get(&ObjectKey::of(draft)).filter(|known| known.is(draft)) {
            Some(known) => known
                .version
                .number()
                .is_some_and(|known| version < known || (known < version && version <= self.listed)),
            // The previous list would have contained it.
            None => version <= self.listed,
        }
    }

    fn observe(&mut self, version: Option<u64>) {
        self.observed = self.observed.max(version.unwrap_or_default());
    }

    /// Removes the objects that the list lacks: they were deleted while no watch could deliver that.
    fn finish_list(&mut self, store: &mut Store, mut emit: impl FnMut(StoreChange)) {
        let Some(listing) = self.listing.take() else { return };
        let scope = self.scope.as_deref();
        let is_gone = |row: &&Row| listing.keys.as_ref().is_some_and(|keys| !keys.contains(&row.key));
        let gone = store.within(scope).filter(is_gone).map(|row| row.key.clone());
        for key in gone.collect::<Vec<_>>() {
            store.remove(&key).map(deletion).into_iter().for_each(&mut emit);
        }
        if listing.is_older {
            (self.observed, self.noted, self.rollback) = (listing.highest, 0, Some(Rollback::Certain));
        } else {
            self.observe(Some(listing.floor.max(listing.highest)));
        }
        self.listed = self.observed;
        self.generation = listing.generation;
        self.synced = true;
        self.failure = None;
    }
}

fn deletion(old: Row) -> StoreChange {
    StoreChange::new(Some(old), None, Types::default(), Cause::Event)
}

/// The degree to which a stored object can replace a received one with the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredCopy {
    /// It is the same.
    Complete,
    /// It is the same state, but lacks fields that are now kept.
    Partial,
    /// It may be another state: versions count from an older one.
    Unreliable,
}

/// Puts an object into the store unless it is there already. An object that can't be decoded leaves its last state in
/// the store: stale data is better than a deletion that didn't happen.
fn put(
    store: &mut Store,
    draft: &RawObject,
    cause: Cause,
    copy: StoredCopy,
    encode: Encode<'_>,
    mut emit: impl FnMut(StoreChange),
) -> Result<(), Undecodable> {
    let key = ObjectKey::of(draft);
    let known = store.get(&key);
    let is_recreated = known.is_some_and(|known| !known.is(draft));
    let version = Version::of(draft.metadata.resource_version.as_deref());
    let shared = known.map_or_else(|| store.shared(key.clone()), |known| known.key.clone());
    let is_known = !is_recreated && version.number().is_some() && known.is_some_and(|known| known.version == version);
    if is_known && copy == StoredCopy::Complete {
        return Ok(());
    }
    if is_recreated {
        // Handlers get both the deletion and the creation, since nothing of the old object carries over.
        store.remove(&key).map(deletion).into_iter().for_each(&mut emit);
    }
    let (row, types) = encode(shared, draft)?;
    let old = store.insert(row.clone());
    if !is_known || copy == StoredCopy::Unreliable {
        emit(StoreChange::new(old, Some(row), types, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::{
        super::{codec::Codec, options::CacheOptions},
        *,
    };
    use crate::object::KindName;

    fn object(name: &str, uid: &str, version: u64) -> RawObject {
        serde_json::from_value(json!({"metadata": {
            "namespace": "a", "name": name, "uid": uid, "resourceVersion": version.to_string(),
        }}))
        .expect("decodes")
    }

    struct Fixture {
        watch: WatchState,
        store: Store,
        codec: Codec,
    }

    impl Fixture {
        fn new() -> Self {
            let plan = CacheOptions::new().of(&KindName::of::<ConfigMap>(), true, &BTreeSet::new());
            let codec = Codec::new(KindName::of::<ConfigMap>(), plan);
            codec.declare::<ConfigMap>(|| 0);
            Self { watch: WatchState::new(None), store: Store::default(), codec }
        }

        /// Returns the changes of these events, as `+a1`, `~a1`, `-a1` for name and UID.
        fn take(&mut self, events: impl IntoIterator<Item = Event<RawObject>>) -> Vec<String> {
            let mut changes = Vec::new();
            for event in events {
                let Self { watch, store, codec } = self;
                watch
                    .take(store, event, &|key, draft| codec.encode(key, draft), |StoreChange { old, new, .. }| {
                        let sign = match (&old, &new) {
                            (None, _) => '+',
                            (_, None) => '-',
                            _ => '~',
                        };
                        let row = new.or(old).expect("old or new");
                        changes.push(format!("{sign}{}{}", row.key.name(), row.uid.as_ref().expect("a uid")));
                    })
                    .expect("decodable");
            }
            changes
        }

        fn list(&mut self, objects: Vec<RawObject>) -> Vec<String> {
            let list = objects.into_iter().map(Event::InitApply);
            self.take([Event::Init].into_iter().chain(list).chain([Event::InitDone]))
        }
    }

    /// A list detects objects that were deleted while the watch was interrupted.
    #[test]
    fn a_list_after_a_gap_shows_deleted_and_recreated_objects() {
        let mut fixture = Fixture::new();
        assert_eq!(
            fixture.list(vec![object("a", "1", 1), object("b", "1", 2), object("c", "1", 3)]),
            ["+a1", "+b1", "+c1"]
        );
        let changes = fixture.list(vec![object("a", "1", 1), object("b", "2", 7), object("d", "1", 8)]);
        assert_eq!(changes, ["-b1", "+b2", "+d1", "-c1"]);
    }

    #[test]
    fn repeated_and_late_events_are_ignored() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        assert_eq!(fixture.take([Event::Apply(object("a", "1", 5)), Event::Apply(object("a", "1", 5))]), ["~a1"]);
        assert!(fixture.take([Event::Apply(object("a", "1", 4))]).is_empty());
        assert_eq!(fixture.take([Event::Delete(object("a", "1", 6)), Event::Delete(object("a", "1", 6))]), ["-a1"]);
        assert!(fixture.take([Event::Apply(object("a", "1", 5))]).is_empty(), "a deleted object doesn't come back");
        assert_eq!(fixture.take([Event::Apply(object("a", "2", 7)), Event::Delete(object("a", "1", 6))]), ["+a2"]);
    }

    /// Etcd was restored to an older state, and versions continue from there.
    #[test]
    fn an_older_state_is_accepted_when_it_is_proven() {
        let restored = || {
            let mut fixture = Fixture::new();
            fixture.list(vec![object("a", "1", 100), object("b", "1", 900)]);
            fixture.take([Event::Apply(object("c", "1", 1000))]);
            fixture.watch.note_version(1000);
            fixture
        };
        // A list with an older state of an object proves it.
        let mut fixture = restored();
        assert_eq!(fixture.list(vec![object("a", "1", 100), object("b", "1", 400)]), ["~b1", "-c1"]);
        assert_eq!((fixture.watch.observed(), fixture.watch.take_rollback()), (400, Some(Rollback::Certain)));
        assert_eq!(fixture.take([Event::Apply(object("a", "1", 501))]), ["~a1"]);
        assert_eq!((fixture.watch.observed(), fixture.watch.take_rollback()), (501, None));

        // An event that is older than the list, about an object that it lacks, may be a repetition: another list
        // decides.
        let changed = || vec![object("a", "1", 503)];
        let added = || vec![object("a", "1", 100), object("d", "1", 503)];
        for (list, change) in [(changed as fn() -> Vec<RawObject>, "~a1"), (added, "+d1")] {
            let mut fixture = restored();
            fixture.list(vec![object("a", "1", 100)]);
            assert_eq!(
                (fixture.watch.observed(), fixture.watch.take_rollback()),
                (1000, None),
                "the others may have been deleted"
            );
            assert!(fixture.take([Event::Apply(object("a", "1", 99))]).is_empty());
            assert_eq!(fixture.watch.take_rollback(), None);
            assert!(fixture.take(list().pop().map(Event::Apply)).is_empty());
            assert_eq!(fixture.watch.take_rollback(), Some(Rollback::Suspected));
            assert_eq!(fixture.list(list()), [change]);
            assert_eq!((fixture.watch.observed(), fixture.watch.take_rollback()), (503, Some(Rollback::Certain)));
        }

        // After such a response of the API server, all earlier versions are void.
        let mut fixture = restored();
        fixture.watch.forget_versions();
        assert_eq!(fixture.list(vec![object("a", "1", 100)]), ["~a1", "-b1", "-c1"]);
        assert_eq!((fixture.watch.observed(), fixture.watch.take_rollback()), (100, None));
    }

    /// The first page of a list has arrived, and the second one fails.
    #[test]
    fn an_older_state_is_accepted_after_a_list_that_ended_early() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 100), object("b", "1", 900)]);
        fixture.watch.forget_versions();
        fixture.take([Event::Init, Event::InitApply(object("a", "1", 100))]);
        let changes = fixture.list(vec![object("a", "1", 100), object("b", "1", 900)]);
        assert_eq!(changes, ["~a1", "~b1"], "objects of the same version may be others");
        assert!(fixture.list(vec![object("a", "1", 100), object("b", "1", 900)]).is_empty(), "it is known again");

        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 800), object("b", "1", 900)]);
        assert_eq!(fixture.take([Event::Init, Event::InitApply(object("a", "1", 400))]), ["~a1"]);
        assert!(fixture.list(vec![object("a", "1", 400)]).contains(&"-b1".into()));
        assert_eq!((fixture.watch.observed(), fixture.watch.take_rollback()), (400, Some(Rollback::Certain)));
        assert_eq!(fixture.take([Event::Apply(object("a", "1", 401))]), ["~a1"]);
    }

    #[test]
    fn a_list_is_as_new_as_the_versions_noted_before_it() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        fixture.watch.note_version(9);
        fixture.take([Event::Init]);
        fixture.watch.note_version(12);
        fixture.take([Event::InitApply(object("a", "1", 1)), Event::InitDone]);
        assert_eq!(fixture.watch.observed(), 9, "the later write may have missed the list");
    }

    #[test]
    fn a_list_advances_the_observed_version_only_when_it_is_complete() {
        let mut fixture = Fixture::new();
        fixture.take([Event::Init, Event::InitApply(object("z", "1", 40))]);
        assert_eq!((fixture.watch.observed(), fixture.watch.is_synced()), (0, false));
        fixture.take([Event::InitApply(object("a", "1", 3)), Event::InitDone]);
        assert_eq!((fixture.watch.observed(), fixture.watch.is_synced()), (40, true));
    }

    #[test]
    fn an_object_that_can_no_longer_be_decoded_keeps_its_last_state() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        let bad = json!({
            "metadata": {"namespace": "a", "name": "a", "uid": "1", "resourceVersion": "5"}, "data": "not a map",
        });
        let bad = Event::Apply(serde_json::from_value(bad).expect("an object"));
        let Fixture { watch, store, codec } = &mut fixture;
        let taken = watch.take(store, bad, &|key, draft| codec.encode(key, draft), |_| {});
        assert_eq!(taken.map_err(|bad| bad.key.to_string()), Err("a/a".into()));
        let kept = store.get(&ObjectKey::namespaced("a", "a"));
        assert_eq!(kept.map(|kept| kept.version.clone()), Some(Version::Number(1)));
        assert_eq!(watch.observed(), 5, "the event counts as seen");
    }
}
