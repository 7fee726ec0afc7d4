//! Helpers for tests: applying manifests as a user would, and waiting for conditions with a deadline.
//!
//! ```
//! # use kubewright_cluster::{Cluster, Pods};
//! # use k8s_openapi::api::core::v1::Pod;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
//! cluster
//!     .apply_yaml("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: busybox}]}}")
//!     .await?;
//! cluster
//!     .expect::<Pod>(|pods| pods.iter().all(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"))))
//!     .await?;
//! # cluster.shutdown().await; Ok(()) }
//! ```

mod rights;
mod state;

use std::{
    fmt::{self, Debug},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use kubewright_apimachinery::decode::yaml_documents;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

pub use self::rights::RightsUsage;
use crate::Cluster;

/// The default deadline of [`Cluster::expect`]. On a paused clock it is virtual time.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The interval at which [`Cluster::expect`] lists again even without a change, since a list may have failed.
const RELIST: Duration = Duration::from_secs(1);

/// The field manager of applied manifests.
const MANAGER: &str = "kubectl";

/// An error of [`Cluster::apply_yaml`] or [`Cluster::install`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The text is not YAML.
    #[error("invalid YAML in the manifest: {0}")]
    Yaml(String),
    /// A document has no apiVersion, kind or name. Contains the position of the document.
    #[error("document {0} of the manifest has no apiVersion, kind or name")]
    Incomplete(usize),
    /// The server doesn't serve the kind.
    #[error("no such kind: {0}; install its CustomResourceDefinition first")]
    UnknownKind(String),
    /// The API server refused an object.
    #[error("failed to apply {0}: {1}")]
    Refused(String, #[source] Box<kube::Error>),
    /// The definition of a custom kind was not established in time.
    #[error(transparent)]
    Timeout(#[from] WaitTimeout),
}

/// An expectation that was not met in time.
#[derive(Clone)]
pub struct WaitTimeout {
    /// The state at the deadline: the first objects as JSON, without `managedFields`.
    pub last: String,
    /// The deadline.
    pub after: Duration,
}

impl fmt::Display for WaitTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the expectation was not met within {:?}; the last state was {}", self.after, self.last)
    }
}

/// The same text as [`Display`](fmt::Display), since `unwrap` in a test prints this form, with the objects on lines of
/// their own.
impl Debug for WaitTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for WaitTimeout {}

impl Cluster {
    /// Applies a manifest of one or more documents in order, as `kubectl apply --server-side` does. Namespaced objects
    /// without a namespace are applied to `default`. After a CustomResourceDefinition, it waits until the kind is
    /// established, so that the following documents can use it.
    ///
    /// # Errors
    /// At the first document that can't be applied. The documents before it stay applied.
    pub async fn apply_yaml(&self, manifest: &str) -> Result<Vec<DynamicObject>, ApplyError> {
        let documents = yaml_documents(manifest).map_err(|error| ApplyError::Yaml(error.to_string()))?;
        let mut applied = Vec::new();
        for (index, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
            let object: DynamicObject = serde_json::from_value(document).map_err(|_| ApplyError::Incomplete(index))?;
            applied.push(self.apply(object, index).await?);
        }
        Ok(applied)
    }

    /// Installs custom kinds, and waits until each is established.
    ///
    /// ```
    /// # use kubewright_cluster::{Cluster, Pods};
    /// use kube::{CustomResource, CustomResourceExt};
    ///
    /// #[derive(CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
    /// struct GreetingSpec {
    ///     text: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder().pods(Pods::None).start().await?;
    /// cluster.install([Greeting::crd()]).await?;
    /// cluster.apply_yaml("{apiVersion: example.com/v1, kind: Greeting, metadata: {name: a}, spec: {text: hello}}").await?;
    /// # cluster.shutdown().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// At the first definition that can't be applied. The definitions before it stay applied.
    pub async fn install(&self, kinds: impl IntoIterator<Item = CustomResourceDefinition>) -> Result<(), ApplyError> {
        for (index, kind) in kinds.into_iter().enumerate() {
            let object = serde_json::to_value(kind).and_then(serde_json::from_value);
            self.apply(object.map_err(|_| ApplyError::Incomplete(index))?, index).await?;
        }
        Ok(())
    }

