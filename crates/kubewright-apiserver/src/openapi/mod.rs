//! OpenAPI documents, which clients use for completion, explanation and validation
//! (<https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>).
//!
//! * v3: an index, and one document for each group and version, at addresses that change with the content
//! * v2: one document for all, as JSON, or in protobuf for kubectl before 1.27
//!
//! A document is built at the first request, and rebuilt only after a change of the entries that it describes. All are
//! made from the same operations (`operations`) and schemas (`schemas`), which are those of Kubernetes' installer of
//! resources and of its generator for custom kinds.

mod operations;
mod parameters;
mod protobuf;
mod schemas;
mod v2;
mod v3;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{
    digest::hash,
    registry::{Registry, Resource},
    version::{MAJOR, MINOR},
};

/// The content types with which clients request v2 in protobuf, new and old. Responses always have the new one: the old
/// one isn't a valid media type, and clients fail to parse it.
const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// A serialized document.
#[derive(Clone, Debug)]
pub struct Document {
    /// The body.
    pub body: Bytes,
    /// A digest of the content: the `hash` in v3 addresses, and (in quotes) the entity tag.
    pub hash: Arc<str>,
}

impl Document {
    fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash = hash(&body).into();
        Self { body, hash }
    }
}

/// The documents of one server.
#[derive(Debug, Default)]
pub struct OpenApi {
    cache: Mutex<Cache>,
}

type Entries = Vec<Arc<Resource>>;

#[derive(Debug, Default)]
struct Cache {
    /// The documents by path, such as `apis/apps/v1`, with the entries that they were built from.
    v3: BTreeMap<String, (Entries, Document)>,
    /// The hashes of the documents in the index. The documents themselves are kept only if a client reads them.
    v3_hashes: BTreeMap<String, (Entries, Arc<str>)>,
    v2_json: Option<(Entries, Document)>,
    v2_protobuf: Option<(Entries, Document)>,
}

impl OpenApi {
    /// Returns `/openapi/v3`, the addresses of the documents of all groups and versions. `others` are the paths and
    /// entries of those that other servers serve.
    pub fn v3_index(&self, registry: &Registry, others: impl IntoIterator<Item = (String, Value)>) -> Document {
        let mut paths = Map::new();
        for (path, entries) in by_path(registry) {
            let address = format!("/openapi/v3/{path}?hash={}", self.v3_hash(&path, entries));
            paths.insert(path, json!({"serverRelativeURL": address}));
        }
        paths.extend(others);
        Document::new(json!({"paths": paths}).to_string())
    }

    /// Returns `/openapi/v3/{path}`, such as `api/v1` or `version`, or `None` if nothing is served there.
    pub fn v3(&self, registry: &Registry, path: &str) -> Option<Document> {
        let entries = by_path(registry).remove(path)?;
        Some(self.v3_of(path, entries))
    }

    /// Returns `/openapi/v2` in the format that an `Accept` header requests, and its content type. Protobuf is
    /// preferred, since only old versions of kubectl accept both, and they parse protobuf faster.
    pub fn v2(&self, registry: &Registry, accept: &str) -> (Document, &'static str) {
        if V2_PROTOBUF.iter().any(|name| accept.contains(name)) {
            (self.v2_protobuf(registry), V2_PROTOBUF[0])
        } else {
            (self.v2_json(registry), "application/json")
        }
    }

    fn v2_json(&self, registry: &Registry) -> Document {
        cached(&mut self.cache.lock().v2_json, registry.all(), |all| Document::new(v2::document(all).to_string()))
    }

    fn v2_protobuf(&self, registry: &Registry) -> Document {
        let make = |all: &[Arc<Resource>]| Document::new(protobuf::encode(&v2::document(all)));
        cached(&mut self.cache.lock().v2_protobuf, registry.all(), make)
    }

