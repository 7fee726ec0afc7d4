//! What one watch has told us: a state machine from watch events to changes of the store. No I/O.
//!
//! It tolerates what a watch may do: events doubled, coalesced or from an older connection are recognised by their
//! resource version, and a list after a gap shows what was deleted meanwhile. An API server whose etcd was restored counts its
//! versions from an older one: what shows that is believed, and what may show it is asked for by another list.

use std::collections::BTreeSet;

use kubewright_packed::RawObject;

use super::{
    delta::{Cause, Step},
    fresh::Types,
    kind::Undecodable,
    list_watch::Event,
    store::{Row, Store, Version},
};
use crate::object::{ObjectKey, version_of};

/// Makes of an object as it came one that is kept, under this key.
type Intake<'a> = &'a dyn Fn(ObjectKey, &RawObject) -> Result<(Row, Types), Undecodable>;

/// The progress of one watch, of one namespace or of all.
#[derive(Debug)]
pub(super) struct Feed {
    scope: Option<String>,
    /// Everything up to this version has been seen.
    observed: u64,
    /// What comes after the last list is newer than this.
    listed: u64,
    /// The newest version that a write or a live read was answered with.
    written: u64,
    listing: Option<Listing>,
    synced: bool,
    failure: Option<String>,
    /// What was kept of objects at the last list, and what is to be kept of them as of the next.
    edition: u64,
    next_edition: u64,
    /// Whether the next list is to be believed, whatever it is.
    forgot: bool,
    doubt: Option<Doubt>,
}

/// Whether the API server has gone back to an older state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It may have: a list would tell.
    Suspicion,
    /// It has.
    Certainty,
}

/// A list that is being read.
#[derive(Debug)]
struct Listing {
    /// [`Feed::written`] when the list was about to be asked for: a consistent list is at least as new.
    floor: u64,
    highest: u64,
    edition: u64,
    /// Whether what was seen before says nothing.
    forgot: bool,
    /// Whether it shows that the API server has gone back.
    is_back: bool,
    /// What it has, if there was anything before it that it may lack.
    keys: Option<BTreeSet<ObjectKey>>,
}

impl Listing {
    /// What is worth what is kept already, of this edition.
    fn worth(&self, edition: u64) -> Known {
        match self.forgot {
            true => Known::Doubted,
            false if self.edition != edition => Known::InPart,
            false => Known::Whole,
        }
    }
}

impl Feed {
    pub(super) fn new(scope: Option<String>) -> Self {
        Self {
            scope,
            observed: 0,
            listed: 0,
            written: 0,
            listing: None,
            synced: false,
            failure: Some("not started".into()),
            edition: 0,
            next_edition: 0,
            forgot: false,
            doubt: None,
        }
    }

    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    pub(super) fn covers(&self, namespace: Option<&str>) -> bool {
        self.scope.is_none() || self.scope.as_deref() == namespace
    }

