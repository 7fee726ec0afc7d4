//! The writes of a reconciler.

use std::{future::IntoFuture, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::{
    api::{DeleteParams, Patch, Preconditions, PropagationPolicy},
    core::object::HasStatus,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Context;
use crate::{
    client::{ClientError, Deletion},
    object::{KindName, Object, ObjectKey},
    owner::{controller_of, is_controlled_by, set_controller_reference},
};

impl<K: Object> Context<K> {
    /// Creates an object and returns it as stored. Without a namespace it goes where the reconciled object is.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the object may then exist.
    pub async fn create<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.send_create(&self.placed(object.clone())).await
    }

    /// Creates a child: an object whose controller is the reconciled one, so that it is deleted with it, found by
    /// [`Context::owned`], and wakes it.
    ///
    /// If an object of that name exists, and is already our child by UID, it is returned as it is: the answer to an
    /// earlier create was lost.
    ///
    /// # Errors
    /// [`ClientError::OwnerGone`] if the reconciled object is being deleted, [`ClientError::Owner`] if it can't own the
    /// child, [`ClientError::NameTaken`] if another's object has that name; else as [`Context::create`].
    pub async fn create_owned<T: Object>(&self, object: T) -> Result<T, ClientError> {
        let child = self.adopted(object)?;
        match self.send_create(&child).await {
            Err(error) if error.is_already_exists() && child.meta().name.is_some() => {
                self.existing_child(&ObjectKey::of(&child), error).await
            }
            answer => answer,
        }
    }

    /// Server-side apply: what the object says becomes so, and what an earlier apply said and this one doesn't goes.
    /// Without a namespace it goes where the reconciled object is. The field manager is the controller's.
    ///
    /// A field that another manager owns with another value is a conflict, unless [`Apply::force`] takes it over.
    pub fn apply<T: Object>(&self, object: &T) -> Apply<'_, K, T> {
        Apply { context: self, object: Ok(self.placed(object.clone())), force: false }
    }

    /// [`Context::apply`] for a child; see [`Context::create_owned`].
    pub fn apply_owned<T: Object>(&self, object: T) -> Apply<'_, K, T> {
        Apply { context: self, object: self.adopted(object), force: false }
    }

    /// Patches an object and returns it as stored.
    ///
    /// # Errors
    /// When the API server refuses, or doesn't answer; the patch may then be in effect.
    pub async fn patch<T: Object, P: Serialize>(&self, key: &ObjectKey, patch: &Patch<P>) -> Result<T, ClientError> {
        let pending = self.journal.begin::<T>(&self.services.cache, key.namespace());
        pending.answered(self.services.api.patch(key, None, patch).await)
    }

    /// Deletes an object if it still is the one that was read: by default its UID and its resource version are
    /// preconditions. One that is gone already is no error.
    pub fn delete<T: Object>(&self, object: &T) -> Delete<'_, K> {
        let meta = object.meta();
        let preconditions = Preconditions { resource_version: meta.resource_version.clone(), uid: meta.uid.clone() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        Delete { context: self, key: ObjectKey::of(object), params, send: send_delete::<K, T> }
    }

    async fn send_create<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        let pending = self.journal.begin::<T>(&self.services.cache, object.meta().namespace.as_deref());
        pending.answered(self.services.api.create(object).await)
    }

    async fn existing_child<T: Object>(&self, key: &ObjectKey, error: ClientError) -> Result<T, ClientError> {
        let Some(existing) = self.services.api.get::<T>(key).await? else { return Err(error) };
        let owner = self.object.as_ref().and_then(|object| object.meta().uid.clone()).unwrap_or_default();
        if is_controlled_by(&existing, &owner) {
            return self.journal.begin::<T>(&self.services.cache, key.namespace()).answered(Ok(existing));
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
        match &self.object {
            Some(owner) if owner.meta().deletion_timestamp.is_none() => {
                set_controller_reference(owner.as_ref(), &mut child)?;
                Ok(child)
            }
            _ => Err(ClientError::OwnerGone {
                target: format!("{} {}", KindName::of::<T>(), ObjectKey::of(&child)),
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
        let pending = self.journal.begin::<K>(&self.services.cache, self.key.namespace());
        let answer = self.services.api.patch(&self.key, Some("status"), &Patch::Merge(patch)).await;
        pending.answered(answer)?;
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

/// An apply that is being put together; `await` it to send it. See [`Context::apply`].
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Apply<'a, K, T> {
    context: &'a Context<K>,
    object: Result<T, ClientError>,
    force: bool,
}

impl<K, T> Apply<'_, K, T> {
    /// Takes over fields that other managers own.
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }
}

impl<'a, K: Object, T: Object> IntoFuture for Apply<'a, K, T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { context, object, force } = self;
        async move {
            let object = object?;
            let pending = context.journal.begin::<T>(&context.services.cache, object.meta().namespace.as_deref());
            pending.answered(context.services.api.apply(&object, force).await)
        }
        .boxed()
    }
}

/// A delete that is being put together; `await` it to send it. See [`Context::delete`].
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Delete<'a, K> {
    context: &'a Context<K>,
    key: ObjectKey,
    params: DeleteParams,
    send: SendDelete<K>,
}

type SendDelete<K> = for<'a> fn(&'a Context<K>, ObjectKey, DeleteParams) -> BoxFuture<'a, Result<(), ClientError>>;

impl<K> Delete<'_, K> {
    /// The object goes at once, its dependents after it.
    pub fn background(self) -> Self {
        self.propagation(PropagationPolicy::Background)
    }

    /// The object goes after its dependents.
    pub fn foreground(self) -> Self {
        self.propagation(PropagationPolicy::Foreground)
    }

    /// The dependents stay.
    pub fn orphan(self) -> Self {
        self.propagation(PropagationPolicy::Orphan)
    }

    /// How long the object has to end, in whole seconds: for pods.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.params.grace_period_seconds = Some(u32::try_from(period.as_secs()).unwrap_or(u32::MAX));
        self
    }

    /// Also if it has changed since it was read. The UID stays a precondition.
    pub fn any_version(mut self) -> Self {
        if let Some(preconditions) = &mut self.params.preconditions {
            preconditions.resource_version = None;
        }
        self
    }

    fn propagation(mut self, policy: PropagationPolicy) -> Self {
        self.params.propagation_policy = Some(policy);
        self
    }
}

impl<'a, K: Object> IntoFuture for Delete<'a, K> {
    type Output = Result<(), ClientError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        (self.send)(self.context, self.key, self.params)
    }
}

/// Deletes an object of a kind that [`Delete`] needn't name.
fn send_delete<'a, K: Object, T: Object>(
    context: &'a Context<K>,
    key: ObjectKey,
    params: DeleteParams,
) -> BoxFuture<'a, Result<(), ClientError>> {
    async move {
        let uid = params.preconditions.as_ref().and_then(|preconditions| preconditions.uid.clone());
        let pending = context.journal.begin::<T>(&context.services.cache, key.namespace());
        match context.services.api.delete::<T>(&key, &params).await {
            Ok(Deletion::Object(object)) => {
                pending.deleted(&key, object.meta().uid.as_deref().or(uid.as_deref()).unwrap_or_default());
                Ok(())
            }
            Ok(Deletion::Done) => {
                pending.deleted(&key, uid.as_deref().unwrap_or_default());
                Ok(())
            }
            Err(error) if error.is_uncertain() => Err(error),
            Err(error) => {
                pending.refused();
                Err(error)
            }
        }
    }
    .boxed()
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
