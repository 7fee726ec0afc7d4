//! The versions of a custom kind.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kubewright_apimachinery::{schema, status::Status};
use parking_lot::Mutex;
use serde_json::Value;

use super::webhook::Webhook;
use crate::{embedded, registry::schema::ResourceSchema, storage::Stored, webhook_client::WebhookClient};

/// The maximum number of converted objects that are cached for the watchers of one version.
const CACHED: usize = 256;

/// The versions of a CRD, and the conversion between them.
pub(crate) struct Definition {
    /// The kind, such as `Widget`.
    pub(crate) kind: Arc<str>,
    /// The schemas of all versions, served or not, by `apiVersion`.
    pub(crate) schemas: BTreeMap<String, Arc<ResourceSchema>>,
    /// The revision of the CRD. Later objects were written with these schemas.
    pub(crate) revision: u64,
    /// The generation of the CRD, which its status doesn't change.
    pub(crate) generation: i64,
    /// The conversion webhook. Without one, a conversion sets `apiVersion` and prunes fields that the version doesn't
    /// have.
    pub(crate) webhook: Option<Webhook>,
}

/// The versions of a custom kind. All entries of a CRD share it; a change of the CRD creates a new one.
pub struct Versions {
    definition: Definition,
    /// The revision up to which objects may have been written with other schemas.
    outdated: AtomicU64,
    /// The latest conversions: revision, version and object.
    recent: Mutex<VecDeque<(u64, String, Arc<Stored>)>>,
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Definition { kind, schemas, revision: _, generation: _, webhook } = &self.definition;
        let versions: Vec<_> = schemas.keys().collect();
        f.debug_struct("Versions").field("kind", kind).field("versions", &versions).field("webhook", webhook).finish()
    }
}

impl Versions {
    pub(crate) fn new(definition: Definition) -> Self {
        let outdated = definition.revision.into();
        Self { definition, outdated, recent: Mutex::default() }
    }

    /// Returns the generation of the CRD.
    pub(crate) fn generation(&self) -> i64 {
        self.definition.generation
    }

    /// Records that an object was written with other schemas: by a request that began before the CRD changed.
    pub(crate) fn outdate(&self, stored: &Stored) {
        self.outdated.fetch_max(stored.revision(), Ordering::Relaxed);
    }

    /// Returns whether a webhook converts the objects.
    pub(crate) fn has_webhook(&self) -> bool {
        self.definition.webhook.is_some()
    }

    /// Returns the schema of a version, served or not.
    pub(crate) fn schema(&self, api_version: &str) -> Option<&Arc<ResourceSchema>> {
        self.definition.schemas.get(api_version)
    }

    /// Returns whether an object was written with the present schemas. Others may lack defaults, or have fields that
    /// are pruned.
    pub(crate) fn is_up_to_date(&self, stored: &Stored) -> bool {
        // The object of a dry run has no revision.
        stored.revision() > self.outdated.load(Ordering::Relaxed) || stored.revision() == 0
    }

    /// Converts stored objects for lists and watches, which share the latest conversions, as they share Kubernetes'
    /// watch cache.
    pub(crate) async fn load(
        &self,
        client: &WebhookClient,
        objects: Vec<Arc<Stored>>,
        to: &str,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        let mut converted: Vec<_> = objects.iter().map(|stored| self.cached(stored, to)).collect();
        let unknown: Vec<_> = (0..objects.len()).filter(|&index| converted[index].is_none()).collect();
        let fresh = self.load_uncached(client, unknown.iter().map(|&index| &objects[index]), to).await?;
        for (index, stored) in unknown.into_iter().zip(fresh) {
            self.cache(&stored, to);
            converted[index] = Some(stored);
        }
        Ok(converted.into_iter().flatten().collect())
    }

    /// Converts stored objects, each with its revision. As in Kubernetes, they are pruned and get the defaults of the
    /// version in which they are stored.
    pub(crate) async fn load_uncached(
        &self,
        client: &WebhookClient,
        objects: impl Iterator<Item = &Arc<Stored>> + Clone,
        to: &str,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        let values = objects.clone().map(|stored| {
            let mut value = Arc::unwrap_or_clone(stored.value());
            if let Some(schema) = value["apiVersion"].as_str().and_then(|version| self.schema(version)) {
                schema::prune(schema.node(), &mut value);
                schema::drop_nulls(schema.node(), &mut value);
                embedded::repair(schema.node(), &mut value);
                schema::default(schema.node(), &mut value);
            }
            value
        });
        let values = self.convert(client, values.collect(), to).await?;
        Ok(objects.zip(values).map(|(stored, value)| Arc::new(stored.with_value(value))).collect())
    }

    fn cached(&self, stored: &Stored, to: &str) -> Option<Arc<Stored>> {
        let recent = self.recent.lock();
        let known = recent.iter().find(|(revision, version, _)| (*revision, &**version) == (stored.revision(), to));
        known.map(|(_, _, converted)| converted.clone())
    }

    /// Caches a conversion by the revision of the object. The object of a dry run has no revision.
    fn cache(&self, converted: &Arc<Stored>, to: &str) {
        if converted.revision() == 0 {
            return;
        }
        let mut recent = self.recent.lock();
        recent.push_back((converted.revision(), to.to_owned(), converted.clone()));
        if recent.len() > CACHED {
            recent.pop_front();
        }
    }

    /// Converts one object.
    pub(crate) async fn convert_one(&self, client: &WebhookClient, object: Value, to: &str) -> Result<Value, Status> {
        let converted = self.convert(client, vec![object], to).await?.pop();
        converted.ok_or_else(|| Status::internal("the conversion returned no object"))
    }

    /// Converts objects, preserving their order. Those that already have the version are unchanged; the others are
    /// pruned by its schema.
    pub(crate) async fn convert(
        &self,
        client: &WebhookClient,
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
            None => set_version(sent, to),
            Some(webhook) => webhook.convert(client, &self.definition.kind, sent, to).await.map_err(failed)?,
        };
        for (index, mut object) in others.into_iter().zip(converted) {
            schema::prune(schema.node(), &mut object);
            schema::drop_nulls(schema.node(), &mut object);
            embedded::decode(schema.node(), &mut object).map_err(failed)?;
            objects[index] = object;
        }
        Ok(objects)
    }
}

/// Converts with the strategy `None`.
fn set_version(mut objects: Vec<Value>, to: &str) -> Vec<Value> {
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.insert("apiVersion".into(), to.into());
    }
    objects
}

/// Returns 500 with only the webhook's message, as in Kubernetes.
fn failed(why: String) -> Status {
    Status::new(500, "", why)
}
