//! Creating an object, or changing it if it exists.

use std::fmt;

use kube::api::Patch;
use kubewright_apimachinery::patch::merge;
use serde_json::{Value, json};

use super::{AnyObject, ClientError, KindClient, Operation, kind::key_of};
use crate::object::ObjectKey;

/// The result of [`KindClient::create_or_update`] and [`KindClient::create_or_patch`], named as in controller-runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationResult {
    /// The object needed no change and was not written.
    Unchanged,
    /// The object was created.
    Created,
    /// The object existed and was changed.
    Updated,
}

impl fmt::Display for OperationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Created => "created",
            Self::Updated => "updated",
        })
    }
}

/// The request type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Update,
    Patch,
}

impl<K: AnyObject> KindClient<K> {
    /// Reads an object, applies `change`, and updates the object if it differs. If it doesn't exist, `change` is
    /// applied to `object`, which is then created.
    ///
    /// `object` needs only a name and a namespace. `change` must be idempotent and must not change either of them.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubewright_runtime::client::{Client, ClientError};
    /// # async fn example(client: Client, settings: ConfigMap) -> Result<(), ClientError> {
    /// let (done, _map) = client
    ///     .kind::<ConfigMap>()
    ///     .create_or_update(settings, |map| {
    ///         map.data.get_or_insert_default().insert("level".into(), "info".into());
    ///     })
    ///     .await?;
    /// println!("{done}"); // created, updated or unchanged
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`KindClient`]; 409 (`Conflict`) if the object was changed in between, which is retried by the queue and not
    /// here; [`ClientError::Renamed`] if `change` changes the name or namespace.
    pub async fn create_or_update(
        &self,
        object: K,
        change: impl FnOnce(&mut K),
    ) -> Result<(OperationResult, K), ClientError> {
        let present = self.get(&ObjectKey::of(&object)).await?;
        self.upsert(object, present, Change::Update, infallible(change)).await
    }

    /// Like [`KindClient::create_or_update`], but sends the difference as a merge patch. Fields that `K` doesn't know
    /// are kept, and concurrent changes don't conflict. Lists are replaced as a whole. If the object exists, a changed
    /// status is written too.
    ///
    /// # Errors
    /// As [`KindClient::create_or_update`], but 422 (`Invalid`) instead of a conflict, if the object was replaced by
    /// another of the same name.
    pub async fn create_or_patch(
        &self,
        object: K,
        change: impl FnOnce(&mut K),
    ) -> Result<(OperationResult, K), ClientError> {
        let present = self.get(&ObjectKey::of(&object)).await?;
        self.upsert(object, present, Change::Patch, infallible(change)).await
    }

    /// Applies `change` to `present` and writes it if it differs. Without `present`, changes and creates `object`.
    pub(crate) async fn upsert(
        &self,
        object: K,
        present: Option<K>,
        how: Change,
        change: impl FnOnce(&mut K) -> Result<(), ClientError>,
    ) -> Result<(OperationResult, K), ClientError> {
        let call = self.call(Operation::Update, &key_of(&object))?;
        let Some(before) = present else {
            let mut created = object;
            let key = ObjectKey::of(&created);
            change(&mut created)?;
            if ObjectKey::of(&created) != key {
                return Err(ClientError::Renamed { target: call.target() });
            }
            return self.create(&created).await.map(|created| (OperationResult::Created, created));
        };
        let mut after = before.clone();
        change(&mut after)?;
        if ObjectKey::of(&after) != ObjectKey::of(&before) {
            return Err(ClientError::Renamed { target: call.target() });
        }
        let encode = |object: &K| serde_json::to_value(object);
        let states = encode(&before).and_then(|before| Ok((before, encode(&after)?)));
        let (old, new) = states.map_err(|source| call.failed(kube::Error::SerdeError(source)))?;
        if old == new {
            return Ok((OperationResult::Unchanged, after));
        }
        let written = match how {
            Change::Update => self.update(&after).await?,
            Change::Patch => self.patch_difference(call.key(), &old, &new).await?.unwrap_or(after),
        };
        Ok((OperationResult::Updated, written))
    }

    /// Patches the object with the difference, and the status through its subresource.
    async fn patch_difference(&self, key: &ObjectKey, old: &Value, new: &Value) -> Result<Option<K>, ClientError> {
        let mut patch = merge::diff(old, new);
        let Value::Object(fields) = &mut patch else { return Ok(None) };
        let status = fields.remove("status");
        let uid = json!({"metadata": {"uid": old["metadata"]["uid"]}});
        let mut written = None;
        if !fields.is_empty() {
            merge::apply(&mut patch, &uid);
            written = Some(self.patch(key, &Patch::Merge(patch)).await?);
        }
        if let Some(status) = status {
            let mut patch = json!({"status": status});
            merge::apply(&mut patch, &uid);
            written = Some(self.status().patch(key, &Patch::Merge(patch)).await?);
        }
        Ok(written)
    }
}

fn infallible<K>(change: impl FnOnce(&mut K)) -> impl FnOnce(&mut K) -> Result<(), ClientError> {
    |object| {
        change(object);
        Ok(())
    }
}