    async fn apply(&self, object: DynamicObject, index: usize) -> Result<DynamicObject, ApplyError> {
        let types = object.types.clone().ok_or(ApplyError::Incomplete(index))?;
        let name = object.metadata.name.clone().ok_or(ApplyError::Incomplete(index))?;
        let unknown = || ApplyError::UnknownKind(format!("{} in {}", types.kind, types.api_version));
        let kind = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
        let entries = self.api().registry().all();
        let same = |entry: &kubewright_apiserver::registry::Resource| {
            *entry.group == *kind.group && *entry.version == *kind.version && *entry.kind == *kind.kind
        };
        let entry = entries.iter().find(|entry| same(entry)).ok_or_else(unknown)?;
        let resource = ApiResource::from_gvk_with_plural(&kind, &entry.plural);
        let api: Api<DynamicObject> = if entry.namespaced {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(self.client(), namespace, &resource)
        } else {
            Api::all_with(self.client(), &resource)
        };
        let refused = |error| ApplyError::Refused(format!("{} {name}", types.kind), Box::new(error));
        let applied = api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&object)).await.map_err(refused)?;
        if kind.kind == "CustomResourceDefinition" {
            self.established(&api, &name).await?;
        }
        Ok(applied)
    }

    async fn established(&self, crds: &Api<DynamicObject>, name: &str) -> Result<(), WaitTimeout> {
        let established = || async {
            let crd = crds.get(name).await.ok()?;
            let conditions = crd.data["status"]["conditions"].as_array()?;
            let holds = conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True");
            holds.then_some(())
        };
        self.eventually(DEADLINE, established).await
    }

    /// Waits until the objects of a kind, in all namespaces, meet a condition, and returns them. The condition is
    /// called on each change, with the objects ordered by namespace and name.
    ///
    /// # Errors
    /// If the condition isn't met within [`DEADLINE`].
    pub async fn expect<K>(&self, condition: impl FnMut(&[&K]) -> bool) -> Result<Vec<K>, WaitTimeout>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        self.expect_within(DEADLINE, condition).await
    }

    /// Waits like [`Cluster::expect`], with another deadline.
    ///
    /// # Errors
    /// If the condition isn't met within `deadline`.
    pub async fn expect_within<K>(
        &self,
        deadline: Duration,
        mut condition: impl FnMut(&[&K]) -> bool,
    ) -> Result<Vec<K>, WaitTimeout>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (api, mut feed) = (Api::<K>::all(self.client()), self.api().feed());
        let mut objects = Vec::new();
        let met = async {
            loop {
                // The list includes all changes so far.
                while !matches!(feed.try_next(), Ok(None)) {}
                match api.list(&ListParams::default()).await {
                    Ok(list) => {
                        objects = list.items;
                        if condition(&objects.iter().collect::<Vec<_>>()) {
                            return;
                        }
                    }
                    Err(error) => tracing::debug!(%error, "failed to list"),
                }
                let _changed = timeout(RELIST, feed.next()).await;
            }
        };
        if timeout(deadline, met).await.is_ok() {
            return Ok(objects);
        }
        // Not every `K` can be serialized, and a view has only some of the fields.
        let untyped: Api<DynamicObject> = Api::all_with(self.client(), &ApiResource::erase::<K>(&()));
        let last = match untyped.list(&ListParams::default()).await {
            Ok(list) => state::describe(&K::kind(&()), list.items),
            Err(_) => format!("{objects:?}"),
        };
        Err(WaitTimeout { last, after: deadline })
    }

    /// Waits until `attempt` returns a value. It is called immediately, and again whenever anything in the cluster
    /// changes.
    ///
    /// # Errors
    /// If it returns no value within `deadline`.
    pub async fn eventually<T, F>(&self, deadline: Duration, mut attempt: impl FnMut() -> F) -> Result<T, WaitTimeout>
    where
        F: Future<Output = Option<T>>,
    {
        let mut feed = self.api().feed();
        let given = async {
            loop {
                // The attempt sees all changes so far. It doesn't matter if the feed lags and some are skipped.
                while !matches!(feed.try_next(), Ok(None)) {}
                if let Some(given) = attempt().await {
                    return given;
                }
                let _changed = feed.next().await;
            }
        };
        timeout(deadline, given).await.map_err(|_| WaitTimeout { last: "nothing".into(), after: deadline })
    }
}
