//! The objects of one kind, packed, with their indexes. Pure: no locks, no I/O.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    ops::{Bound, Deref},
    sync::{Arc, LazyLock},
};

use hashbrown::{HashTable, hash_table};
use triomphe::ThinArc;

use super::packed::{Draft, Uuid};
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

/// An [`Entry`] and the rest of its object, [packed](super::packed), in one piece of memory that store, indexes and readers
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

    /// Not an object: it is before every one.
    fn first() -> Self {
        let entry = Entry {
            key: ObjectKey::cluster(""),
            uid: None,
            version: Version::Number(0),
            controller: None,
            is_leaving: false,
            values: Box::default(),
        };
        Self::new(entry, &[])
    }

    /// Whether it is of the same object, and not of an earlier or later one of its name.
    pub(super) fn is(&self, draft: &Draft) -> bool {
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

/// Before every object.
static FIRST: LazyLock<Row> = LazyLock::new(Row::first);

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

/// A [`Row`] among those of its controller.
#[derive(Clone, Debug)]
struct Child {
    /// The hashes of the controller's UID and of the name: what is compared, mostly, is in the tree itself.
    controller: u64,
    name: u64,
    row: Row,
}

impl Child {
    fn new(row: Row) -> Self {
        let controller = row.controller.as_ref().map(hash).unwrap_or_default();
        Self { controller, name: hash(row.key.name()), row }
    }

    /// Not an object, but the first place where one with this controller could be.
    fn first(controller: &Uid) -> Self {
        Self { controller: hash(controller), name: 0, row: FIRST.clone() }
    }
}

fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

impl PartialEq for Child {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Child {}

impl PartialOrd for Child {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Child {
    fn cmp(&self, other: &Self) -> Ordering {
        let hashes = (self.controller, self.name).cmp(&(other.controller, other.name));
        hashes.then_with(|| (&self.row.controller, &self.row).cmp(&(&other.row.controller, &other.row)))
    }
}

/// Objects by key, by controller, and by the values of the declared indexes.
///
/// An event looks its object up several times, and in a tree each step down is another place in memory. So the keys are
/// hashed, and whoever wants them in order pays for it. Each namespace has a table of its own: names that somebody has
/// chosen to fall on one another are slow for that namespace only.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// By namespace, which is empty for what has none.
    namespaces: BTreeMap<Arc<str>, HashTable<Row>>,
    len: usize,
    children: BTreeSet<Child>,
    indexes: Vec<BTreeSet<(Arc<str>, Row)>>,
}

impl Store {
    /// Puts an object in the place of what its key holds, which is returned.
    pub(super) fn insert(&mut self, row: Row) -> Option<Row> {
        let old = self.place(row.clone());
        if let Some(old) = &old {
            // Mostly a change leaves it where it is: then it takes its old state's place, which costs one search.
            if old.values != row.values {
                self.unlink_values(old);
            }
            if old.controller != row.controller {
                self.unlink_child(old);
            }
        }
        for (index, value) in &row.values {
            if self.indexes.len() <= *index {
                self.indexes.resize_with(index + 1, BTreeSet::new);
            }
            self.indexes[*index].replace((value.clone(), row.clone()));
        }
        if row.controller.is_some() {
            self.children.replace(Child::new(row));
        }
        old
    }

    fn place(&mut self, row: Row) -> Option<Row> {
        let namespace = row.key.namespace().unwrap_or_default();
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), HashTable::new());
        }
        let rows = self.namespaces.get_mut(namespace)?;
        match rows.entry(hash(row.key.name()), |known| known.key == row.key, |known| hash(known.key.name())) {
            hash_table::Entry::Occupied(mut known) => Some(std::mem::replace(known.get_mut(), row)),
            hash_table::Entry::Vacant(place) => {
                place.insert(row);
                self.len += 1;
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Row> {
        let namespace = key.namespace().unwrap_or_default();
        let rows = self.namespaces.get_mut(namespace)?;
        let known = rows.find_entry(hash(key.name()), |known| known.key == *key).ok()?;
        let (old, _) = known.remove();
        if rows.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.len -= 1;
        self.unlink_values(&old);
        self.unlink_child(&old);
        Some(old)
    }

    fn unlink_values(&mut self, row: &Row) {
        for (index, value) in &row.values {
            if let Some(index) = self.indexes.get_mut(*index) {
                index.remove(&(value.clone(), row.clone()));
            }
        }
    }

    fn unlink_child(&mut self, row: &Row) {
        if row.controller.is_some() {
            self.children.remove(&Child::new(row.clone()));
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Row> {
        let rows = self.namespaces.get(key.namespace().unwrap_or_default())?;
        rows.find(hash(key.name()), |row| row.key == *key)
    }

    /// A key of an object that isn't there, sharing the name of its namespace with its neighbours.
    pub(super) fn shared(&self, key: ObjectKey) -> ObjectKey {
        let neighbours = self.namespaces.get(key.namespace().unwrap_or_default());
        match neighbours.and_then(|rows| rows.iter().next()) {
            Some(row) if row.key.namespace() == key.namespace() => row.key.sibling(key.name()),
            _ => key,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The objects of a namespace, or all of them, in the order of their keys, which are sorted for it.
    pub(super) fn within(&self, namespace: Option<&str>) -> impl Iterator<Item = &Row> {
        let tables = match namespace {
            Some(namespace) => {
                self.namespaces.range::<str, _>((Bound::Included(namespace), Bound::Included(namespace)))
            }
            None => self.namespaces.range::<str, _>(..),
        };
        tables.flat_map(|(_, rows)| {
            let mut rows = rows.iter().collect::<Vec<_>>();
            rows.sort_unstable();
            rows
        })
    }

    /// Whether there is any object of a namespace, or at all.
    pub(super) fn has_any(&self, namespace: Option<&str>) -> bool {
        namespace.map_or(!self.namespaces.is_empty(), |namespace| self.namespaces.contains_key(namespace))
    }

    /// The objects with this value in the index of this number, in the order of their keys.
    pub(super) fn indexed<'a>(&'a self, index: usize, value: &'a str) -> impl Iterator<Item = &'a Row> {
        let rows = self.indexes.get(index).map(|rows| rows.range((value.into(), FIRST.clone())..));
        rows.into_iter().flatten().take_while(move |(found, _)| found.as_ref() == value).map(|(_, row)| row)
    }

    /// The objects whose controller has this UID, in the order of their keys, which are sorted for it.
    pub(super) fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Row> {
        let uid = Uid::from(uid);
        let first = Child::first(&uid);
        let same = self.children.range(&first..).take_while(|child| child.controller == first.controller);
        let mut rows =
            same.map(|child| &child.row).filter(|row| row.controller.as_ref() == Some(&uid)).collect::<Vec<_>>();
        rows.sort_unstable();
        rows.into_iter()
    }
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
