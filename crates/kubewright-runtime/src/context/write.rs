//! The writes of a reconcile.
//!
//! All of them use [`Context::client`], which tracks them. The methods here add the reconciled object, its namespace
//! and the cache.

use kube::{
    api::Patch,
    core::{DynamicObject, PartialObjectMeta, object::HasStatus},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Context;
use crate::{
    client::{Apply, Change, Client, ClientError, Delete, OperationResult, PatchFrom},
    finalizer,
    object::{AnyObject, KindName, Object, ObjectKey},
    owner::{controller_of, is_controlled_by, set_block_owner_deletion, set_controller_reference_with},
};

/// How often a status is sent while the object changes at the same time.
const STATUS_TRIES: u32 = 5;

impl<K: AnyObject> Context<K> {
    /// The client for all requests of the API, typed and dynamic, with the wrappers of [`Client`]. It has the
    /// controller's field manager. Requests without a namespace use the reconciled object's.
    ///
    /// The key's next reconcile sees what is written by it or by clients derived from it. Use it during this run only:
    /// later writes aren't tracked.
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
        self.tracker.observing(self.services.api.clone().usually_in(self.key.namespace()))
    }

    /// Creates an object and returns it as stored. Without a namespace it goes where the reconciled object is.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond; in the latter case the object may exist.
    pub async fn create<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.client().kind().create(object).await
    }

    /// Creates a child: an object whose controller is the reconciled one, so that it is deleted with it, found by
    /// [`Context::children`], and wakes it. Without a namespace it goes where the reconciled object is.
    ///
    /// For children with a fixed name use [`Context::get_or_create_child`] or [`Context::apply_child`]: when the answer
    /// to a create is lost, the next run finds the name taken by its own child.
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
    /// An object is the existing child if the UID of its controller is the reconciled object's. It is read only when
    /// the creation reports that the name is taken, so a new child costs one request.
    ///
    /// # Errors
    /// As [`Context::create_child`], but where an object has the name: [`ClientError::NameTaken`] if that isn't a child
    /// of the reconciled object, and [`ClientError::is_already_exists`] while it is a child that is being deleted.
    pub async fn get_or_create_child<T: Object>(&self, object: T) -> Result<T, ClientError> {
        let child = self.adopted(object)?;
        match self.create(&child).await {
            Err(error) if error.is_already_exists() && child.meta().name.is_some() => {
                self.existing_child(&ObjectKey::of(&child), error).await
            }
            answer => answer,
        }
    }

    /// Creates an object as changed by `change`, or updates the existing one if `change` makes a difference. See
    /// [`KindClient::create_or_update`](crate::client::KindClient::create_or_update).
    ///
    /// It reads the object from the API server, because an update replaces the whole object and the cache may keep only
    /// a part of it. [`Context::create_or_patch`] doesn't need that request.
    ///
    /// # Errors
    /// A conflict if it has changed since it was read; otherwise as [`Context::create`] and [`Context::update`].
    pub async fn create_or_update<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Update, false, change).await
    }

    /// [`Context::create_or_update`] for a child: also sets the reconciled object as its controller.
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
    /// As [`Context::create_or_update`]; [`ClientError::OwnerGone`] and [`ClientError::Owner`] as
    /// [`Context::create_child`].
    pub async fn create_or_update_child<T: Object>(
        &self,
        object: T,
        change: impl FnOnce(&mut T),
    ) -> Result<(OperationResult, T), ClientError> {
        self.upsert(object, Change::Update, true, change).await
    }

    /// [`Context::create_or_update`], but sends the difference as a merge patch: see
    /// [`KindClient::create_or_patch`](crate::client::KindClient::create_or_patch). The object is read from the cache
    /// if the controller declares `T`, else from the API server.
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

    /// Replaces an object if it is unchanged since it was read, by its `metadata.resourceVersion`. Fields that `T`
    /// doesn't have are lost; [`Context::patch`] and [`Context::apply`] keep them.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond; in the latter case the update may be in effect. A
    /// conflict if the object has changed: return it, the next run sees the change.
    pub async fn update<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.client().kind().update(object).await
    }

    /// Server-side apply: sets the fields of the object, and removes fields that an earlier apply set and this one
    /// doesn't. Without a namespace it goes where the reconciled object is. The field manager is the controller's.
    ///
    /// A field that another manager owns with another value is a conflict, unless [`Apply::force`] takes over its
    /// ownership.
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
    /// If the API server rejects the request or doesn't respond; in the latter case the patch may be in effect.
    pub async fn patch<T: Object, P: Serialize>(&self, key: &ObjectKey, patch: &Patch<P>) -> Result<T, ClientError> {
        self.client().kind().patch(key, patch).await
    }

    /// Changes an object by a merge patch of the difference between two states (controller-runtime:
    /// `client.MergeFrom`); see [`KindClient::patch_from`](crate::client::KindClient::patch_from). Both states may be
    /// from the cache, also as a view.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
    /// # use kubewright_runtime::{client::ClientError, context::Context};
    /// # async fn example(pod: &Pod, ctx: &Context<Deployment>) -> Result<(), ClientError> {
    /// let mut changed = pod.clone();
    /// changed.metadata.labels.get_or_insert_default().insert("retired".into(), "yes".into());
    /// ctx.patch_from(pod, &changed).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn patch_from<T: Object>(&self, old: &T, new: &T) -> PatchFrom<T> {
        self.client().kind().patch_from(old, new)
    }

    /// Deletes an object if it is unchanged since it was read: the UID and the resource version of `object` are sent as
    /// preconditions. [`Delete::any_version`] sends the UID only. If there is no such object, it succeeds.
    ///
    /// Awaiting it fails with a conflict ([`ClientError::is_conflict`]) if the object has changed, or if another object
    /// has its name by now.
    pub fn delete<T: Object>(&self, object: &T) -> Delete {
        self.client().kind::<T>().delete(&ObjectKey::of(object)).only(object)
    }

    /// Adds a finalizer to an object unless it has it, and returns the object as stored. The object is then kept until
    /// the finalizer is removed. The resource version of `object` is sent as a precondition. The reconciled object's
    /// own finalizer is [`Reconciler::FINALIZER`](crate::controller::Reconciler::FINALIZER), which the runtime adds.
    ///
    /// # Errors
    /// As [`Context::patch`]; a conflict, if the object has changed since it was read: the list has several writers.
    pub async fn add_finalizer<T: Object>(&self, object: &T, name: &str) -> Result<T, ClientError> {
        self.add_finalizer_to((), object, name).await
    }

    /// Adds the finalizer of the reconciled object.
    pub(crate) async fn add_own_finalizer(&self, object: &K, name: &str) -> Result<K, ClientError> {
        self.add_finalizer_to(self.of.clone(), object, name).await
    }

    async fn add_finalizer_to<T: AnyObject>(
        &self,
        of: T::DynamicType,
        object: &T,
        name: &str,
    ) -> Result<T, ClientError> {
        let mut changed = object.clone();
        if finalizer::add(&mut changed, name) { self.write_finalizers(of, &changed).await } else { Ok(changed) }
    }

    /// [`Context::add_finalizer`] for several, with one write.
    pub(crate) async fn add_finalizers<T: Object>(
        &self,
        object: &T,
        names: impl Iterator<Item = &str>,
    ) -> Result<T, ClientError> {
        let mut changed = object.clone();
        let added = names.filter(|name| finalizer::add(&mut changed, name)).count();
        if added > 0 { self.write_finalizers((), &changed).await } else { Ok(changed) }
    }

    /// Removes a finalizer from an object if it has it, and returns the object as stored. An object that is being
    /// deleted is removed with its last finalizer. The resource version of `object` is sent as a precondition.
    ///
    /// If there is no such object, it succeeds with `None`, as [`Context::delete`] does.
    ///
    /// # Errors
    /// As [`Context::patch`]; a conflict, if the object has changed since it was read.
    pub async fn remove_finalizer<T: Object>(&self, object: &T, name: &str) -> Result<Option<T>, ClientError> {
        self.remove_finalizer_from((), object, name).await
    }

    /// Removes the finalizer of the reconciled object, which this run may have changed by writing its status.
    pub(crate) async fn remove_own_finalizer(&self, object: &K, name: &str) -> Result<Option<K>, ClientError> {
        let mut object = object.clone();
        if let Some((_, written)) = &*self.written_status.lock() {
            let meta = object.meta_mut();
            meta.resource_version.clone_from(&written.resource_version);
            meta.finalizers.clone_from(&written.finalizers);
        }
        let removed = self.remove_finalizer_from(self.of.clone(), &object, name).await?;
        if let (Some(changed), Some((_, written))) = (&removed, &mut *self.written_status.lock()) {
            written.clone_from(changed.meta());
        }
        Ok(removed)
    }

    async fn remove_finalizer_from<T: AnyObject>(
        &self,
        of: T::DynamicType,
        object: &T,
        name: &str,
    ) -> Result<Option<T>, ClientError> {
        let mut changed = object.clone();
        if !finalizer::remove(&mut changed, name) {
            return Ok(Some(changed));
        }
        match self.write_finalizers(of, &changed).await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Writes the whole list if the object is unchanged since it was read.
    async fn write_finalizers<T: AnyObject>(&self, of: T::DynamicType, object: &T) -> Result<T, ClientError> {
        let meta = object.meta();
        let (version, finalizers) = (&meta.resource_version, meta.finalizers.as_deref().unwrap_or_default());
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        self.client().kind_with::<T>(of).patch(&ObjectKey::of(object), &Patch::Merge(patch)).await
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
        let controller = controller.map_or("no controller".into(), |owner| format!("{} {}", owner.kind, owner.name));
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
                set_controller_reference_with(owner.as_ref(), &self.of, child, &())?;
                if !self.services.blocks_deletion {
                    set_block_owner_deletion(child, owner.meta().uid.as_deref().unwrap_or_default(), false);
                }
                Ok(())
            }
            _ => Err(ClientError::OwnerGone {
                target: format!("{} {}", KindName::of::<T>(), ObjectKey::of(child)),
                owner: format!("{} {}", KindName::named::<K>(&self.of), self.key),
            }),
        }
    }
}

