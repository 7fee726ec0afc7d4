//! Patches that are made of the difference between two states of an object.

use std::{fmt, future::IntoFuture, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::api::Patch;
use kubewright_apimachinery::patch::{merge, strategic};
use serde_json::{Value, json};

use super::{AnyObject, ClientError, KindClient, Operation, kind::key_of};
use crate::object::{KindName, ObjectKey};

/// How often [`KindClient::retry_on_conflict`] sends a change, as client-go's `DefaultRetry`.
const TRIES: u32 = 5;
/// The delay before the first retry. It doubles with each.
const FIRST_DELAY: Duration = Duration::from_millis(10);

/// A patch of the difference between two states of an object; `await` it to send it. See [`KindClient::patch_from`].
#[must_use = "nothing is sent until it is awaited"]
pub struct PatchFrom<K: AnyObject> {
    kind: KindClient<K>,
    old: K,
    new: K,
    has_lock: bool,
    is_of_status: bool,
    is_strategic: bool,
}

impl<K: AnyObject> fmt::Debug for PatchFrom<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatchFrom").field("old", &self.old).field("new", &self.new).finish_non_exhaustive()
    }
}

impl<K: AnyObject> PatchFrom<K> {
    /// Requires that the object still has the resource version of the old state (controller-runtime:
    /// `MergeFromWithOptimisticLock`). Needed where a list changes, since a merge patch replaces the whole list.
    pub fn optimistic_lock(self) -> Self {
        Self { has_lock: true, ..self }
    }

    /// Patches the `status` subresource with the difference of the status, instead of the object with the other
    /// differences.
    pub fn status(self) -> Self {
        Self { is_of_status: true, ..self }
    }

    /// Sends a strategic merge patch (controller-runtime: `StrategicMergeFrom`): items of lists that Kubernetes merges
    /// by a key, such as the containers of a pod by their names, are added, changed and deleted one by one, so that
    /// others may change the rest of the list meanwhile. All other lists are replaced. The keys are those of Kubernetes
    /// 1.36.
    ///
    /// Only for built-in kinds: for custom resources, the API server answers 415 (`UnsupportedMediaType`). Use
    /// [`apply`](KindClient::apply) to own single items of their lists.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
    /// # async fn example(client: Client, web: Deployment) -> Result<(), ClientError> {
    /// let mut changed = web.clone();
    /// let pod = changed.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    /// for container in pod.into_iter().flat_map(|pod| &mut pod.containers).filter(|it| it.name == "web") {
    ///     container.image = Some("web:2".into());
    /// }
    /// client.kind::<Deployment>().patch_from(&web, &changed).strategic().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn strategic(self) -> Self {
        Self { is_strategic: true, ..self }
    }

    async fn send(self) -> Result<K, ClientError> {
        let Self { kind, old, new, has_lock, is_of_status, is_strategic } = self;
        let call = kind.call(Operation::Patch, &key_of(&old))?;
        if ObjectKey::of(&old) != ObjectKey::of(&new) {
            return Err(ClientError::Renamed { target: call.target() });
        }
        let states = serde_json::to_value(&old).and_then(|old| Ok((old, serde_json::to_value(&new)?)));
        let (before, after) = states.map_err(|source| call.failed(kube::Error::SerdeError(source)))?;
        let patch = if is_strategic {
            let KindName { group, version, kind, .. } = kind.name();
            strategic::diff(group, version, kind, &before, &after)
        } else {
            merge::diff(&before, &after)
        };
        let Some(patch) = limited(patch, &before, is_of_status, has_lock) else { return Ok(new) };
        let patch = if is_strategic { Patch::Strategic(patch) } else { Patch::Merge(patch) };
        if is_of_status { kind.status().patch(call.key(), &patch).await } else { kind.patch(call.key(), &patch).await }
    }
}