    pub(super) fn observed(&self) -> u64 {
        self.observed
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// What was seen doesn't count any more.
    pub(super) fn forget(&mut self) {
        (self.observed, self.listed, self.written, self.forgot) = (0, 0, 0, true);
    }

    /// What has come up since the last call.
    pub(super) fn doubt(&mut self) -> Option<Doubt> {
        self.doubt.take()
    }

    /// From the next list on, more is kept of objects.
    pub(super) fn renew(&mut self, edition: u64) {
        self.next_edition = edition;
    }

    /// What is kept of all objects.
    pub(super) fn edition(&self) -> u64 {
        self.edition
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failure = Some(why);
    }

    /// Notes a version that the API server has shown otherwise than by this watch.
    pub(super) fn note_version(&mut self, version: u64) {
        self.written = self.written.max(version);
    }

    /// Whether the object of this event will be asked for, as far as that can be told before: then under which key.
    pub(super) fn wants(&self, store: &Store, event: &Event<RawObject>) -> Option<ObjectKey> {
        let (Event::Apply(draft) | Event::InitApply(draft) | Event::Delete(draft)) = event else { return None };
        let key = ObjectKey::of(draft);
        let known = store.get(&key).filter(|known| known.is(draft));
        let version = || Version::of(draft.metadata.resource_version.as_deref());
        let is_wanted = match event {
            Event::Apply(_) => version_of(draft).is_none_or(|version| version > self.observed),
            Event::Delete(_) => known.is_some(),
            _ => match &self.listing {
                Some(listing) if listing.worth(self.edition) == Known::Whole => {
                    known.is_none_or(|known| known.version != version())
                }
                listing => listing.is_some(),
            },
        };
        is_wanted.then(|| known.map_or_else(|| store.shared(key), |known| known.key.clone()))
    }

    /// Takes in one event; `emit` gets each change of the store.
    pub(super) fn take(
        &mut self,
        store: &mut Store,
        event: Event<RawObject>,
        intake: Intake<'_>,
        mut emit: impl FnMut(Step),
    ) -> Result<(), Undecodable> {
        match event {
            Event::Init => {
                let keys = store.has_any(self.scope()).then(BTreeSet::new);
                let (edition, forgot) = (self.next_edition, std::mem::take(&mut self.forgot));
                self.listing = Some(Listing { floor: self.written, highest: 0, edition, forgot, is_back: false, keys });
                Ok(())
            }
            Event::InitApply(draft) => {
                let cause = if self.synced { Cause::Event } else { Cause::FirstList };
                let is_back = self.is_back(store, &draft);
                let Some(listing) = &mut self.listing else { return Ok(()) };
                listing.highest = listing.highest.max(version_of(&draft).unwrap_or_default());
                if let Some(keys) = &mut listing.keys {
                    keys.insert(ObjectKey::of(&draft));
                }
                let worth = listing.worth(self.edition);
                let taken = put(store, &draft, cause, worth, intake, emit);
                // One that could not be decoded may have been there before, too.
                listing.is_back |= is_back && taken.is_ok();
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
                    self.overtaken(store, &draft, seen);
                    return Ok(());
                }
                self.observe(version_of(&draft));
                put(store, &draft, Cause::Event, Known::Whole, intake, emit)
            }
            Event::Delete(draft) => {
                self.failure = None;
                self.observe(version_of(&draft));
                let key = ObjectKey::of(&draft);
                // A later incarnation of the name, which we have already seen, is not what was deleted.
                let is_same = store.get(&key).is_some_and(|known| known.is(&draft));
                if is_same && let Some(known) = store.remove(&key) {
                    // The object as the event shows it, or else as it was last seen.
                    let (last, types) = intake(known.key.clone(), &draft).unwrap_or((known, Types::default()));
                    emit(Step::new(Some(last), None, types, Cause::Event));
                }
                Ok(())
            }
        }
    }

    /// Looks at an event that is older than what was seen. It is doubled if it is newer than the list, and an echo if the object
    /// is known to be newer. Otherwise it may be from an API server that has gone back, and a list is to tell.
    #[cold]
    fn overtaken(&mut self, store: &Store, draft: &RawObject, seen: u64) {
        let known = store.get(&ObjectKey::of(draft)).filter(|known| known.is(draft));
        let is_echo = known.is_some_and(|known| known.version.number().is_none_or(|known| known >= seen));
        if seen <= self.listed && !is_echo {
            self.doubt = Some(Doubt::Suspicion);
        }
    }

    /// Whether an object of a list shows that the API server has gone back.
    fn is_back(&self, store: &Store, draft: &RawObject) -> bool {
        let Some(version) = version_of(draft).filter(|_| self.listed > 0) else { return false };
        match store.get(&ObjectKey::of(draft)).filter(|known| known.is(draft)) {
            Some(known) => known
                .version
                .number()
                .is_some_and(|known| version < known || (known < version && version <= self.listed)),
            // The list before would have had it.
            None => version <= self.listed,
        }
    }

    fn observe(&mut self, version: Option<u64>) {
        self.observed = self.observed.max(version.unwrap_or_default());
    }

    /// What the list doesn't have is gone: a watch that was cut off doesn't tell of deletions in the gap.
    fn finish_list(&mut self, store: &mut Store, mut emit: impl FnMut(Step)) {
        let Some(listing) = self.listing.take() else { return };
        let scope = self.scope.as_deref();
        let is_gone = |row: &&Row| listing.keys.as_ref().is_some_and(|keys| !keys.contains(&row.key));
        let gone = store.within(scope).filter(is_gone).map(|row| row.key.clone());
        for key in gone.collect::<Vec<_>>() {
            store.remove(&key).map(gone_for_good).into_iter().for_each(&mut emit);
        }
        if listing.is_back {
            (self.observed, self.written, self.doubt) = (listing.highest, 0, Some(Doubt::Certainty));
        } else {
            self.observe(Some(listing.floor.max(listing.highest)));
        }
        self.listed = self.observed;
        self.edition = listing.edition;
        self.synced = true;
        self.failure = None;
    }
}

