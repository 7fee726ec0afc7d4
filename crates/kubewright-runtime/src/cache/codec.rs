//! The stored form of the objects of one kind: packed, reduced to the fields that its types read, and decoded as each
//! type.

use std::{
    any::{TypeId, type_name},
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kubewright_packed::{self as packed, Dictionary, Document, Identity, RawObject, ReadError, ReadMarks};
use parking_lot::RwLock;
use serde::Deserialize;
use tracing::error;

use super::{
    decoded::{DecodedCache, Typed, Types},
    options::{NamespaceOptions, Plan},
    store::{Entry, Row, Version},
};
use crate::object::{AnyObject, KindName, ObjectKey};

/// The types, indexes and options of one kind.
///
/// Each object is decoded as every type when it arrives, and fields that none of them reads are not kept. A kind that
/// is only read through [views](crate::view) costs what they name.
pub(super) struct Codec {
    name: Arc<KindName>,
    api_version: String,
    plan: Plan,
    /// Whether discovery has said that the kind has no namespaces.
    is_cluster_scoped: AtomicBool,
    types: RwLock<Vec<Type>>,
    indexes: RwLock<Vec<Index>>,
    dictionary: Arc<Dictionary>,
    recent: DecodedCache,
}

/// A type that objects of the kind are decoded as.
#[derive(Clone, Copy)]
struct Type {
    id: TypeId,
    metadata_only: bool,
    decode: Decode,
    /// The generation of lists from which on all objects have the fields that it reads.
    since: u64,
}

type Decode = fn(&Document<'_>, &Dictionary) -> Result<Arc<Typed>, String>;

impl Type {
    fn of<T: AnyObject>(since: u64) -> Self {
        let decode = |document: &Document<'_>, dictionary: &Dictionary| {
            decode::<T>(document, dictionary).map(|object| Arc::new(object) as Arc<Typed>)
        };
        Self { id: TypeId::of::<T>(), metadata_only: T::metadata_api(), decode, since }
    }
}

/// A declared index: the function that gives the values by which an object is found.
#[derive(Clone)]
struct Index {
    name: &'static str,
    of: TypeId,
    values: Arc<Values>,
}

type Values = dyn Fn(&Typed) -> Vec<String> + Send + Sync;

/// An object on the API server that can't be decoded as one of the kind's types.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecodable {
    pub(super) key: ObjectKey,
    pub(super) reason: String,
}

impl Codec {
    pub(super) fn new(name: KindName, plan: Plan) -> Self {
        Self {
            api_version: name.api_version(),
            name: Arc::new(name),
            plan,
            is_cluster_scoped: AtomicBool::new(false),
            types: RwLock::default(),
            indexes: RwLock::default(),
            dictionary: Arc::default(),
            recent: DecodedCache::default(),
        }
    }

    pub(super) fn name(&self) -> &Arc<KindName> {
        &self.name
    }

    /// Returns the recently received objects.
    pub(super) fn recent(&self) -> &DecodedCache {
        &self.recent
    }

    /// Returns the period after which all objects are passed to handlers again.
    pub(super) fn streams_lists(&self) -> bool {
        self.plan.streams
    }

    pub(super) fn resync_period(&self) -> Option<Duration> {
        self.plan.resync
    }

    /// Returns whether discovery has to say first that the kind is namespaced.
    pub(super) fn needs_discovery(&self) -> bool {
        self.plan.needs_discovery
    }

    /// Replaces the watched namespaces by a single watch.
    pub(super) fn set_cluster_scoped(&self) {
        self.is_cluster_scoped.store(true, Ordering::Release);
    }

    /// Returns the watched namespaces, or a single `None` for all.
    pub(super) fn scopes(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        let is_cluster_scoped = self.is_cluster_scoped.load(Ordering::Acquire);
        let count = if is_cluster_scoped { 1 } else { self.plan.scopes.len() };
        self.plan.scopes.iter().take(count).map(move |(scope, _)| scope.as_deref().filter(|_| !is_cluster_scoped))
    }

