//! Durable memory of a reconciler beside spec and status: a typed value for each object, which survives crashes.
//!
//! Status describes the current state. It may be wiped and is rebuilt from the cluster, so no decision may depend on
//! it. What a reconciler must remember, such as the token of a request to an external system whose answer may be lost,
//! belongs into a **workspace**. It is stored in a config map beside the object:
//!
//! * its name is `<object>.<controller>.workspace`, which is unlikely to be taken. A config map needs no CRD and can be
//!   read with `kubectl`; it must not hold secrets;
//! * the object owns it, so it is garbage-collected with the object. The owner reference has no `controller: true`, so
//!   neither [`Context::children`] nor `owns` includes it;
//! * it is created only if live reads before and after it find the object, and find it not being deleted: so a process
//!   that was late never replaces a workspace that was deleted with the object;
//! * it contains the object's UID. An object that was recreated under the same name starts with an empty workspace, and
//!   a config map that isn't a workspace is never changed;
//! * it is read live each time, and written only if it has not changed since: of two replicas that both assume to lead,
//!   one gets a conflict before it acts.
//!
//! The operator needs the permissions to get, create, patch and delete config maps.

use std::{collections::BTreeMap, future::IntoFuture, marker::PhantomData, ops::Deref};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::api::{ObjectMeta, Patch};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::Context;
use crate::{
    client::{ClientError, LARGEST_WORKSPACE, WorkspaceError},
    name::shorten,
    object::{AnyObject, ObjectKey},
};

/// The annotation with the UID of the workspace's object.
const OWNER: &str = "kubewright.dev/workspace-of";
/// The entry of the config map with the value.
const ENTRY: &str = "memory.json";
/// The maximum length of an object's name.
const LONGEST_NAME: usize = 253;

impl<K: AnyObject> Context<K> {
    /// Reads the workspace of the reconciled object, which is `T::default()` if nothing was stored. See [`Workspace`].
    ///
    /// It costs one request, which is sent when the result is awaited. `T` should accept values of its earlier versions
    /// (`#[serde(default)]`).
    pub fn workspace<T>(&self) -> OpenWorkspace<'_, K, T>
    where
        T: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        OpenWorkspace { context: self, namespace: None, or_default: false, memory: PhantomData }
    }
}

/// A workspace to be read by `await`. See [`Context::workspace`].
#[derive(Debug)]
#[must_use = "nothing is read until it is awaited"]
pub struct OpenWorkspace<'a, K: AnyObject, T> {
    context: &'a Context<K>,
    namespace: Option<&'a str>,
    or_default: bool,
    memory: PhantomData<fn() -> T>,
}

impl<'a, K: AnyObject, T> OpenWorkspace<'a, K, T> {
    /// Starts from the default if the stored value can't be decoded, which is otherwise an error. The next update
    /// replaces it.
    pub fn or_default(self) -> Self {
        Self { or_default: true, ..self }
    }

    /// Stores it in this namespace, for a cluster-scoped object. The namespace must never change.
    pub fn in_namespace(self, namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }
}

impl<'a, K: AnyObject, T> IntoFuture for OpenWorkspace<'a, K, T>
where
    T: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Output = Result<Workspace<'a, K, T>, ClientError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { context, namespace, or_default, .. } = self;
        Workspace::open(context, namespace, or_default).boxed()
    }
}

/// The durable memory of a reconciler for one object. It dereferences to the value.
///
/// An example is a request that must not be sent twice, even if the operator crashes after any write:
///
/// ```
/// # use k8s_openapi::api::core::v1::Node;
/// # use kubewright_runtime::{client::ClientError, context::Context};
/// # use serde::{Deserialize, Serialize};
/// # async fn launch(token: &str) -> String { token.into() }
/// #[derive(Default, Serialize, Deserialize)]
/// #[serde(default)]
/// struct Memory {
///     token: Option<String>,
///     instance: Option<String>,
/// }
///
/// # async fn example(ctx: &Context<Node>) -> Result<(), ClientError> {
/// let mut memory = ctx.workspace::<Memory>().await?;
/// if memory.instance.is_none() {
///     if memory.token.is_none() {
///         let token = format!("{:016x}", ctx.random().u64());
///         memory.update(|memory| memory.token = Some(token)).await?;
///     }
///     // From here on every attempt has the same token, by which the other side recognises it.
///     let instance = launch(memory.token.as_deref().unwrap_or_default()).await;
///     memory.update(|memory| memory.instance = Some(instance)).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Workspace<'a, K: AnyObject, T> {
    context: &'a Context<K>,
    key: ObjectKey,
    value: T,
    stored: Stored,
}

