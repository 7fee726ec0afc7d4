//! Waiting until an object is in a certain state, as `kubectl wait` does (kube: `runtime::wait`).
//!
//! It is meant for tests, runnables and the start of a program, for example until a definition is established or a Job
//! is complete. A reconcile must not wait for other objects: it [watches](crate::controller::Controller::watches) them
//! and returns.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use k8s_openapi::api::batch::v1::Job;
//! # use kubewright_runtime::{client::Client, object::ObjectKey, wait::{await_condition, conditions}};
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let (jobs, key) = (client.kind::<Job>(), ObjectKey::namespaced("default", "backup"));
//! let done = await_condition(&jobs, &key, conditions::is_job_completed());
//! let job = tokio::time::timeout(Duration::from_secs(600), done).await??;
//! # drop(job);
//! # Ok(())
//! # }
//! ```

use std::{pin::pin, time::Duration};

use futures::TryStreamExt;
use kube::api::WatchEvent;

use crate::{
    client::{ClientError, KindClient},
    object::{AnyObject, ObjectKey},
};

/// The pause after a failed request, and between watches.
const PAUSE: Duration = Duration::from_secs(1);

/// A state of an object, which may be that it doesn't exist. Implemented for closures.
pub trait Condition<K>: Send {
    /// Returns whether the object is in the state; `None` if it doesn't exist.
    fn matches_object(&self, object: Option<&K>) -> bool;
}

impl<K, F: Fn(Option<&K>) -> bool + Send> Condition<K> for F {
    fn matches_object(&self, object: Option<&K>) -> bool {
        self(object)
    }
}

/// Waits until the condition holds for the object with this key, and returns the object. It lists and watches the one
/// object, so the client needs `list` and `watch`. The sum of all time isn't limited; use [`tokio::time::timeout`].
///
/// # Errors
/// If the API server refuses a request, for example because the kind doesn't exist or for lack of rights. Requests
/// without a response, and those that an overloaded API server refuses, are repeated.
pub async fn await_condition<K: AnyObject>(
    client: &KindClient<K>,
    key: &ObjectKey,
    condition: impl Condition<K>,
) -> Result<Option<K>, ClientError> {
    loop {
        let version = match client.list_one(key).await {
            Ok((object, _)) if condition.matches_object(object.as_ref()) => return Ok(object),
            Ok((_, version)) => version,
            Err(error) if is_transient(&error) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let events = match client.watch_one(key, &version).await {
            Ok(events) => events,
            // A version that is too old too: the list is repeated.
            Err(error) if is_transient(&error) || error.is_expired() => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut events = pin!(events);
        loop {
            match events.try_next().await {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    if condition.matches_object(Some(&object)) {
                        return Ok(Some(object));
                    }
                }
                Ok(Some(WatchEvent::Deleted(_))) => {
                    if condition.matches_object(None) {
                        return Ok(None);
                    }
                }
                Ok(Some(WatchEvent::Bookmark(_))) => {}
                // The end of the watch, which the API server decides, or an error in it.
                Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => break,
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the same request may succeed later.
fn is_transient(error: &ClientError) -> bool {
    match error {
        ClientError::Request { .. } => error.status().is_none_or(|status| status.code == 429 || status.code >= 500),
        _ => false,
    }
}

pub mod conditions {
    //! Frequent conditions, with the names of kube-rs.

    use k8s_openapi::{
        api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod},
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    };
    use kube::Resource;

    use super::Condition;

    /// The object with this UID doesn't exist any more; another one of its name may.
    pub fn is_deleted<K: Resource>(uid: &str) -> impl Condition<K> {
        move |object: Option<&K>| object.is_none_or(|object| object.meta().uid.as_deref() != Some(uid))
    }

    /// The definition's kind is served.
    pub fn is_crd_established() -> impl Condition<CustomResourceDefinition> {
        |definition: Option<&CustomResourceDefinition>| {
            let status = definition.and_then(|definition| definition.status.as_ref());
            let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
        }
    }

    /// The pod's containers have started.
    pub fn is_pod_running() -> impl Condition<Pod> {
        |pod: Option<&Pod>| {
            let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
            phase == Some("Running")
        }
    }

    /// The Job has completed successfully.
    pub fn is_job_completed() -> impl Condition<Job> {
        |job: Option<&Job>| {
            let status = job.and_then(|job| job.status.as_ref());
            let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Complete" && condition.status == "True")
        }
    }

    /// All pods of the Deployment are of its latest template and available, as `kubectl rollout status` waits for.
    pub fn is_deployment_completed() -> impl Condition<Deployment> {
        |deployment: Option<&Deployment>| {
            let Some(Deployment { metadata, spec: Some(spec), status: Some(status) }) = deployment else {
                return false;
            };
            let wanted = spec.replicas.unwrap_or(1);
            status.observed_generation >= metadata.generation
                && status.updated_replicas.unwrap_or_default() == wanted
                && status.replicas.unwrap_or_default() == wanted
                && status.available_replicas.unwrap_or_default() == wanted
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
    use serde_json::{Value, json};

    use super::*;

    fn check<K: AnyObject>(condition: &impl Condition<K>, object: Value, expected: bool) {
        let parsed = serde_json::from_value::<K>(object.clone()).expect("an object");
        assert_eq!(condition.matches_object(Some(&parsed)), expected, "{object}");
        assert!(!condition.matches_object(None) || expected);
    }

    #[test]
    fn conditions_hold_for_what_their_names_say() {
        let completed = conditions::is_deployment_completed();
        let deployment = |updated: i32, observed: i64| {
            json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "replicas": 2, "updatedReplicas": updated, "availableReplicas": 2},
            })
        };
        check::<Deployment>(&completed, deployment(2, 2), true);
        check::<Deployment>(&completed, deployment(1, 2), false);
        check::<Deployment>(&completed, deployment(2, 1), false);
        let running = conditions::is_pod_running();
        check::<Pod>(&running, json!({"status": {"phase": "Running"}}), true);
        check::<Pod>(&running, json!({"status": {"phase": "Pending"}}), false);
        let job = |status: &str| json!({"status": {"conditions": [{"type": "Complete", "status": status}]}});
        check::<Job>(&conditions::is_job_completed(), job("True"), true);
        check::<Job>(&conditions::is_job_completed(), job("False"), false);
        let gone = conditions::is_deleted::<Pod>("1");
        assert!(gone.matches_object(None));
        check::<Pod>(&gone, json!({"metadata": {"uid": "2"}}), true);
        let pod = serde_json::from_value(json!({"metadata": {"uid": "1"}})).expect("a pod");
        assert!(!gone.matches_object(Some(&pod)));
    }
}
