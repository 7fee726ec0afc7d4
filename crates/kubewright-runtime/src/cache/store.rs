//! The packed objects of one kind, with their indexes. No locks, no I/O.

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

/// A resource version, which is a number as of Kubernetes 1.35. It is absent in tests only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// 0 if absent.
    Number(u64),
    Other(Arc<str>),
}

impl Version {
    pub(super) fn of(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Number(0),
            Some(text) => match text.parse::<u64>() {
                // Only the canonical form: without sign and leading zeros.
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

    /// Returns whether the version is present.
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

/// The part of an object that queries over many objects need, so that these unpack nothing.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: ObjectKey,
    pub(super) uid: Option<Uid>,
    pub(super) version: Version,
    /// The UID of the owner that has `controller: true`.
    pub(super) controller: Option<Uid>,
    /// Whether the object is being deleted.
    pub(super) is_leaving: bool,
    /// The object's values in the declared indexes, each with the number of the index.
    pub(super) values: Box<[(usize, Arc<str>)]>,
}

/// An [`Entry`] and the rest of its object, [packed](kubewright_packed), in one allocation that store, indexes and
/// readers share. Ordered by key.
#[derive(Clone, Debug)]
pub(super) struct Row(ThinArc<Entry, u8>);

impl Row {
    pub(super) fn new(entry: Entry, bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(entry, bytes))
    }

    /// Returns the packed rest of the object.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// Returns whether the row has the same UID, and not that of an earlier or later object with the name.
    pub(super) fn is(&self, draft: &RawObject) -> bool {
        self.uid == draft.metadata.uid.as_deref().map(Into::into)
    }

    /// Returns whether both are the same allocation, and so the same state of the object.
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

/// The slot of a row in the slab: no kind has four billion objects.
type Slot = u32;

/// Objects by key, by controller, and by the values of the declared indexes.
///
/// An event looks its object up several times, and each step down a tree is another cache line. So keys are hashed, and
/// queries sort their results. Each namespace has a table of its own: names that were chosen to collide slow down that
/// namespace only. A row keeps its slot in the slab while its object exists, and all tables refer to that slot: an
/// update that leaves the controller unchanged touches no other table.
#[derive(Debug, Default)]
pub(super) struct Store {
    rows: Slab<Row>,
    /// By namespace; empty for cluster-scoped objects.
    namespaces: BTreeMap<Arc<str>, HashTable<Slot>>,
    /// By the hash of the controller's UID. The rows distinguish UIDs with the same hash.
    children: BTreeSet<(u32, Slot)>,
    indexes: Vec<BTreeSet<(Arc<str>, Slot)>>,
}

impl Store {
    /// Inserts an object, and returns the one with the same key that it replaces.
    pub(super) fn insert(&mut self, row: Row) -> Option<Row> {
        let namespace = row.key.namespace().unwrap_or_default();
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), HashTable::new());
        }
        let (rows, slots) = (&mut self.rows, self.namespaces.get_mut(namespace)?);
        let rehash = |slot: &Slot| at(rows, *slot).map_or(0, |known| hash(known.key.name()));
        let (slot, old) = match slots.entry(hash(row.key.name()), is_of(rows, &row.key), rehash) {
            hash_table::Entry::Occupied(known) => {
                let known = *known.get();
                (known, rows.get_mut(known as usize).map(|old| std::mem::replace(old, row.clone())))
            }
            hash_table::Entry::Vacant(vacant) => {
                let slot = rows.insert(row.clone()) as Slot;
                vacant.insert(slot);
                (slot, None)
            }
        };
        if let Some(old) = old.as_ref().filter(|old| old.values != row.values) {
            self.unlink_values(old, slot);
        }
        for (index, value) in &row.values {
            if self.indexes.len() <= *index {
                self.indexes.resize_with(index + 1, BTreeSet::new);
            }
            // Replaces an equal value, too, so that row and index share the text.
            self.indexes[*index].replace((value.clone(), slot));
        }
        let former = old.as_ref().and_then(|old| old.controller.as_ref());
        if former != row.controller.as_ref() {
            self.unlink_child(former, slot);
            self.children.extend(row.controller.iter().map(|controller| (short_hash(controller), slot)));
        }
        old
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Row> {
        let namespace = key.namespace().unwrap_or_default();
        let slots = self.namespaces.get_mut(namespace)?;
        let known = slots.find_entry(hash(key.name()), is_of(&self.rows, key)).ok()?;
        let (slot, _) = known.remove();
        if slots.is_empty() {
            self.namespaces.remove(namespace);
        }
        let old = self.rows.try_remove(slot as usize)?;
        self.unlink_values(&old, slot);
        self.unlink_child(old.controller.as_ref(), slot);
        Some(old)
    }