impl<K: AnyObject + HasStatus<Status: Serialize>> Context<K> {
    /// Sets the status of the reconciled object. If it is unchanged, no request is made.
    ///
    /// The request is one merge patch of the status subresource: the whole new status, and `null` for fields that are
    /// no longer set. It has the object's resource version as a precondition, so it can't write to another object of
    /// the same name; a UID would not do, since Kubernetes ignores it in status patches of custom objects. If the
    /// object has changed since it was read, its metadata is read from the API server, and the patch is sent again with
    /// the new version if the UID is the same: a change of the spec doesn't make the write fail. The status should have
    /// one writer: fields of the type that others set are removed at the next write; fields that the type doesn't have
    /// are kept.
    ///
    /// # Errors
    /// If the API server rejects the request or doesn't respond; in the latter case the status may be written. 409
    /// (`Conflict`) if the object was created again under the same name, or changes all the time.
    pub async fn set_status(&self, status: K::Status) -> Result<(), ClientError> {
        let encode = |status: Option<&K::Status>| serde_json::to_value(status).unwrap_or_default();
        self.write_status(|object| encode(object.status()), encode(Some(&status))).await
    }
}

impl Context<DynamicObject> {
    /// Sets the status of a reconciled object whose kind is known only at run time, as [`Context::set_status`] does:
    /// the whole status.
    ///
    /// # Errors
    /// As [`Context::set_status`].
    pub async fn set_dynamic_status(&self, status: Value) -> Result<(), ClientError> {
        self.write_status(|object| object.data.get("status").cloned().unwrap_or_default(), status).await
    }
}