    fn v3_of(&self, path: &str, entries: Entries) -> Document {
        let mut cache = self.cache.lock();
        if let Some((made_from, document)) = cache.v3.get(path)
            && are_same(made_from, &entries)
        {
            return document.clone();
        }
        let document = v3_document(path, &entries);
        cache.v3_hashes.insert(path.into(), (entries.clone(), document.hash.clone()));
        cache.v3.insert(path.into(), (entries, document.clone()));
        document
    }

    fn v3_hash(&self, path: &str, entries: Entries) -> Arc<str> {
        let mut cache = self.cache.lock();
        if let Some((made_from, hash)) = cache.v3_hashes.get(path)
            && are_same(made_from, &entries)
        {
            return hash.clone();
        }
        let hash = v3_document(path, &entries).hash;
        cache.v3_hashes.insert(path.into(), (entries, hash.clone()));
        hash
    }
}

fn v3_document(path: &str, entries: &[Arc<Resource>]) -> Document {
    Document::new(v3::document(path, entries).to_string())
}

/// Returns the cached document, or a new one if the registry has changed.
fn cached(
    cache: &mut Option<(Entries, Document)>,
    all: Entries,
    make: impl FnOnce(&[Arc<Resource>]) -> Document,
) -> Document {
    match cache {
        Some((made_from, document)) if are_same(made_from, &all) => document.clone(),
        _ => {
            let document = make(&all);
            cache.insert((all, document)).1.clone()
        }
    }
}

fn are_same(entries: &[Arc<Resource>], others: &[Arc<Resource>]) -> bool {
    entries.len() == others.len() && entries.iter().zip(others).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Returns the entries of each document by its path. The documents beside the resources have none.
fn by_path(registry: &Registry) -> BTreeMap<String, Entries> {
    let all = registry.all();
    let mut paths: BTreeMap<_, _> = information(&all).into_iter().map(|path| (path, Entries::new())).collect();
    for entry in &all {
        paths.entry(base_path(entry)).or_default().push(entry.clone());
    }
    paths
}

/// Returns the paths of the documents beside the resources. Kubernetes' generator for custom kinds makes none of their
/// groups.
fn information(all: &[Arc<Resource>]) -> BTreeSet<String> {
    let groups = all.iter().filter(|entry| !entry.schema.custom).map(|entry| match &*entry.group {
        "" => "api".to_owned(),
        group => format!("apis/{group}"),
    });
    groups.chain(operations::OTHERS.iter().map(|path| (*path).to_owned())).chain(["apis".to_owned()]).collect()
}

/// Returns whether there is a v3 document at a path.
pub fn has_document(registry: &Registry, path: &str) -> bool {
    let has_version = |group: &str, version: &str| {
        registry.first(|entry| &*entry.group == group && &*entry.version == version).is_some()
    };
    match *path.split('/').collect::<Vec<_>>().as_slice() {
        ["api" | "apis"] => true,
        ["api", version] => has_version("", version),
        ["apis", group] => registry.first(|entry| &*entry.group == group && !entry.schema.custom).is_some(),
        ["apis", group, version] => has_version(group, version),
        _ => operations::OTHERS.contains(&path),
    }
}

/// Returns whether all entries of a document are custom kinds.
fn are_custom(entries: &[Arc<Resource>]) -> bool {
    !entries.is_empty() && entries.iter().all(|entry| entry.schema.custom)
}

/// Returns `api/v1`, or `apis/apps/v1`.
fn base_path(resource: &Resource) -> String {
    match &*resource.group {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    }
}

/// Returns the `info` of documents of built-in kinds.
fn info() -> Value {
    json!({"title": "Kubernetes", "version": format!("{MAJOR}.{MINOR}")})
}

fn security_schemes() -> Value {
    let description = "Bearer Token authentication";
    json!({"BearerToken": {"type": "apiKey", "description": description, "name": "authorization", "in": "header"}})
}

/// Returns the names of responses by their codes.
fn response(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        _ => "Accepted",
    }
}