    /// Returns the options for objects of a namespace, if the cache covers it.
    fn options_in(&self, namespace: Option<&str>) -> Option<&NamespaceOptions> {
        let number = self.scopes().position(|scope| scope.is_none() || scope == namespace)?;
        self.plan.scopes.get(number).map(|(_, options)| options)
    }

    /// Returns whether the cache is certain to contain an object of that namespace with these labels.
    pub(super) fn selects(&self, namespace: Option<&str>, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.options_in(namespace).is_some_and(|options| options.shows(labels))
    }

    /// Returns the selectors for the objects of a namespace, or of a watched scope.
    pub(super) fn selection(&self, namespace: Option<&str>) -> ListParams {
        self.options_in(namespace).map(NamespaceOptions::params).unwrap_or_default()
    }

    /// Keeps the fields that `T` reads of objects that arrive from now on. Returns the generation of lists from which
    /// on all objects have them: a new one, from `next`, if `T` was unknown.
    pub(super) fn declare<T: AnyObject>(&self, next: impl FnOnce() -> u64) -> u64 {
        let mut types = self.types.write();
        if let Some(known) = types.iter().find(|known| known.id == TypeId::of::<T>()) {
            return known.since;
        }
        let since = next();
        types.push(Type::of::<T>(since));
        since
    }

    /// Returns whether only metadata is read.
    pub(super) fn is_metadata_only(&self) -> bool {
        self.types.read().iter().all(|known| known.metadata_only)
    }

