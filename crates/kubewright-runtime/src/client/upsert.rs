//! Create or change: an object as it should be, whether it is there or not.

use std::fmt;

use kube::api::Patch;
use kubewright_apimachinery::patch::merge;
use serde_json::{Value, json};

use super::{AnyObject, ClientError, KindClient, Operation, kind::key_of};
use crate::object::ObjectKey;

/// What [`KindClient::create_or_update`] and [`KindClient::create_or_patch`] have done, in controller-runtime's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationResult {
    /// Nothing: it is as it should be.
    Unchanged,
    /// It was not there, and now is.
    Created,
    /// It was there, and was changed.
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

/// How a change is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Update,
    Patch,
}

impl<K: AnyObject> KindClient<K> {
    /// Makes an object what `change` makes of it. It is read; if it isn't there, `object` is changed and created; if it is,
    /// that is changed and sent back, unless it is as it was.
    ///
    /// `object` need have no more than a name and a namespace. `change` must be so that doing it twice changes nothing more,
    /// and must leave both alone.
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
    /// See [`KindClient`]; a conflict, if it was changed meanwhile: it is not tried again, as that is the queue's business.
    /// [`ClientError::Renamed`], if `change` has done so.
    pub async fn create_or_update(
        &self,
        object: K,
        change: impl FnOnce(&mut K),
    ) -> Result<(OperationResult, K), ClientError> {
        let present = self.get(&ObjectKey::of(&object)).await?;
        self.upsert(object, present, Change::Update, infallible(change)).await
    }

    /// [`KindClient::create_or_update`], with what is different sent as a merge patch: fields that `K` doesn't know are kept,
    /// and changes that others make meanwhile are no conflict. A list counts as one value. A status that was changed is
    /// written too, of an object that was there.
    ///
    /// # Errors
    /// As [`KindClient::create_or_update`]; a conflict, if it is another object of the same name by now.
    pub async fn create_or_patch(
        &self,
        object: K,
        change: impl FnOnce(&mut K),
    ) -> Result<(OperationResult, K), ClientError> {
        let present = self.get(&ObjectKey::of(&object)).await?;
        self.upsert(object, present, Change::Patch, infallible(change)).await
    }

    /// Changes `present`, or else `object`, and writes it if that makes a difference.
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

    /// Sends the difference, and that of the status where that has an address of its own.
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