impl<K: AnyObject> IntoFuture for PatchFrom<K> {
    type Output = Result<K, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl<K: AnyObject> KindClient<K> {
    /// Changes an object by a merge patch of the difference between two states (controller-runtime:
    /// `client.MergeFrom`). Only what differs is sent, so fields that `K` doesn't know are kept, and others may change
    /// the rest of the object meanwhile. Lists are replaced as a whole, unless the patch is a
    /// [strategic](PatchFrom::strategic) one. Without a difference nothing is sent, and the result is `new`.
    ///
    /// The UID of `old` is a precondition. For fields of the status see [`PatchFrom::status`].
    ///
    /// ```no_run
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
    /// # async fn example(client: Client, web: Deployment) -> Result<(), ClientError> {
    /// let mut changed = web.clone();
    /// changed.metadata.labels.get_or_insert_default().insert("tier".into(), "front".into());
    /// client.kind::<Deployment>().patch_from(&web, &changed).await?;
    ///
    /// changed.metadata.finalizers.get_or_insert_default().push("example.com/web".into());
    /// client.kind::<Deployment>().patch_from(&web, &changed).optimistic_lock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`KindClient::patch`]; 422 (`Invalid`) if the object has another UID; 409 (`Conflict`) if it has changed,
    /// with a lock; [`ClientError::Renamed`] if the states have different names.
    pub fn patch_from(&self, old: &K, new: &K) -> PatchFrom<K> {
        PatchFrom {
            kind: self.clone(),
            old: old.clone(),
            new: new.clone(),
            has_lock: false,
            is_of_status: false,
            is_strategic: false,
        }
    }

    /// Reads an object from the API server, changes it, and sends the difference with the resource version that was
    /// read. After a conflict it starts over, up to five times in all (client-go: `retry.RetryOnConflict`). Returns the
    /// object as stored; `None` if it doesn't exist.
    ///
    /// It is for programs without a queue. A reconcile should return the conflict: its next run decides again on the
    /// new state.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
    /// # async fn example(client: Client, key: &ObjectKey) -> Result<(), ClientError> {
    /// let maps = client.kind::<ConfigMap>();
    /// maps.retry_on_conflict(key, |map| {
    ///     let counter = map.data.get_or_insert_default().entry("counter".into()).or_default();
    ///     *counter = (counter.parse().unwrap_or(0) + 1).to_string();
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`KindClient`]; the last conflict after five.
    pub async fn retry_on_conflict(
        &self,
        key: &ObjectKey,
        mut change: impl FnMut(&mut K),
    ) -> Result<Option<K>, ClientError> {
        let mut delay = FIRST_DELAY;
        for tries_left in (0..TRIES).rev() {
            let Some(old) = self.get(key).await? else { return Ok(None) };
            let mut new = old.clone();
            change(&mut new);
            match self.patch_from(&old, &new).optimistic_lock().await {
                Err(error) if error.is_conflict() && tries_left > 0 => tokio::time::sleep(delay).await,
                Err(error) if error.is_not_found() => return Ok(None),
                answer => return answer.map(Some),
            }
            delay *= 2;
        }
        Ok(None)
    }
}

/// Returns a patch of the old state without what is of the other resource or the API server's own, and with
/// preconditions; `None` if nothing is left.
fn limited(mut patch: Value, old: &Value, is_of_status: bool, has_lock: bool) -> Option<Value> {
    let fields = patch.as_object_mut()?;
    fields.retain(|field, _| (field == "status") == is_of_status);
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server sets them. A resource version would be a precondition.
        metadata.retain(|field, _| !matches!(&**field, "resourceVersion" | "uid" | "managedFields" | "generation"));
        if metadata.is_empty() {
            fields.remove("metadata");
        }
    }
    if fields.is_empty() {
        return None;
    }
    let known = |field: &str| old["metadata"].get(field).cloned().unwrap_or_default();
    let mut preconditions = json!({"metadata": {"uid": known("uid")}});
    if has_lock {
        preconditions["metadata"]["resourceVersion"] = known("resourceVersion");
    }
    merge::apply(&mut patch, &preconditions);
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_difference_is_sent() {
        let old = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "1", "y": "2"}},
            "spec": {"replicas": 1, "list": [1, 2]}, "status": {"ready": 1},
        });
        let check = |new: Value, is_of_status: bool, has_lock: bool, expected: Option<Value>| {
            let mut state = old.clone();
            merge::apply(&mut state, &new);
            assert_eq!(limited(merge::diff(&old, &state), &old, is_of_status, has_lock), expected, "{new}");
        };
        check(json!({}), false, true, None);
        check(json!({"status": {"ready": 2}}), false, false, None);
        check(json!({"metadata": {"resourceVersion": "8", "managedFields": []}}), false, false, None);
        let uid = json!({"uid": "u"});
        check(
            json!({"spec": {"list": [2]}, "status": {"ready": 2}}),
            false,
            false,
            Some(json!({"metadata": uid, "spec": {"list": [2]}})),
        );
        check(json!({"status": {"ready": 2}}), true, false, Some(json!({"metadata": uid, "status": {"ready": 2}})));
        check(
            json!({"metadata": {"labels": {"x": null, "z": "3"}}}),
            false,
            true,
            Some(json!({"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"x": null, "z": "3"}}})),
        );
    }
}