    fn unlink_values(&mut self, row: &Row, slot: Slot) {
        for (index, value) in &row.values {
            if let Some(index) = self.indexes.get_mut(*index) {
                index.remove(&(value.clone(), slot));
            }
        }
    }

    fn unlink_child(&mut self, controller: Option<&Uid>, slot: Slot) {
        if let Some(controller) = controller {
            self.children.remove(&(short_hash(controller), slot));
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Row> {
        let slots = self.namespaces.get(key.namespace().unwrap_or_default())?;
        at(&self.rows, *slots.find(hash(key.name()), is_of(&self.rows, key))?)
    }

    /// Returns the key of a new object such that it shares the namespace's text with the other keys.
    pub(super) fn shared(&self, key: ObjectKey) -> ObjectKey {
        let neighbours = self.namespaces.get(key.namespace().unwrap_or_default());
        match neighbours.and_then(|slots| at(&self.rows, *slots.iter().next()?)) {
            Some(row) if row.key.namespace() == key.namespace() => row.key.sibling(key.name()),
            _ => key,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the objects of a namespace, or all of them, sorted by key.
    pub(super) fn within(&self, namespace: Option<&str>) -> impl Iterator<Item = &Row> {
        let tables = match namespace {
            Some(namespace) => {
                self.namespaces.range::<str, _>((Bound::Included(namespace), Bound::Included(namespace)))
            }
            None => self.namespaces.range::<str, _>(..),
        };
        tables.flat_map(|(_, slots)| self.sorted(slots.iter().copied()))
    }

    /// Returns whether there is any object in a namespace, or at all.
    pub(super) fn has_any(&self, namespace: Option<&str>) -> bool {
        namespace.map_or(!self.namespaces.is_empty(), |namespace| self.namespaces.contains_key(namespace))
    }

    /// Returns the objects with this value in the index with this number, sorted by key.
    pub(super) fn indexed(&self, index: usize, value: &str) -> impl Iterator<Item = &Row> {
        let slots = self.indexes.get(index).map(|slots| slots.range((value.into(), Slot::MIN)..));
        let same = slots.into_iter().flatten().take_while(|(found, _)| found.as_ref() == value);
        self.sorted(same.map(|(_, slot)| *slot)).into_iter()
    }

    /// Returns the objects whose controller has this UID, sorted by key.
    pub(super) fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Row> {
        let uid = Uid::from(uid);
        let hash = short_hash(&uid);
        let mut rows = self.sorted(self.children.range((hash, Slot::MIN)..=(hash, Slot::MAX)).map(|(_, slot)| *slot));
        rows.retain(|row| row.controller.as_ref() == Some(&uid));
        rows.into_iter()
    }

    fn sorted(&self, slots: impl Iterator<Item = Slot>) -> Vec<&Row> {
        let mut rows = slots.filter_map(|slot| at(&self.rows, slot)).collect::<Vec<_>>();
        rows.sort_unstable();
        rows
    }
}

fn at(rows: &Slab<Row>, slot: Slot) -> Option<&Row> {
    rows.get(slot as usize)
}

fn is_of<'a>(rows: &'a Slab<Row>, key: &'a ObjectKey) -> impl Fn(&Slot) -> bool + 'a {
    |slot| at(rows, *slot).is_some_and(|row| row.key == *key)
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Half of the hash, for tables with an entry for each object.
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
    fn an_updated_object_is_found_in_its_new_state() {
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