fn gone_for_good(old: Row) -> Step {
    Step::new(Some(old), None, Types::default(), Cause::Event)
}

/// What an object that is in the store already is worth, if it has the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is the same.
    Whole,
    /// It is the same, but more is to be kept of it.
    InPart,
    /// It may be another.
    Doubted,
}

/// Puts an object into the store unless it is there already. One that can't be decoded leaves what is
/// there: a stale object is a smaller evil than a deletion that didn't happen.
fn put(
    store: &mut Store,
    draft: &RawObject,
    cause: Cause,
    worth: Known,
    intake: Intake<'_>,
    mut emit: impl FnMut(Step),
) -> Result<(), Undecodable> {
    let key = ObjectKey::of(draft);
    let known = store.get(&key);
    let remade = known.is_some_and(|known| !known.is(draft));
    let version = Version::of(draft.metadata.resource_version.as_deref());
    let shared = known.map_or_else(|| store.shared(key.clone()), |known| known.key.clone());
    let is_known = !remade && version.number().is_some() && known.is_some_and(|known| known.version == version);
    if is_known && worth == Known::Whole {
        return Ok(());
    }
    if remade {
        // Deleted and made again: whoever watches must hear both, since nothing of the old one carries over.
        store.remove(&key).map(gone_for_good).into_iter().for_each(&mut emit);
    }
    let (row, types) = intake(shared, draft)?;
    let old = store.insert(row.clone());
    if !is_known || worth == Known::Doubted {
        emit(Step::new(old, Some(row), types, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::{
        super::{kind::Kind, options::CacheOptions},
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
        feed: Feed,
        store: Store,
        kind: Kind,
    }

    impl Fixture {
        fn new() -> Self {
            let plan = CacheOptions::new().of(&KindName::of::<ConfigMap>(), true, &BTreeSet::new());
            let kind = Kind::new(KindName::of::<ConfigMap>(), plan);
            kind.declare::<ConfigMap>();
            Self { feed: Feed::new(None), store: Store::default(), kind }
        }

        /// What the events change, as `+a1`, `~a1`, `-a1` for name and UID.
        fn take(&mut self, events: impl IntoIterator<Item = Event<RawObject>>) -> Vec<String> {
            let mut changes = Vec::new();
            for event in events {
                let Self { feed, store, kind } = self;
                feed.take(store, event, &|key, draft| kind.intake(key, draft), |Step { old, new, .. }| {
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

    /// Row 5 of the faults: what was deleted while the watch was down is noticed by the list.
    #[test]
    fn row_5_a_relist_shows_what_was_deleted_and_remade_meanwhile() {
        let mut fixture = Fixture::new();
        assert_eq!(
            fixture.list(vec![object("a", "1", 1), object("b", "1", 2), object("c", "1", 3)]),
            ["+a1", "+b1", "+c1"]
        );
        let changes = fixture.list(vec![object("a", "1", 1), object("b", "2", 7), object("d", "1", 8)]);
        assert_eq!(changes, ["-b1", "+b2", "+d1", "-c1"]);
    }

    /// Row 6 of the faults: doubled and late events change nothing.
    #[test]
    fn row_6_doubled_and_late_events_are_ignored() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        assert_eq!(fixture.take([Event::Apply(object("a", "1", 5)), Event::Apply(object("a", "1", 5))]), ["~a1"]);
        assert!(fixture.take([Event::Apply(object("a", "1", 4))]).is_empty());
        assert_eq!(fixture.take([Event::Delete(object("a", "1", 6)), Event::Delete(object("a", "1", 6))]), ["-a1"]);
        assert!(fixture.take([Event::Apply(object("a", "1", 5))]).is_empty(), "what is deleted doesn't come back");
        assert_eq!(fixture.take([Event::Apply(object("a", "2", 7)), Event::Delete(object("a", "1", 6))]), ["+a2"]);
    }

    /// Etcd was restored to an older state, and versions begin from there.
    #[test]
    fn an_older_state_is_believed_when_it_is_proven() {
        let restored = || {
            let mut fixture = Fixture::new();
            fixture.list(vec![object("a", "1", 100), object("b", "1", 900)]);
            fixture.take([Event::Apply(object("c", "1", 1000))]);
            fixture.feed.note_version(1000);
            fixture
        };
        // By a list that has an object as it was.
        let mut fixture = restored();
        assert_eq!(fixture.list(vec![object("a", "1", 100), object("b", "1", 400)]), ["~b1", "-c1"]);
        assert_eq!((fixture.feed.observed(), fixture.feed.doubt()), (400, Some(Doubt::Certainty)));
        assert_eq!(fixture.take([Event::Apply(object("a", "1", 501))]), ["~a1"]);
        assert_eq!((fixture.feed.observed(), fixture.feed.doubt()), (501, None));

        // What is older than the list, and not in it, may be an echo of the past: another list tells.
        let changed = || vec![object("a", "1", 503)];
        let added = || vec![object("a", "1", 100), object("d", "1", 503)];
        for (list, change) in [(changed as fn() -> Vec<RawObject>, "~a1"), (added, "+d1")] {
            let mut fixture = restored();
            fixture.list(vec![object("a", "1", 100)]);
            assert_eq!(
                (fixture.feed.observed(), fixture.feed.doubt()),
                (1000, None),
                "the others may have been deleted"
            );
            assert!(fixture.take([Event::Apply(object("a", "1", 99))]).is_empty());
            assert_eq!(fixture.feed.doubt(), None);
            assert!(fixture.take(list().pop().map(Event::Apply)).is_empty());
            assert_eq!(fixture.feed.doubt(), Some(Doubt::Suspicion));
            assert_eq!(fixture.list(list()), [change]);
            assert_eq!((fixture.feed.observed(), fixture.feed.doubt()), (503, Some(Doubt::Certainty)));
        }

        // When the API server has said so, nothing is taken for what was seen.
        let mut fixture = restored();
        fixture.feed.forget();
        assert_eq!(fixture.list(vec![object("a", "1", 100)]), ["~a1", "-b1", "-c1"]);
        assert_eq!((fixture.feed.observed(), fixture.feed.doubt()), (100, None));
    }

    #[test]
    fn a_list_contains_the_writes_before_it_even_if_their_objects_are_gone() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        fixture.feed.note_version(9);
        fixture.take([Event::Init]);
        fixture.feed.note_version(12);
        fixture.take([Event::InitApply(object("a", "1", 1)), Event::InitDone]);
        assert_eq!(fixture.feed.observed(), 9, "the later write may have missed the list");
    }

    #[test]
    fn a_list_advances_the_version_only_when_it_is_complete() {
        let mut fixture = Fixture::new();
        fixture.take([Event::Init, Event::InitApply(object("z", "1", 40))]);
        assert_eq!((fixture.feed.observed(), fixture.feed.is_synced()), (0, false));
        fixture.take([Event::InitApply(object("a", "1", 3)), Event::InitDone]);
        assert_eq!((fixture.feed.observed(), fixture.feed.is_synced()), (40, true));
    }

    #[test]
    fn an_object_that_turns_undecodable_keeps_its_last_good_state() {
        let mut fixture = Fixture::new();
        fixture.list(vec![object("a", "1", 1)]);
        let bad = json!({
            "metadata": {"namespace": "a", "name": "a", "uid": "1", "resourceVersion": "5"}, "data": "not a map",
        });
        let bad = Event::Apply(serde_json::from_value(bad).expect("an object"));
        let Fixture { feed, store, kind } = &mut fixture;
        let taken = feed.take(store, bad, &|key, draft| kind.intake(key, draft), |_| {});
        assert_eq!(taken.map_err(|bad| bad.key.to_string()), Err("a/a".into()));
        let kept = store.get(&ObjectKey::namespaced("a", "a"));
        assert_eq!(kept.map(|kept| kept.version.clone()), Some(Version::Number(1)));
        assert_eq!(feed.observed(), 5, "the event was seen all the same");
    }
}