/// The stored state.
#[derive(Debug)]
enum Stored {
    Nothing,
    /// The workspace of this object, with this text. The text is empty if it couldn't be decoded and that is allowed.
    Ours {
        config: ConfigMap,
        text: String,
    },
    /// The workspace of an earlier or later object with the same name.
    Others(ConfigMap),
}

impl<K: AnyObject, T> Deref for Workspace<'_, K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'a, K, T> Workspace<'a, K, T>
where
    K: AnyObject,
    T: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn open(context: &'a Context<K>, namespace: Option<&str>, or_default: bool) -> Result<Self, ClientError> {
        let key = key(context, namespace)?;
        let uid = uid(context, &key)?;
        let stored = match context.live().get::<ConfigMap>(&key).await? {
            None => Stored::Nothing,
            Some(config) => match config.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OWNER)) {
                None => return Err(WorkspaceError::Foreign { name: key.to_string(), owner: owner(context) }.into()),
                Some(of) if of != uid => Stored::Others(config),
                Some(_) => {
                    let text = config.data.as_ref().and_then(|data| data.get(ENTRY)).cloned().unwrap_or_default();
                    Stored::Ours { config, text }
                }
            },
        };
        let mut workspace = Self { context, key, value: T::default(), stored };
        match workspace.decoded() {
            Ok(value) => workspace.value = value,
            Err(_) if or_default => {
                if let Stored::Ours { text, .. } = &mut workspace.stored {
                    text.clear();
                }
            }
            Err(source) => {
                return Err(WorkspaceError::Undecodable { name: workspace.key.to_string(), source }.into());
            }
        }
        Ok(workspace)
    }

    /// Changes the value and stores it before it returns. Nothing is written if the value stays the same. The first
    /// write for an object costs two more requests, which confirm before and after it that the object still exists and
    /// isn't being deleted.
    ///
    /// `change` is called once with the stored value: after a conflict the decision that led here may be wrong, and is
    /// left to the next reconcile.
    ///
    /// # Errors
    /// A conflict ([`ClientError::is_conflict`], or `is_already_exists` for the first write) if another writer has
    /// changed it since it was read; [`WorkspaceError::TooLarge`]; [`ClientError::OwnerGone`] if nothing is stored yet
    /// and the object is gone or being deleted; or when the API server refuses the request or doesn't answer. The value
    /// is unchanged then; after a lost answer, either value may be stored.
    pub async fn update(&mut self, change: impl FnOnce(&mut T)) -> Result<(), ClientError> {
        let mut value = self.decoded().unwrap_or_default();
        change(&mut value);
        let name = || self.key.to_string();
        let text =
            serde_json::to_string(&value).map_err(|source| WorkspaceError::Unencodable { name: name(), source })?;
        if text.len() > LARGEST_WORKSPACE {
            return Err(WorkspaceError::TooLarge { name: name(), size: text.len() }.into());
        }
        let config = match &self.stored {
            Stored::Ours { text: known, .. } if *known == text => return Ok(()),
            Stored::Ours { config, .. } => self.replace(config, &text).await?,
            Stored::Nothing | Stored::Others(_) => {
                self.confirm_owner().await?;
                if let Stored::Others(config) = &self.stored {
                    self.context.delete(config).await?;
                }
                self.create_confirmed(&text).await?
            }
        };
        self.stored = Stored::Ours { config, text };
        self.value = value;
        Ok(())
    }

    /// Resets the value and deletes the config map, which is not necessary when the object is deleted.
    ///
    /// # Errors
    /// As [`Workspace::update`].
    pub async fn forget(&mut self) -> Result<(), ClientError> {
        if let Stored::Ours { config, .. } = &self.stored {
            self.context.delete(config).await?;
            self.stored = Stored::Nothing;
        }
        self.value = T::default();
        Ok(())
    }

    /// Decodes the stored value, or returns the default if nothing is stored.
    fn decoded(&self) -> Result<T, serde_json::Error> {
        match &self.stored {
            Stored::Ours { text, .. } if !text.is_empty() => serde_json::from_str(text),
            _ => Ok(T::default()),
        }
    }

    /// Creates the config map, and deletes it again if the object no longer exists. Since an earlier confirmation, the
    /// object may have been deleted, and with it a config map that another process had created. If the object exists
    /// after the creation, no config map of it has been collected.
    async fn create_confirmed(&self, text: &str) -> Result<ConfigMap, ClientError> {
        let config = self.create(text).await?;
        if let Err(error) = self.confirm_owner().await {
            // If this fails, the garbage collector deletes it.
            let _ = self.context.delete(&config).await;
            return Err(error);
        }
        Ok(config)
    }

    async fn create(&self, text: &str) -> Result<ConfigMap, ClientError> {
        let Some(object) = self.context.object.as_ref().filter(|object| object.meta().deletion_timestamp.is_none())
        else {
            return Err(gone(self.context, &self.key));
        };
        let controller = &self.context.services.plain_name;
        let reference = object.owner_ref(&self.context.of);
        let config = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.key.name().into()),
                namespace: self.key.namespace().map(Into::into),
                labels: Some([("app.kubernetes.io/managed-by".into(), shorten(controller, 63))].into()),
                annotations: Some([(OWNER.into(), uid(self.context, &self.key)?.into())].into()),
                owner_references: reference.map(|reference: OwnerReference| vec![reference]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(ENTRY.into(), text.into())])),
            ..ConfigMap::default()
        };
        self.context.create(&config).await
    }

    /// Writes the text, if the config map has not changed.
    async fn replace(&self, config: &ConfigMap, text: &str) -> Result<ConfigMap, ClientError> {
        let patch = json!({
            "metadata": {"uid": config.metadata.uid, "resourceVersion": config.metadata.resource_version},
            "data": {ENTRY: text},
        });
        self.context.patch(&self.key, &Patch::Merge(patch)).await
    }

    /// Reads the object live, and fails if it is gone or being deleted: an operator that stood still would store a new
    /// value for an object whose workspace was deleted with it, or before it (a deletion in the foreground), or replace
    /// the workspace of a later one.
    async fn confirm_owner(&self) -> Result<(), ClientError> {
        let uid = uid(self.context, &self.key)?;
        let live = self.context.client().kind_with::<K>(self.context.of.clone()).get(self.context.key()).await?;
        let stays = live
            .as_ref()
            .map(K::meta)
            .is_some_and(|live| live.uid.as_deref() == Some(uid) && live.deletion_timestamp.is_none());
        if stays { Ok(()) } else { Err(gone(self.context, &self.key)) }
    }
}

fn key<K: AnyObject>(context: &Context<K>, namespace: Option<&str>) -> Result<ObjectKey, ClientError> {
    let namespace = namespace.or(context.key().namespace());
    let namespace = namespace.ok_or_else(|| WorkspaceError::NoNamespace { owner: owner(context) })?;
    let suffix = format!(".{}.workspace", context.services.plain_name);
    let name = shorten(context.key().name(), LONGEST_NAME.saturating_sub(suffix.len()));
    Ok(ObjectKey::namespaced(namespace, &format!("{name}{suffix}")))
}

fn uid<'a, K: AnyObject>(context: &'a Context<K>, key: &ObjectKey) -> Result<&'a str, ClientError> {
    let uid = context.object.as_ref().and_then(|object| object.meta().uid.as_deref());
    uid.ok_or_else(|| gone(context, key))
}

fn gone<K: AnyObject>(context: &Context<K>, key: &ObjectKey) -> ClientError {
    ClientError::OwnerGone { target: format!("configmaps {key}"), owner: owner(context) }
}

fn owner<K: AnyObject>(context: &Context<K>) -> String {
    format!("{} {}", K::kind(&context.of), context.key())
}
