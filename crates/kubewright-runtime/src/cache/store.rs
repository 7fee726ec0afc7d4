//! The objects of one kind, packed, with their indexes. Pure: no locks, no I/O.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    ops::{Bound, Deref},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table};
use kubewright_packed::{RawObject, Uuid};
use slab::Slab;
use triomphe::ThinArc;

use crate::object::ObjectKey;

/// An object's UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Uid {
    Uuid(Uuid),
    Other(Arc<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Uuid::parse(text.as_bytes()).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A resource version: a number as of Kubernetes 1.35, which may be missing in tests only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// 0 if there is none.
    Number(u64),
    Other(Arc<str>),
}

impl Version {
    pub(super) fn of(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Number(0),
            Some(text) => match text.parse::<u64>() {
                // As a number is written: without a sign, and without zeros before it.
                Ok(number) if text.starts_with(|first: char| matches!(first, '1'..='9')) => Self::Number(number),
                _ => Self::Other(text.into()),
            },
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number).filter(|number| *number > 0),
            Self::Other(text) => text.parse().ok(),
        }
    }

    /// Whether there is one.
    pub(super) fn is_known(&self) -> bool {
        *self != Self::Number(0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// What is kept of an object. What is asked of many objects at a time needn't be unpacked.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: ObjectKey,
    pub(super) uid: Option<Uid>,
    pub(super) version: Version,
    /// The UID of the owner that has `controller: true`.
    pub(super) controller: Option<Uid>,
    /// Whether it is being deleted.
    pub(super) is_leaving: bool,
    /// Its values in the declared indexes, by the number of the index.
    pub(super) values: Box<[(usize, Arc<str>)]>,
}

/// An [`Entry`] and the rest of its object, [packed](kubewright_packed), in one piece of memory that store, indexes and readers
/// share; ordered by its key.
#[derive(Clone, Debug)]
pub(super) struct Row(ThinArc<Entry, u8>);

impl Row {
    pub(super) fn new(entry: Entry, bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(entry, bytes))
    }

    /// The rest of the object.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether it is of the same object, and not of an earlier or later one of its name.
    pub(super) fn is(&self, draft: &RawObject) -> bool {
        self.uid == draft.metadata.uid.as_deref().map(Into::into)
    }

    /// Whether it is this very state of the object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.ptr() == other.0.ptr()
    }

    pub(super) fn has_uid(&self, uid: &str) -> bool {
        self.uid.as_ref() == Some(&Uid::from(uid))
    }
}

