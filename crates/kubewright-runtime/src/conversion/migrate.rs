//! Migration of stored objects to the storage version.
//!
//! The API server stores an object in the new version when it is next written, which may be never. A migration writes
//! each object once without a change. Then the CustomResourceDefinition no longer needs the older versions.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, ObjectList, PartialObjectMeta, Patch, PatchParams},
    core::{GroupVersionKind, Status},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

use super::by_cluster::{self, ClusterMigration, Ended};
use crate::{
    client::explain,
    object::{KindName, Object, ObjectKey},
    rbac::{PolicyRule, Verb},
    runnable::Runnable,
};

/// The annotation with the progress of a migration.
const MARK: &str = "kubewright.dev/migration";
const FIELD_MANAGER: &str = "kubewright-migrator";
/// The number of objects that are listed, and written concurrently.
const PAGE: u32 = 500;
const AT_ONCE: usize = 8;
/// The maximum number of objects that an error names.
const NAMED: usize = 5;
/// The first and the longest pause before a retry.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// A migration that failed. The next run continues it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// The API server refused a request or can't be reached.
    #[error("can't {verb} {target}: {}", explain(&**source))]
    Request {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: String,
        /// The error.
        #[source]
        source: Box<kube::Error>,
    },
    /// No version of the kind is served, so its objects can't be read.
    #[error("CRD {0} serves no version, so its objects can't be read")]
    NotServed(String),
    /// Some objects can't be written. The older versions are kept for them.
    #[error("{count} objects can't be written in their new version: {}", shown.join("; "))]
    Objects {
        /// Their number.
        count: usize,
        /// The first of them, each with the error.
        shown: Vec<String>,
    },
    /// The CustomResourceDefinition was changed while its objects were written.
    #[error("CRD {0} was changed during the migration: run it again")]
    Overtaken(String),
}

/// The result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version in which all objects are stored.
    pub version: String,
    /// The number of objects that this program has written; none if the cluster has.
    pub objects: usize,
    /// Whether the cluster has written the objects, by a StorageVersionMigration.
    pub by_cluster: bool,
    /// The versions that were removed from `status.storedVersions` of the CustomResourceDefinition.
    pub removed: Vec<String>,
}

/// Migrates the objects of one kind.
///
/// ```no_run
/// # use kubewright_runtime::conversion::{Migrator, MigrationError};
/// # async fn example(client: kube::Client) -> Result<(), MigrationError> {
/// let migrated = Migrator::new("cronjobs.batch.tutorial.kubebuilder.io").run(&client).await?;
/// println!("{} objects are stored as {}", migrated.objects, migrated.version);
/// # Ok(())
/// # }
/// ```
///
/// Or by the manager, when it becomes the leader: `manager.runnable(Migrator::of::<v2::CronJob>().runnable())`.
///
/// If the cluster has StorageVersionMigrations (`storagemigration.k8s.io`, from v1beta1 on), its controller manager
/// writes the objects, and an operator that restarts meanwhile waits for it. If the cluster can't, or hasn't begun
/// within a minute, the operator writes them itself, with a warning: each object costs one request (an empty merge
/// patch, which the API server stores if the stored form changes), each five hundred objects two more.
///
/// It needs permission to `get` and `patch` the definition, to `patch` its status, to `list` and `patch` objects of the
/// kind in all namespaces, and to `create`, `get` and `delete` StorageVersionMigrations ([`Migrator::policy_rules`]).
#[derive(Clone, Debug)]
pub struct Migrator {
    definition: String,
    page: u32,
}

/// The progress of a migration, in an annotation of the CustomResourceDefinition.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// The generation of the CustomResourceDefinition. With another one, the migration starts again.
    generation: i64,
    /// The continue token of the list.
    next: String,
}

/// The result of a page.
#[derive(Default)]
struct Page {
    written: usize,
    failed: usize,
    shown: Vec<String>,
}

impl Migrator {
    /// Creates a migrator for the kind of a CustomResourceDefinition: `<plural>.<group>`.
    pub fn new(definition: &str) -> Self {
        Self { definition: definition.into(), page: PAGE }
    }

    /// Creates a migrator for a kind, of which `K` is any version.
    pub fn of<K: Object>() -> Self {
        let KindName { plural, group, .. } = KindName::of::<K>();
        Self::new(&format!("{plural}.{group}"))
    }

    /// Sets the page size, after which the progress is saved. Default: 500.
    pub fn page(self, objects: u32) -> Self {
        Self { page: objects.max(1), ..self }
    }

