//! The writes of a reconciler.
//!
//! All of them go through [`Context::client`], which notes them; what is here adds what a reconcile knows: its object, its
//! namespace, its cache.

use kube::{api::Patch, core::object::HasStatus};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Context;
use crate::{
    client::{Apply, Change, Client, ClientError, Delete, OperationResult},
    finalizer,
    object::{KindName, Object, ObjectKey},
    owner::{controller_of, is_controlled_by, set_controller_reference},
};

impl<K: Object> Context<K> {
    /// Requests past the cache: all that the API server can do, for kinds of every sort, and with the wrappers of [`Client`].
    /// It works under the controller's field owner, and what names no namespace goes where the reconciled object is.
    ///
    /// What is written through it, or through a client made from it, is seen by the key's next reconcile. It is for this
    /// run alone: a write after the run's end is not waited for.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
    /// # use kube::api::ListParams;
    /// # use kubewright_runtime::{client::ClientError, context::Context};
    /// # async fn example(ctx: &Context<Deployment>, pod: &Pod) -> Result<(), ClientError> {
    /// let failed = ListParams::default().fields("status.phase=Failed");
    /// let failed = ctx.client().metadata::<Pod>().list(&failed).await?;
    /// ctx.client().dry_run().kind::<Pod>().create(pod).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> Client {
        self.services.api.clone().usually_in(self.key.namespace()).journaled(self.journal.clone())
    }

    /// Creates an object and returns it as stored. Without a namespace it goes where the reconciled object is.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the object may then exist.
    pub async fn create<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.client().kind().create(object).await
    }

    /// Creates a child: an object whose controller is the reconciled one, so that it is deleted with it, found by
    /// [`Context::children`], and wakes it. Without a namespace it goes where the reconciled object is.
    ///
    /// For children with a fixed name use [`Context::get_or_create_child`] or [`Context::apply_child`]: when the answer to a
    /// create is lost, the next run finds the name taken by its own child.
    ///
    /// # Errors
    /// [`ClientError::OwnerGone`] if the reconciled object is being deleted, [`ClientError::Owner`] if it can't own the
    /// child; else as [`Context::create`]. An object that has the name already, its own child included, is an error:
    /// [`ClientError::is_already_exists`].
    pub async fn create_child<T: Object>(&self, object: T) -> Result<T, ClientError> {
        self.create(&self.adopted(object)?).await
    }

    /// Creates a child, or returns the existing child of that name as it is: nothing of it is compared with `object` or
    /// changed. [`Context::apply_child`] and [`Context::create_or_patch_child`] also update it.
    ///
    /// An object is the existing child if the UID of its controller is the reconciled object's. It is read only when the
    /// creation reports that the name is taken, so a new child costs one request.
    ///
    /// # Errors
    /// As [`Context::create_child`], but where an object has the name: [`ClientError::NameTaken`] if that isn't a child of
    /// the reconciled object, and [`ClientError::is_already_exists`] while it is a child that is being deleted.
    pub async fn get_or_create_child<T: Object>(&self, object: T) -> Result<T, ClientError> {
        let child = self.adopted(object)?;
        match self.create(&child).await {
            Err(error) if error.is_already_exists() && child.meta().name.is_some() => {
                self.existing_child(&ObjectKey::of(&child), error).await
            }
            answer => answer,
        }
    }

    /// Makes an object what `change` makes of it: creates it if it isn't there, updates it if that makes a difference. See
    /// [`KindClient::create_or_update`](crate::client::KindClient::create_or_update).
    ///
    /// It is read live, since an update replaces the whole object, and the cache keeps less of it than there is. Where that
    /// request at each reconcile is too much, take [`Context::create_or_patch`].
    ///
    /// # Errors
    /// A conflict, if it was changed meanwhile; otherwise as [`Context::create`] and [`Context::update`].
    pub async fn create_or_update<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Update, false, change).await
    }

    /// [`Context::create_or_update`] for a child: whatever `change` does, the reconciled object becomes its controller.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use kube::{ResourceExt, api::ObjectMeta};
    /// # use kubewright_runtime::{client::ClientError, context::Context};
    /// # async fn example(web: &Deployment, ctx: &Context<Deployment>) -> Result<(), ClientError> {
    /// let metadata = ObjectMeta { name: Some(web.name_any()), ..ObjectMeta::default() };
    /// let map = ConfigMap { metadata, ..ConfigMap::default() };
    /// ctx.create_or_update_child(map, |map| {
    ///     map.data.get_or_insert_default().insert("level".into(), "info".into());
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Context::create_or_update`]; [`ClientError::OwnerGone`] and [`ClientError::Owner`] as [`Context::create_child`].
    pub async fn create_or_update_child<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Update, true, change).await
    }

    /// [`Context::create_or_update`], with what is different sent as a merge patch: see
    /// [`KindClient::create_or_patch`](crate::client::KindClient::create_or_patch). It is read from the cache if the
    /// controller declared `T`, else live.
    ///
    /// # Errors
    /// As [`Context::create`] and [`Context::patch`].
    pub async fn create_or_patch<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Patch, false, change).await
    }

    /// [`Context::create_or_patch`] for a child, as [`Context::create_or_update_child`].
    ///
    /// # Errors
    /// As [`Context::create_or_patch`] and [`Context::create_or_update_child`].
    pub async fn create_or_patch_child<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Patch, true, change).await
    }

    /// Replaces an object, if it still is the one that was read: by its `metadata.resourceVersion`. Fields that `T` doesn't
    /// know are lost; [`Context::patch`] and [`Context::apply`] keep them.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the update may then be in effect. A conflict, if the object has
    /// changed meanwhile: leave it to the next run, which will see the change.
    pub async fn update<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.client().kind().update(object).await
    }

    /// Server-side apply: what the object says becomes so, and what an earlier apply said and this one doesn't goes.
    /// Without a namespace it goes where the reconciled object is. The field manager is the controller's.
    ///
    /// A field that another manager owns with another value is a conflict, unless [`Apply::force`] takes it over.
    pub fn apply<T: Object>(&self, object: &T) -> Apply<T> {
        self.client().kind().apply(object)
    }

    /// [`Context::apply`] for a child: also sets the reconciled object as its controller. Awaiting it fails as
    /// [`Context::create_child`] does where the reconciled object can't own the child.
    pub fn apply_child<T: Object>(&self, object: T) -> Apply<T> {
        Apply::new(self.client().kind(), self.adopted(object))
    }

    /// Patches an object and returns it as stored.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the patch may then be in effect.
    pub async fn patch<T: Object, P: Serialize>(&self, key: &ObjectKey, patch: &Patch<P>) -> Result<T, ClientError> {
        self.client().kind().patch(key, patch).await
    }

    /// Deletes an object if it is unchanged since it was read: the UID and the resource version of `object` are sent as
    /// preconditions. [`Delete::any_version`] sends the UID only. If there is no such object, it succeeds.
    ///
    /// Awaiting it fails with a conflict ([`ClientError::is_conflict`]) if the object has changed, or if another object has
    /// its name by now.
    pub fn delete<T: Object>(&self, object: &T) -> Delete {
        self.client().kind::<T>().delete(&ObjectKey::of(object)).only(object)
    }

    /// Adds a finalizer to an object unless it has it, and returns the object as stored. The object is then kept until the
    /// finalizer is removed. The resource version of `object` is sent as a precondition. The reconciled object's own
    /// finalizer is [`Reconciler::FINALIZER`](crate::controller::Reconciler::FINALIZER), which the runtime adds.
    ///
    /// # Errors
    /// As [`Context::patch`]; a conflict, if the object has changed since it was read: the list has several writers.
    pub async fn add_finalizer<T: Object>(&self, object: &T, name: &str) -> Result<T, ClientError> {
        let mut changed = object.clone();
        if finalizer::add(&mut changed, name) { self.write_finalizers(&changed).await } else { Ok(changed) }
    }

    /// Removes a finalizer from an object if it has it, and returns the object as stored. An object that is being deleted
    /// is removed with its last finalizer. The resource version of `object` is sent as a precondition.
    ///
    /// If there is no such object, it succeeds with `None`, as [`Context::delete`] does.
    ///
    /// # Errors
    /// As [`Context::patch`]; a conflict, if the object has changed since it was read.
    pub async fn remove_finalizer<T: Object>(&self, object: &T, name: &str) -> Result<Option<T>, ClientError> {
        let mut changed = object.clone();
        if !finalizer::remove(&mut changed, name) {
            return Ok(Some(changed));
        }
        match self.write_finalizers(&changed).await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Writes the whole list, if the object has not changed.
    async fn write_finalizers<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        let meta = object.meta();
        let (version, finalizers) = (&meta.resource_version, meta.finalizers.as_deref().unwrap_or_default());
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        self.patch(&ObjectKey::of(object), &Patch::Merge(patch)).await
    }

    async fn upsert<T: Object>(
        &self,
        object: T,
        how: Change,
        owned: bool,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        let object = self.placed(object);
        let key = ObjectKey::of(&object);
        let cached = self.cached::<T>().ok().filter(|_| how == Change::Patch);
        let present = match cached {
            Some(cached) => cached.get(&key).map(|known| T::clone(&known)),
            None => self.live().get(&key).await?,
        };
        let change = |object: &mut T| {
            change(object);
            if owned { self.adopt(object) } else { Ok(()) }
        };
        self.client().kind().upsert(object, present, how, change).await
    }

    async fn existing_child<T: Object>(&self, key: &ObjectKey, error: ClientError) -> Result<T, ClientError> {
        let Some(existing) = self.live().get::<T>(key).await? else { return Err(error) };
        let owner = self.object.as_ref().and_then(|object| object.meta().uid.clone()).unwrap_or_default();
        if is_controlled_by(&existing, &owner) {
            if existing.meta().deletion_timestamp.is_some() {
                // The name is free when it is gone.
                return Err(error);
            }
            return Ok(existing);
        }
        let controller = controller_of(&existing);
        let controller = controller.map_or("nobody".into(), |owner| format!("{} {}", owner.kind, owner.name));
        Err(ClientError::NameTaken { target: format!("{} {key}", KindName::of::<T>()), controller })
    }

    fn placed<T: Object>(&self, mut object: T) -> T {
        if T::is_namespaced() && object.meta().namespace.is_none() {
            object.meta_mut().namespace = self.key.namespace().map(Into::into);
        }
        object
    }

    fn adopted<T: Object>(&self, object: T) -> Result<T, ClientError> {
        let mut child = self.placed(object);
        self.adopt(&mut child)?;
        Ok(child)
    }

    fn adopt<T: Object>(&self, child: &mut T) -> Result<(), ClientError> {
        match &self.object {
            Some(owner) if owner.meta().deletion_timestamp.is_none() => {
                Ok(set_controller_reference(owner.as_ref(), child)?)
            }
            _ => Err(ClientError::OwnerGone {
                target: format!("{} {}", KindName::of::<T>(), ObjectKey::of(child)),
                owner: format!("{} {}", KindName::of::<K>(), self.key),
            }),
        }
    }
}

impl<K: Object + HasStatus<Status: Serialize>> Context<K> {
    /// Makes the reconciled object's status be `status`, in a write that is left out if it is so already.
    ///
    /// It is one merge patch of the status subresource: the whole new status, and `null` for what the status had and the
    /// new one hasn't. It carries the object's UID but not its version, so that it can't conflict with a change of the
    /// spec, and can't reach another object of the same name. The status should have one writer: fields of the type that
    /// others add are removed when they are noticed; those that the type doesn't know are left alone.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the status may then be written.
    pub async fn set_status(&self, status: K::Status) -> Result<(), ClientError> {
        let Some(object) = &self.object else { return Ok(()) };
        let encode = |status: Option<&K::Status>| serde_json::to_value(status).unwrap_or_default();
        let wanted = encode(Some(&status));
        let known = self.written_status.lock().clone().unwrap_or_else(|| encode(object.status()));
        if known == wanted {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": {"uid": object.meta().uid}, "status": replacement(&known, &wanted),
        });
        self.client().kind::<K>().status().patch::<K, _>(&self.key, &Patch::Merge(patch)).await?;
        *self.written_status.lock() = Some(wanted);
        Ok(())
    }
}

/// The merge patch (RFC 7386) that makes `wanted` of `known`, and of anything that lacks a part of `known` too.
fn replacement(known: &Value, wanted: &Value) -> Value {
    let (Value::Object(known), Value::Object(wanted)) = (known, wanted) else { return wanted.clone() };
    let removed = known.keys().filter(|field| !wanted.contains_key(*field)).map(|field| (field.clone(), Value::Null));
    let kept = wanted
        .iter()
        .map(|(field, value)| (field.clone(), replacement(known.get(field).unwrap_or(&Value::Null), value)));
    Value::Object(removed.chain(kept).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_patch_replaces_the_whole() {
        let check = |known: Value, wanted: Value, patch: Value| {
            assert_eq!(replacement(&known, &wanted), patch, "{known} → {wanted}");
        };
        check(Value::Null, json!({"a": 1}), json!({"a": 1}));
        check(json!({"a": 1, "b": 2}), json!({"a": 3}), json!({"a": 3, "b": null}));
        check(json!({"o": {"x": 1, "y": 2}}), json!({"o": {"y": 2}}), json!({"o": {"x": null, "y": 2}}));
        check(json!({"l": [1, 2], "s": {}}), json!({"l": [2], "s": "text"}), json!({"l": [2], "s": "text"}));
    }
}