impl Deref for Row {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.0.header.header
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Row {}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// Where a row is: of no kind there are four billion objects.
type Place = u32;

/// Objects by key, by controller, and by the values of the declared indexes.
///
/// An event looks its object up several times, and in a tree each step down is another place in memory. So the keys are
/// hashed, and whoever wants them in order pays for it. Each namespace has a table of its own: names that somebody has
/// chosen to fall on one another are slow for that namespace only. An object's row has a place as long as the object is there, and
/// all else goes by that: an update that leaves the controller as it is looks for it nowhere else.
#[derive(Debug, Default)]
pub(super) struct Store {
    rows: Slab<Row>,
    /// By namespace, which is empty for what has none.
    namespaces: BTreeMap<Arc<str>, HashTable<Place>>,
    /// By the hash of the controller's UID. Where two have one by chance, the rows tell them apart.
    children: BTreeSet<(u32, Place)>,
    indexes: Vec<BTreeSet<(Arc<str>, Place)>>,
}

impl Store {
    /// Puts an object in the place of what its key holds, which is returned.
    pub(super) fn insert(&mut self, row: Row) -> Option<Row> {
        let namespace = row.key.namespace().unwrap_or_default();
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), HashTable::new());
        }
        let (rows, places) = (&mut self.rows, self.namespaces.get_mut(namespace)?);
        let rehash = |place: &Place| at(rows, *place).map_or(0, |known| hash(known.key.name()));
        let (place, old) = match places.entry(hash(row.key.name()), is_of(rows, &row.key), rehash) {
            hash_table::Entry::Occupied(known) => {
                let known = *known.get();
                (known, rows.get_mut(known as usize).map(|old| std::mem::replace(old, row.clone())))
            }
            hash_table::Entry::Vacant(vacant) => {
                let place = rows.insert(row.clone()) as Place;
                vacant.insert(place);
                (place, None)
            }
        };
        if let Some(old) = old.as_ref().filter(|old| old.values != row.values) {
            self.unlink_values(old, place);
        }
        for (index, value) in &row.values {
            if self.indexes.len() <= *index {
                self.indexes.resize_with(index + 1, BTreeSet::new);
            }
            // Also what is there already, so that the row and the index share the text.
            self.indexes[*index].replace((value.clone(), place));
        }
        let former = old.as_ref().and_then(|old| old.controller.as_ref());
        if former != row.controller.as_ref() {
            self.unlink_child(former, place);
            self.children.extend(row.controller.iter().map(|controller| (short_hash(controller), place)));
        }
        old
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Row> {
        let namespace = key.namespace().unwrap_or_default();
        let places = self.namespaces.get_mut(namespace)?;
        let known = places.find_entry(hash(key.name()), is_of(&self.rows, key)).ok()?;
        let (place, _) = known.remove();
        if places.is_empty() {
            self.namespaces.remove(namespace);
        }
        let old = self.rows.try_remove(place as usize)?;
        self.unlink_values(&old, place);
        self.unlink_child(old.controller.as_ref(), place);
        Some(old)
    }

    fn unlink_values(&mut self, row: &Row, place: Place) {
        for (index, value) in &row.values {
            if let Some(index) = self.indexes.get_mut(*index) {
                index.remove(&(value.clone(), place));
            }
        }
    }

    fn unlink_child(&mut self, controller: Option<&Uid>, place: Place) {
        if let Some(controller) = controller {
            self.children.remove(&(short_hash(controller), place));
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Row> {
        let places = self.namespaces.get(key.namespace().unwrap_or_default())?;
        at(&self.rows, *places.find(hash(key.name()), is_of(&self.rows, key))?)
    }

    /// A key of an object that isn't there, sharing the name of its namespace with its neighbours.
    pub(super) fn shared(&self, key: ObjectKey) -> ObjectKey {
        let neighbours = self.namespaces.get(key.namespace().unwrap_or_default());
        match neighbours.and_then(|places| at(&self.rows, *places.iter().next()?)) {
            Some(row) if row.key.namespace() == key.namespace() => row.key.sibling(key.name()),
            _ => key,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The objects of a namespace, or all of them, in the order of their keys, which are sorted for it.
    pub(super) fn within(&self, namespace: Option<&str>) -> impl Iterator<Item = &Row> {
        let tables = match namespace {
            Some(namespace) => {
                self.namespaces.range::<str, _>((Bound::Included(namespace), Bound::Included(namespace)))
            }
            None => self.namespaces.range::<str, _>(..),
        };
        tables.flat_map(|(_, places)| self.sorted(places.iter().copied()))
    }

    /// Whether there is any object of a namespace, or at all.
    pub(super) fn has_any(&self, namespace: Option<&str>) -> bool {
        namespace.map_or(!self.namespaces.is_empty(), |namespace| self.namespaces.contains_key(namespace))
    }

    /// The objects with this value in the index of this number, in the order of their keys, which are sorted for it.
    pub(super) fn indexed(&self, index: usize, value: &str) -> impl Iterator<Item = &Row> {
        let places = self.indexes.get(index).map(|places| places.range((value.into(), Place::MIN)..));
        let same = places.into_iter().flatten().take_while(|(found, _)| found.as_ref() == value);
        self.sorted(same.map(|(_, place)| *place)).into_iter()
    }

    /// The objects whose controller has this UID, in the order of their keys, which are sorted for it.
    pub(super) fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Row> {
        let uid = Uid::from(uid);
        let hash = short_hash(&uid);
        let mut rows =
            self.sorted(self.children.range((hash, Place::MIN)..=(hash, Place::MAX)).map(|(_, place)| *place));
        rows.retain(|row| row.controller.as_ref() == Some(&uid));
        rows.into_iter()
    }

    fn sorted(&self, places: impl Iterator<Item = Place>) -> Vec<&Row> {
        let mut rows = places.filter_map(|place| at(&self.rows, place)).collect::<Vec<_>>();
        rows.sort_unstable();
        rows
    }
}

fn at(rows: &Slab<Row>, place: Place) -> Option<&Row> {
    rows.get(place as usize)
}

fn is_of<'a>(rows: &'a Slab<Row>, key: &'a ObjectKey) -> impl Fn(&Place) -> bool + 'a {
    |place| at(rows, *place).is_some_and(|row| row.key == *key)
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Half of it, where there is one for each object.
fn short_hash(uid: &Uid) -> u32 {
    hash(uid) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(namespace: &str, name: &str, controller: &str, values: &[&str]) -> Row {
        let entry = Entry {
            key: ObjectKey::namespaced(namespace, name),
            uid: Some(format!("{namespace}-{name}").as_str().into()),
            version: Version::Number(1),
            controller: Some(controller.into()),
            is_leaving: false,
            values: values.iter().map(|value| (0, Arc::from(*value))).collect(),
        };
        Row::new(entry, &[])
    }

    fn names<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
        rows.map(|row| row.key.to_string()).collect()
    }

    #[test]
    fn children_are_found_by_their_controller() {
        let mut store = Store::default();
        for (name, owner) in [("b", "u1"), ("a", "u1"), ("c", "u2")] {
            store.insert(row("x", name, owner, &[]));
        }
        assert_eq!(names(store.controlled_by("u1")), ["x/a", "x/b"]);
        assert_eq!(names(store.controlled_by("u")), [""; 0]);

        store.insert(row("x", "a", "u2", &[]));
        store.remove(&ObjectKey::namespaced("x", "b"));
        assert_eq!(names(store.controlled_by("u1")), [""; 0]);
        assert_eq!(names(store.controlled_by("u2")), ["x/a", "x/c"]);
    }

    #[test]
    fn owners_with_one_hash_have_each_their_own_children() {
        let mut known = BTreeMap::new();
        let mut owners = (0..).map(|number| format!("u{number}"));
        let pair = owners.find_map(|owner| {
            let other = known.insert(short_hash(&owner.as_str().into()), owner.clone())?;
            Some([other, owner])
        });
        let [one, other] = pair.expect("there are more names than hashes");
        let mut store = Store::default();
        for (name, owner) in [("a", &one), ("b", &other), ("c", &one), ("d", &other)] {
            store.insert(row("x", name, owner, &[]));
        }
        assert_eq!(names(store.controlled_by(&one)), ["x/a", "x/c"]);
        assert_eq!(names(store.controlled_by(&other)), ["x/b", "x/d"]);
    }

    #[test]
    fn a_namespace_is_a_range_of_keys() {
        let mut store = Store::default();
        for (namespace, name) in [("b", "1"), ("a", "1"), ("ab", "1"), ("a", "2")] {
            store.insert(row(namespace, name, "u", &[]));
        }
        assert_eq!(names(store.within(Some("a"))), ["a/1", "a/2"]);
        assert_eq!(names(store.within(None)).len(), 4);
    }

    #[test]
    fn an_index_follows_its_objects() {
        let mut store = Store::default();
        store.insert(row("a", "1", "u", &["red", "round"]));
        store.insert(row("a", "2", "u", &["red"]));
        assert_eq!(names(store.indexed(0, "red")), ["a/1", "a/2"]);
        store.insert(row("a", "1", "u", &["round"]));
        assert_eq!(names(store.indexed(0, "red")), ["a/2"]);
        assert_eq!(names(store.indexed(0, "r")), [""; 0]);
        assert_eq!(names(store.indexed(7, "red")), [""; 0]);
        store.remove(&ObjectKey::namespaced("a", "1"));
        assert_eq!(names(store.indexed(0, "round")), [""; 0]);
    }

    #[test]
    fn what_changes_is_found_in_its_new_state() {
        let mut store = Store::default();
        store.insert(row("a", "1", "u", &["red"]));
        let new = row("a", "1", "u", &["red"]);
        store.insert(new.clone());
        for found in [store.get(&new.key), store.indexed(0, "red").next(), store.controlled_by("u").next()] {
            assert!(found.is_some_and(|found| found.is_same(&new)));
        }
    }

    #[test]
    fn keys_of_a_namespace_share_its_name() {
        let mut store = Store::default();
        store.insert(row("a", "1", "u", &[]));
        store.insert(row("b", "1", "u", &[]));
        for name in ["0", "1", "2"] {
            let key = store.shared(ObjectKey::namespaced("a", name));
            assert_eq!(key, ObjectKey::namespaced("a", name));
            let known = store.get(&ObjectKey::namespaced("a", "1")).and_then(|row| row.key.namespace());
            assert!(std::ptr::eq(key.namespace().unwrap_or_default(), known.unwrap_or_default()), "{name}");
        }
    }

    #[test]
    fn versions_are_numbers_if_they_can_be() {
        assert_eq!(Version::of(Some("12")), Version::Number(12));
        assert_eq!(Version::of(Some("012")).to_string(), "012");
        assert_eq!(Version::of(Some("x")).to_string(), "x");
        assert_eq!((Version::of(None).is_known(), Version::of(None).number()), (false, None));
        assert_eq!(size_of::<Entry>(), 120);
    }
}