    /// Returns the rules that it needs in the operator's role. [`Migrator::runnable`] adds them; for a direct call of
    /// [`Migrator::run`] add them by [`Manager::policy_rule`](crate::manager::Manager::policy_rule). It lists objects
    /// in all namespaces, so the rules belong into a cluster role even if the operator is limited to its own namespace.
    pub fn policy_rules(&self) -> [PolicyRule; 4] {
        let (plural, group) = self.definition.split_once('.').unwrap_or((&self.definition, ""));
        let definition = |resource, verbs: &[Verb]| {
            PolicyRule::new("apiextensions.k8s.io", resource, false, verbs.to_vec()).resource_name(&self.definition)
        };
        [
            definition("customresourcedefinitions", &[Verb::Get, Verb::Patch]),
            definition("customresourcedefinitions/status", &[Verb::Patch]),
            PolicyRule::new(group, plural, false, [Verb::List, Verb::Patch]),
            PolicyRule::new(by_cluster::GROUP, by_cluster::PLURAL, false, [Verb::Create, Verb::Get, Verb::Delete]),
        ]
    }

    /// Returns a runnable for [`Manager::runnable`](crate::manager::Manager::runnable), which migrates once, on the
    /// leader, and retries until it succeeds.
    pub fn runnable(self) -> Runnable {
        let rules = self.policy_rules();
        let runnable = Runnable::new(&format!("migrator-{}", self.definition), async move |context| {
            let (mut wait, longest) = AGAIN;
            while let Some(result) = context.cancelled.run_until_cancelled(self.run(&context.client)).await {
                let Err(error) = result else { break };
                tracing::warn!(definition = self.definition, %error, "the migration failed; retrying in {wait:?}");
                context.cancelled.run_until_cancelled(tokio::time::sleep(wait)).await;
                wait = longest.min(wait * 2);
            }
            Ok(())
        });
        rules.into_iter().fold(runnable, Runnable::policy_rule)
    }

    /// Writes every object that may be stored in an older version, then removes these versions from the status of the
    /// CustomResourceDefinition. Without older versions it costs one request. If it is interrupted, the next run
    /// continues at the same page.
    ///
    /// # Errors
    /// [`MigrationError`]; the older versions are kept then.
    pub async fn run(&self, client: &Client) -> Result<Migrated, MigrationError> {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let definition = self.read(&definitions).await?;
        let version = storage(&definition);
        let old = old_versions(&definition, &version);
        let (mut objects, mut by_cluster) = (0, false);
        if !old.is_empty() {
            by_cluster = self.is_written_by_cluster(client, &definition).await;
            if !by_cluster {
                objects = self.write_all(client, &definitions, &definition, &version).await?;
            }
            self.settle(&definitions, &definition, &version).await?;
            tracing::info!(definition = self.definition, version, objects, by_cluster, removed = ?old, "migrated all objects");
        }
        if definition.annotations().contains_key(MARK) || objects > 0 {
            self.note(&definitions, None).await?;
        }
        Ok(Migrated { version, objects, by_cluster, removed: old })
    }

    async fn read(
        &self,
        definitions: &Api<CustomResourceDefinition>,
    ) -> Result<CustomResourceDefinition, MigrationError> {
        definitions.get(&self.definition).await.map_err(self.request("get", "the definition"))
    }

    /// Lets the cluster write the objects, if it can. Returns whether it has. A migration that has begun to write them
    /// itself goes on.
    async fn is_written_by_cluster(&self, client: &Client, definition: &CustomResourceDefinition) -> bool {
        if definition.annotations().contains_key(MARK) {
            return false;
        }
        let generation = definition.metadata.generation.unwrap_or_default();
        let Some(migration) = ClusterMigration::of(client, &self.definition, generation).await else { return false };
        match migration.run(&definition.spec.names.plural, &definition.spec.group).await {
            Ended::Succeeded => true,
            Ended::Failed(reason) => {
                let definition = &self.definition;
                tracing::warn!(definition, reason, "the cluster's StorageVersionMigration failed; writing the objects");
                false
            }
        }
    }

    async fn write_all(
        &self,
        client: &Client,
        definitions: &Api<CustomResourceDefinition>,
        definition: &CustomResourceDefinition,
        version: &str,
    ) -> Result<usize, MigrationError> {
        let resource =
            resource(definition, version).ok_or_else(|| MigrationError::NotServed(self.definition.clone()))?;
        let generation = definition.metadata.generation.unwrap_or_default();
        let mark = definition.annotations().get(MARK).and_then(|text| serde_json::from_str::<Progress>(text).ok());
        let mut next = mark.filter(|mark| mark.generation == generation).map(|mark| mark.next);
        let (mut total, mut resumes) = (Page::default(), next.is_some());
        loop {
            let list = match self.list(client, &resource, next.as_deref()).await {
                // The snapshot may have expired, or contain an object that can be converted only in its current state.
                Err(_) if std::mem::take(&mut resumes) => {
                    next = None;
                    continue;
                }
                list => list?,
            };
            resumes = false;
            let page = self.write(client, &resource, &list).await;
            total.written += page.written;
            total.failed += page.failed;
            total.shown.extend(page.shown);
            next = list.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = &next else { break };
            // After a failure, the next run must include the failed objects.
            if total.failed == 0 {
                self.note(definitions, Some(&Progress { generation, next: token.clone() })).await?;
            }
        }
        total.shown.truncate(NAMED);
        match total.failed {
            0 => Ok(total.written),
            count => Err(MigrationError::Objects { count, shown: total.shown }),
        }
    }

