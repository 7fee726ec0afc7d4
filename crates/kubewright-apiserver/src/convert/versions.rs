//! The versions of a custom kind, and how an object gets from one to another.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use kubewright_apimachinery::{schema, status::Status};
use parking_lot::Mutex;
use serde_json::Value;

use super::review::Webhook;
use crate::{registry::ResourceSchema, server::Inner, storage::Stored};

/// How many converted states of objects are remembered: watchers of one version share them.
const REMEMBERED: usize = 256;

/// What a definition says of its versions.
pub(crate) struct Definition {
    /// `Widget`
    pub(crate) kind: Arc<str>,
    /// The schemas of all versions, served or not, by `apiVersion`.
    pub(crate) schemas: BTreeMap<String, Arc<ResourceSchema>>,
    /// Who converts; without one a conversion sets `apiVersion`, and what the other version doesn't know is dropped.
    pub(crate) webhook: Option<Webhook>,
}

/// The versions of a custom kind. All entries of one definition share it; a definition that changes makes a new one.
pub struct Versions {
    pub(super) definition: Definition,
    /// What was converted last: revision and version, and the object.
    recent: Mutex<VecDeque<(u64, String, Arc<Stored>)>>,
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Definition { kind, schemas, webhook } = &self.definition;
        let versions: Vec<_> = schemas.keys().collect();
        f.debug_struct("Versions").field("kind", kind).field("versions", &versions).field("webhook", webhook).finish()
    }
}

impl Versions {
    pub(crate) fn new(definition: Definition) -> Self {
        Self { definition, recent: Mutex::default() }
    }

    /// The schema of a version, served or not.
    pub(crate) fn schema(&self, api_version: &str) -> Option<&Arc<ResourceSchema>> {
        self.definition.schemas.get(api_version)
    }

    /// Stored objects in another version, each at its revision. As in Kubernetes they get the defaults of the version in
    /// which they are stored.
    pub(super) async fn load(
        &self,
        server: &Arc<Inner>,
        objects: Vec<Arc<Stored>>,
        to: &str,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        let mut shown: Vec<_> = objects.iter().map(|stored| self.remembered(stored, to)).collect();
        let unknown: Vec<_> = (0..objects.len()).filter(|&index| shown[index].is_none()).collect();
        let mut values = Vec::with_capacity(unknown.len());
        for &index in &unknown {
            let mut value = Arc::unwrap_or_clone(objects[index].value());
            if let Some(schema) = value["apiVersion"].as_str().and_then(|version| self.schema(version)) {
                schema::prune(schema.node(), &mut value);
                schema::default(schema.node(), &mut value);
            }
            values.push(value);
        }
        let converted = self.convert(server, values, to).await?;
        for (index, value) in unknown.into_iter().zip(converted) {
            let stored = Arc::new(objects[index].shown_as(value));
            self.remember(&stored, to);
            shown[index] = Some(stored);
        }
        Ok(shown.into_iter().flatten().collect())
    }

    fn remembered(&self, stored: &Stored, to: &str) -> Option<Arc<Stored>> {
        let recent = self.recent.lock();
        let known = recent.iter().find(|(revision, version, _)| (*revision, &**version) == (stored.revision(), to));
        known.map(|(_, _, shown)| shown.clone())
    }

    /// A state of an object is known by its revision. One that was only rehearsed has none.
    fn remember(&self, shown: &Arc<Stored>, to: &str) {
        if shown.revision() == 0 {
            return;
        }
        let mut recent = self.recent.lock();
        recent.push_back((shown.revision(), to.to_owned(), shown.clone()));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    /// One object in another version.
    pub(super) async fn convert_one(&self, server: &Arc<Inner>, object: Value, to: &str) -> Result<Value, Status> {
        let converted = self.convert(server, vec![object], to).await?.pop();
        converted.ok_or_else(|| Status::internal("a conversion lost its object"))
    }

    /// Objects in another version, in their order. Those that have it already stay as they are; what the version's schema
    /// doesn't know is dropped from the others.
    pub(super) async fn convert(
        &self,
        server: &Arc<Inner>,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, Status> {
        let others: Vec<_> = (0..objects.len()).filter(|&index| objects[index]["apiVersion"] != to).collect();
        if others.is_empty() {
            return Ok(objects);
        }
        let unknown = |what: &str, version: &str| {
            failed(format!("request to convert CR {what} an invalid group/version: {version}"))
        };
        let schema = self.schema(to).ok_or_else(|| unknown("to", to))?;
        for &index in &others {
            let from = objects[index]["apiVersion"].as_str().unwrap_or_default();
            self.schema(from).ok_or_else(|| unknown("from", from))?;
        }
        let sent = others.iter().map(|&index| objects[index].take()).collect();
        let converted = match &self.definition.webhook {
            None => nothing_but_the_version(sent, to),
            Some(webhook) => webhook.convert(server, &self.definition.kind, sent, to).await.map_err(failed)?,
        };
        for (index, mut object) in others.into_iter().zip(converted) {
            schema::prune(schema.node(), &mut object);
            objects[index] = object;
        }
        Ok(objects)
    }
}

/// The strategy `None`.
fn nothing_but_the_version(mut objects: Vec<Value>, to: &str) -> Vec<Value> {
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.insert("apiVersion".into(), to.into());
    }
    objects
}

/// 500, as Kubernetes says it: in the webhook's words alone.
fn failed(why: String) -> Status {
    Status::new(500, "", why)
}