impl<K: AnyObject> Context<K> {
    /// Writes the status, unless it is the one that this run wrote last or, before the first write, the known one.
    async fn write_status(&self, known: impl FnOnce(&K) -> Value, wanted: Value) -> Result<(), ClientError> {
        let Some(object) = &self.object else { return Ok(()) };
        let written = self.written_status.lock().clone();
        let (known, meta) = written.unwrap_or_else(|| (known(object), object.meta().clone()));
        let mut version = meta.resource_version;
        if known == wanted {
            return Ok(());
        }
        let client = self.client();
        let status = client.kind_with::<K>(self.of.clone()).status();
        for tries_left in (0..STATUS_TRIES).rev() {
            let patch = json!({
                "apiVersion": K::api_version(&self.of), "kind": K::kind(&self.of),
                "metadata": {"resourceVersion": version}, "status": replacement(&known, &wanted),
            });
            match status.patch::<PartialObjectMeta<K>, _>(&self.key, &Patch::Merge(patch)).await {
                Ok(patched) => {
                    *self.written_status.lock() = Some((wanted, patched.metadata));
                    return Ok(());
                }
                Err(conflict) if conflict.is_conflict() && tries_left > 0 => {
                    let metadata = client.kind_with::<PartialObjectMeta<K>>(self.of.clone());
                    let current = metadata.get(&self.key).await?;
                    let current = current.filter(|current| current.metadata.uid == object.meta().uid);
                    version = current.ok_or(conflict)?.metadata.resource_version;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the merge patch (RFC 7386) from `known` to `wanted`, which has the same result for a value that lacks parts
/// of `known`.
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