    /// Adds an index, or replaces the one with that name.
    pub(super) fn index<T: AnyObject>(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) {
        let values = move |object: &Typed| object.downcast_ref().map(&values).unwrap_or_default();
        let index = Index { name, of: TypeId::of::<T>(), values: Arc::new(values) };
        let mut indexes = self.indexes.write();
        match indexes.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = index,
            None => indexes.push(index),
        }
    }

    /// Returns the number of an index in the store.
    pub(super) fn index_number(&self, name: &str) -> Option<usize> {
        self.indexes.read().iter().position(|index| index.name == name)
    }

    /// Decodes an object as every type, and packs the fields that they read.
    pub(super) fn encode(&self, key: ObjectKey, draft: &RawObject) -> Result<(Row, Types), Undecodable> {
        let undecodable = |reason: String| Undecodable { key: ObjectKey::of(draft), reason };
        if draft.is_truncated() {
            return Err(undecodable(format!("it is nested more than {} levels deep", packed::MAX_DEPTH)));
        }
        let transformed = self.transformed(&key, draft).map_err(undecodable)?;
        let draft = transformed.as_ref().unwrap_or(draft);
        let meta = &draft.metadata;
        let marks = ReadMarks::new(draft);
        let (uid, version) = (meta.uid.as_ref(), meta.resource_version.as_ref());
        let identity = self.identity(&key, uid.map(|uid| uid as _), version.map(|version| version as _));
        let document = Document::raw(draft, identity, &marks);
        let own = packed::ownership(draft, &marks);
        let types = self.types.read();
        let decoded = types.iter().map(|known| Ok((known.id, (known.decode)(&document, &self.dictionary)?)));
        let types = decoded.collect::<Result<Types, String>>().map_err(undecodable)?;
        let bytes = packed::pack(draft, &marks, key.name(), &self.dictionary);
        let entry = Entry {
            uid: meta.uid.as_deref().map(Into::into),
            version: Version::of(meta.resource_version.as_deref()),
            controller: own.controller.map(Into::into),
            is_leaving: own.is_being_deleted,
            values: self.values(&types),
            key,
        };
        Ok((Row::new(entry, &bytes), types))
    }

    /// Returns the object without dropped fields and after the transform, if the options ask for either.
    fn transformed(&self, key: &ObjectKey, draft: &RawObject) -> Result<Option<RawObject>, String> {
        let shortened = (!self.plan.without.is_empty()).then(|| draft.without(&self.plan.without));
        let Some(transform) = self.options_in(key.namespace()).and_then(NamespaceOptions::transformation) else {
            return Ok(shortened);
        };
        let draft = shortened.as_ref().unwrap_or(draft);
        let identity = self.identity(key, None, None);
        let transform = || draft.transformed(identity, |object| transform.apply(object));
        // The function belongs to the operator, so it may panic.
        let transformed = catch_unwind(AssertUnwindSafe(transform));
        transformed.unwrap_or_else(|_| Err("the cache's transform panicked".into())).map(Some)
    }

    /// Returns the object's values in the indexes. The functions belong to the operator: if one panics, the object has
    /// no values in that index.
    fn values(&self, decoded: &[(TypeId, Arc<Typed>)]) -> Box<[(usize, Arc<str>)]> {
        let mut values = BTreeSet::new();
        for (number, index) in self.indexes.read().iter().enumerate() {
            let Some((_, object)) = decoded.iter().find(|(id, _)| *id == index.of) else { continue };
            match catch_unwind(AssertUnwindSafe(|| (index.values)(object.as_ref()))) {
                Ok(found) => values.extend(found.into_iter().map(|value| (number, Arc::from(value)))),
                Err(_) => error!(
                    kind = %self.name, index = index.name,
                    "an index function panicked: the index lacks the object"
                ),
            }
        }
        values.into_iter().collect()
    }

    /// Decodes the object of a row as a `T`.
    pub(super) fn decode<T: AnyObject>(&self, row: &Row) -> Option<Arc<T>> {
        if let Some(object) = self.recent.get(row) {
            return Some(object);
        }
        decode(&self.document(row), &self.dictionary)
            .inspect_err(|reason| {
                error!(
                    kind = %self.name, object = %row.key, r#type = type_name::<T>(), reason,
                    "failed to decode a cached object"
                );
            })
            .map(Arc::new)
            .ok()
    }

    pub(super) fn labels(&self, row: &Row) -> BTreeMap<String, String> {
        self.document(row).read::<Labelled>(&self.dictionary).unwrap_or_default().metadata.labels
    }

    pub(super) fn owners_of(&self, row: &Row) -> Vec<OwnerReference> {
        self.document(row).read::<Owned>(&self.dictionary).unwrap_or_default().metadata.owner_references
    }

    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    fn document<'a>(&'a self, row: &'a Row) -> Document<'a> {
        let uid = row.uid.as_ref().map(|uid| uid as _);
        let version = row.version.is_known().then_some(&row.version as _);
        Document::packed(row.bytes(), self.identity(&row.key, uid, version))
    }

    fn identity<'a>(
        &'a self,
        key: &'a ObjectKey,
        uid: Option<&'a dyn fmt::Display>,
        resource_version: Option<&'a dyn fmt::Display>,
    ) -> Identity<'a> {
        Identity {
            api_version: &self.api_version,
            kind: &self.name.kind,
            name: Some(key.name()),
            namespace: key.namespace(),
            uid,
            resource_version,
        }
    }
}

/// Decodes an object as a `T`. Its `Deserialize` may belong to the operator: a panic in it makes the object
/// undecodable.
fn decode<T: AnyObject>(document: &Document<'_>, dictionary: &Dictionary) -> Result<T, String> {
    let read = || if T::metadata_api() { document.read_metadata(dictionary) } else { document.read(dictionary) };
    let read = catch_unwind(AssertUnwindSafe(read));
    read.map_err(|_| format!("decoding {} panicked", type_name::<T>()))?.map_err(|error: ReadError| error.to_string())
}

#[derive(Debug, Default, Deserialize)]
struct Owned {
    metadata: OwnersOf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnersOf {
    #[serde(deserialize_with = "or_default")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Default, Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

/// Deserializes `null` as the default.
fn or_default<'de, T: Deserialize<'de> + Default, D: serde::Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