    /// Lists a page of objects, metadata only.
    async fn list(
        &self,
        client: &Client,
        resource: &ApiResource,
        next: Option<&str>,
    ) -> Result<ObjectList<PartialObjectMeta<DynamicObject>>, MigrationError> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        let mut next = next.map(str::to_owned);
        loop {
            let params = ListParams::default().limit(self.page);
            let params = ListParams { continue_token: next.clone(), ..params };
            match api.list_metadata(&params).await {
                // The snapshot has expired. The current objects after the same key suffice.
                Err(kube::Error::Api(status)) if status.code == 410 && has_continuation(&status) => {
                    next = status.metadata.and_then(|metadata| metadata.continue_);
                }
                result => return result.map_err(self.request("list", &resource.plural)),
            }
        }
    }

    async fn write(
        &self,
        client: &Client,
        resource: &ApiResource,
        list: &ObjectList<PartialObjectMeta<DynamicObject>>,
    ) -> Page {
        let keys = list.items.iter().map(ObjectKey::of);
        let writes = keys.map(|key| write_one(client.clone(), resource.clone(), key));
        let written = stream::iter(writes).buffered(AT_ONCE);
        let mut page = Page::default();
        for result in written.collect::<Vec<_>>().await {
            match result {
                Ok(written) => page.written += usize::from(written),
                Err(why) => {
                    page.failed += 1;
                    page.shown.push(why);
                }
            }
        }
        page
    }

    /// Saves or removes the progress.
    async fn note(
        &self,
        definitions: &Api<CustomResourceDefinition>,
        mark: Option<&Progress>,
    ) -> Result<(), MigrationError> {
        let text = mark.and_then(|mark| serde_json::to_string(mark).ok());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: text}}}));
        let noted = definitions.patch_metadata(&self.definition, &PatchParams::default(), &patch).await;
        noted.map(drop).map_err(self.request("patch", "the definition"))
    }

    /// Removes the older versions, if the CustomResourceDefinition has not changed since.
    async fn settle(
        &self,
        definitions: &Api<CustomResourceDefinition>,
        begun: &CustomResourceDefinition,
        version: &str,
    ) -> Result<(), MigrationError> {
        let overtaken = || MigrationError::Overtaken(self.definition.clone());
        let now = self.read(definitions).await?;
        if (now.metadata.generation, &now.metadata.uid) != (begun.metadata.generation, &begun.metadata.uid) {
            return Err(overtaken());
        }
        let metadata = json!({"resourceVersion": now.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": {"storedVersions": [version]}}));
        match definitions.patch_status(&self.definition, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(overtaken()),
            Err(error) => Err(self.request("patch", "the status of the definition")(error)),
        }
    }

    fn request(&self, verb: &'static str, what: &str) -> impl FnOnce(kube::Error) -> MigrationError + use<> {
        let target = format!("{what} {}", self.definition);
        move |source| MigrationError::Request { verb, target, source: Box::new(source) }
    }
}

/// Returns whether a status contains the token to continue an expired list.
fn has_continuation(status: &Status) -> bool {
    status.metadata.as_ref().is_some_and(|metadata| metadata.continue_.as_ref().is_some_and(|token| !token.is_empty()))
}

/// Writes an object without a change. Returns false if that is no longer needed.
async fn write_one(client: Client, resource: ApiResource, key: ObjectKey) -> Result<bool, String> {
    let api: Api<DynamicObject> = match key.namespace() {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    match api.patch_metadata(key.name(), &params, &Patch::Merge(json!({}))).await {
        Ok(_) => Ok(true),
        // The object was deleted, or is written by other clients, which stores it in the new version.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(format!("{key}: {}", explain(&error))),
    }
}

/// Returns the storage version.
fn storage(definition: &CustomResourceDefinition) -> String {
    let storage = definition.spec.versions.iter().find(|version| version.storage);
    storage.map(|version| version.name.clone()).unwrap_or_default()
}

/// Returns the other versions in which objects may be stored.
fn old_versions(definition: &CustomResourceDefinition, version: &str) -> Vec<String> {
    let stored = definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    stored.into_iter().filter(|stored| stored != version).collect()
}

/// Returns the resource of the storage version if it is served, otherwise of any served version.
fn resource(definition: &CustomResourceDefinition, version: &str) -> Option<ApiResource> {
    let mut served = definition.spec.versions.iter().filter(|version| version.served);
    let first = served.clone().next()?;
    let served = served.find(|served| served.name == version).unwrap_or(first);
    let names = &definition.spec.names;
    let kind = GroupVersionKind::gvk(&definition.spec.group, &served.name, &names.kind);
    Some(ApiResource::from_gvk_with_plural(&kind, &names.plural))
}
