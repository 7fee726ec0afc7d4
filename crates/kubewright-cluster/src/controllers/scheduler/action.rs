//! What the scheduler does about a pod.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kubewright_apimachinery::random::Random;
use serde_json::{Value, json};

use super::{
    candidate::{PREEMPTED, PodKey},
    devices::{self, Binding},
    volumes::Reservation,
};
use crate::{
    controllers::{
        pod::with_condition,
        resource_claims::FINALIZER,
        value::{condition, is_deleting, list, stamp, text},
    },
    events::ObjectEvent,
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// How often an object is written that others change meanwhile: a victim whose condition is set, and a claim.
const ATTEMPTS: usize = 5;
/// How many victims are evicted at the same time, as in kube-scheduler.
const EVICTIONS: usize = 16;
/// The reason in the condition of pods that no node can take.
const UNSCHEDULABLE: &str = "Unschedulable";
/// The condition of pods that are to be evicted.
const TARGET: &str = "DisruptionTarget";

/// An action for a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodAction {
    /// Bind a pod to the node of this name.
    Bind(String),
    /// Write what binds the volumes of a pod, and the allocations and reservations of its claims of devices.
    Prepare {
        volumes: Vec<Reservation>,
        claims: Vec<Binding>,
        /// The node on which the devices have conditions to meet before the pod is bound, if they have any.
        awaited: Option<String>,
    },
    /// Set the condition `PodScheduled` of a pod that can't be bound, with the reason.
    Report(String, Arc<Value>),
    /// The same for a pod about which nothing can be decided, or whose volumes and claims couldn't be bound.
    Fail(String, Arc<Value>),
    /// The same, after the devices of a claim are given back.
    Deallocate { why: String, pod: Arc<Value>, claim: Arc<Value> },
    /// Nominate a node for a pod, and evict pods from it.
    Preempt {
        why: String,
        pod: Arc<Value>,
        node: String,
        victims: Vec<PodKey>,
        /// Pods of lower priority that were nominated for the node, and aren't any more.
        superseded: Vec<PodKey>,
    },
}

/// Acts on a pod with this resource version, and returns the events.
pub(super) async fn perform(
    client: &ObjectClient,
    pod: &PodKey,
    action: &PodAction,
    version: &str,
    now: Timestamp,
    random: &Random,
) -> Result<Vec<ObjectEvent>, kube::Error> {
    let failed = |why: &str, object: &Value| {
        let version = text(object, "/metadata/resourceVersion");
        event(pod, true, "FailedScheduling", why.to_owned()).with("Scheduling", version)
    };
    match action {
        PodAction::Bind(node) => {
            let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
            client.create(&path(pod), "/binding", &binding).await?;
            let message = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
            Ok(vec![event(pod, false, "Scheduled", message).with("Binding", version)])
        }
        PodAction::Prepare { volumes, claims, awaited } => {
            for reservation in volumes {
                client.replace(&reservation.path(), "", &reservation.after).await?;
            }
            for claim in claims {
                bind_claim(client, claim, now, random).await?;
            }
            let waiting = |node: &String| {
                let message = format!("waiting for binding conditions for device on node {node}");
                event(pod, false, "BindingConditionsPending", message).with("Scheduling", version)
            };
            Ok(awaited.iter().map(waiting).collect())
        }
        PodAction::Deallocate { why, pod: object, claim } => {
            let mut free = (**claim).clone();
            if let Some(status) = free["status"].as_object_mut() {
                status.retain(|field, _| !["allocation", "devices", "reservedFor"].contains(&&**field));
            }
            client.replace(&devices::path(&free), "/status", &free).await?;
            report(client, pod, object, (UNSCHEDULABLE, why), Value::Null, now).await?;
            Ok(vec![failed(why, object)])
        }
        PodAction::Report(why, object) | PodAction::Fail(why, object) => {
            let reason = if matches!(action, PodAction::Fail(..)) { "SchedulerError" } else { UNSCHEDULABLE };
            report(client, pod, object, (reason, why), Value::Null, now).await?;
            Ok(vec![failed(why, object)])
        }
        PodAction::Preempt { why, pod: object, node, victims, superseded } => {
            report(client, pod, object, (UNSCHEDULABLE, why), node.as_str().into(), now).await?;
            let mut events = vec![failed(why, object)];
            let scheduler = text(object, "/spec/schedulerName");
            let evictions = stream::iter(victims.clone()).map(async |victim| {
                let evicted = evict(client, &victim, scheduler, now).await;
                (victim, evicted)
            });
            // All are awaited, so that none is left halfway because another one fails.
            let evicted: Vec<_> = evictions.buffered(EVICTIONS).collect().await;
            for (victim, evicted) in evicted {
                if let Some(version) = evicted? {
                    let message = format!("Preempted by pod {} on node {node}", pod.uid);
                    let event = event(&victim, false, "Preempted", message).with("Preempting", &version);
                    events.push(ObjectEvent { related: Some(reference(pod)), ..event });
                }
            }
            for other in superseded {
                let patch = json!({"metadata": {"uid": other.uid}, "status": {"nominatedNodeName": null}});
                if let Err(error) = client.merge(&path(other), "/status", &patch).await {
                    tracing::debug!(%error, pod = other.name, "failed to remove the nomination of a pod");
                }
            }
            Ok(events)
        }
    }
}

/// Writes the allocation of a claim of devices, if it has none yet, and the reservation for a pod.
async fn bind_claim(
    client: &ObjectClient,
    binding: &Binding,
    now: Timestamp,
    random: &Random,
) -> Result<(), kube::Error> {
    let address = binding.path();
    let mut binding = binding.clone();
    let results = binding.allocation.as_mut().and_then(|allocation| allocation["devices"]["results"].as_array_mut());
    for share in results.into_iter().flatten().filter(|result| result["shareID"].is_string()) {
        share["shareID"] = random.uuid().into();
    }
    let mut claim = (*binding.claim).clone();
    for attempt in 1.. {
        let error = match write_claim(client, &address, &binding, claim, now).await {
            Err(error) if is_conflict(&error) && attempt < ATTEMPTS => error,
            result => return result,
        };
        // Others may change it, too, but mustn't allocate its devices.
        let current = client.get(&address).await?.filter(|current| !is_deleting(current));
        let is_taken = |current: &Value| binding.allocation.is_some() && current["status"]["allocation"].is_object();
        claim = match current {
            Some(current) if !is_taken(&current) => current,
            _ => return Err(error),
        };
    }
    Ok(())
}

async fn write_claim(
    client: &ObjectClient,
    address: &ObjectPath,
    binding: &Binding,
    mut claim: Value,
    now: Timestamp,
) -> Result<(), kube::Error> {
    if let Some(allocation) = &binding.allocation {
        if !list(&claim, "/metadata/finalizers").contains(&FINALIZER.into()) {
            let mut finalizers = list(&claim, "/metadata/finalizers").to_vec();
            finalizers.push(FINALIZER.into());
            claim["metadata"]["finalizers"] = finalizers.into();
            claim = client.replace(address, "", &claim).await?;
        }
        claim["status"]["allocation"] = allocation.clone();
    }
    if claim["status"]["allocation"]["allocationTimestamp"].is_null() {
        claim["status"]["allocation"]["allocationTimestamp"] = stamp(now);
    }
    let mut users = list(&claim, "/status/reservedFor").to_vec();
    users.push(binding.user.clone());
    claim["status"]["reservedFor"] = users.into();
    client.replace(address, "/status", &claim).await.map(drop)
}

/// Sets the condition and the nomination of a pod that can't be bound.
async fn report(
    client: &ObjectClient,
    pod: &PodKey,
    object: &Value,
    (reason, why): (&str, &str),
    nominated: Value,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let before = condition(object, "PodScheduled").filter(|one| one["status"] == "False");
    let since = before.map_or_else(|| stamp(now), |one| one["lastTransitionTime"].clone());
    let ours = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": why,
        "lastTransitionTime": since, "observedGeneration": object["metadata"]["generation"],
    });
    let status = json!({"conditions": with_condition(object, ours), "nominatedNodeName": nominated});
    let metadata = json!({"uid": pod.uid, "resourceVersion": object["metadata"]["resourceVersion"]});
    let patch = json!({"metadata": metadata, "status": status});
    client.merge(&path(pod), "/status", &patch).await.map(drop)
}

/// Deletes a pod in favour of another one, and returns its resource version. Returns `None` if it is gone or going
/// already.
async fn evict(
    client: &ObjectClient,
    pod: &PodKey,
    scheduler: &str,
    now: Timestamp,
) -> Result<Option<String>, kube::Error> {
    let address = path(pod);
    let mut version = String::new();
    for attempt in 1..=ATTEMPTS {
        let Some(object) = client.get(&address).await? else { return Ok(None) };
        if text(&object, "/metadata/uid") != pod.uid || is_deleting(&object) {
            return Ok(None);
        }
        text(&object, "/metadata/resourceVersion").clone_into(&mut version);
        let target = json!({
            "type": TARGET, "status": "True", "reason": PREEMPTED, "lastTransitionTime": stamp(now),
            "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
            "observedGeneration": object["metadata"]["generation"],
        });
        let metadata = json!({"uid": pod.uid, "resourceVersion": object["metadata"]["resourceVersion"]});
        let patch = json!({"metadata": metadata, "status": {"conditions": with_condition(&object, target)}});
        match client.merge(&address, "/status", &patch).await {
            Ok(_) => break,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) if is_conflict(&error) && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
    let options = DeleteOptions { uid: Some(&pod.uid), ..DeleteOptions::default() };
    match client.delete(&address, &options).await {
        Err(error) if is_gone(&error) || is_conflict(&error) => Ok(None),
        result => result.map(|()| Some(version)),
    }
}

fn path(pod: &PodKey) -> ObjectPath {
    ObjectPath::core("pods", Some(&pod.namespace), &pod.name)
}

fn reference(pod: &PodKey) -> [String; 5] {
    let PodKey { namespace, name, uid } = pod.clone();
    ["v1".into(), "Pod".into(), namespace, name, uid]
}

fn event(pod: &PodKey, warning: bool, reason: &str, message: String) -> ObjectEvent {
    ObjectEvent::new(reference(pod), warning, reason, message)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use http::{Method, Request, Response};
    use kube::{Client, client::Body};
    use tokio::time::sleep;

    use super::*;

    fn key(number: usize) -> PodKey {
        PodKey { namespace: "n".into(), name: format!("p{number}"), uid: format!("u{number}") }
    }

    #[tokio::test(start_paused = true)]
    async fn victims_are_evicted_side_by_side() {
        let (deleting, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (deleting.clone(), most.clone());
        let answer = move |request: Request<Body>| {
            let (deleting, most) = counts.clone();
            async move {
                let number = request.uri().path().trim_end_matches("/status").rsplit('p').next().unwrap_or_default();
                let pod = json!({"metadata": {"name": format!("p{number}"), "uid": format!("u{number}"), "resourceVersion": "1"}});
                if *request.method() == Method::DELETE {
                    most.fetch_max(deleting.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                    deleting.fetch_sub(1, Ordering::Relaxed);
                }
                Ok::<_, Infallible>(Response::new(Body::from(pod.to_string().into_bytes())))
            }
        };
        let client = ObjectClient::new(Client::new(tower::service_fn(answer), "default"));
        let victims: Vec<_> = (1..=40).map(key).collect();
        let action = PodAction::Preempt {
            why: "why".into(),
            pod: Arc::new(json!({"metadata": {}, "spec": {"schedulerName": "s"}})),
            node: "a".into(),
            victims: victims.clone(),
            superseded: Vec::new(),
        };
        let events =
            perform(&client, &key(0), &action, "1", Timestamp::UNIX_EPOCH, &Random::seeded(1)).await.expect("done");
        assert_eq!(events.len(), 1 + victims.len());
        assert_eq!((most.load(Ordering::Relaxed), deleting.load(Ordering::Relaxed)), (EVICTIONS, 0));
    }

    /// Binds a claim that was read before it became `current` at the server. Returns what is stored at the end, and the
    /// status code of the error.
    async fn bound(current: Value) -> (Value, Option<u16>) {
        let stored = Arc::new(parking_lot::Mutex::new(current));
        let server = stored.clone();
        let answer = move |request: Request<Body>| {
            let stored = server.clone();
            async move {
                let is_write = *request.method() == Method::PUT;
                let body = request.into_body().collect_bytes().await.expect("a body");
                let mut stored = stored.lock();
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let version = |of: &Value| text(of, "/metadata/resourceVersion").to_owned();
                if is_write && version(&sent) != version(&stored) {
                    let status = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409});
                    let response = Response::builder().status(409).body(Body::from(status.to_string().into_bytes()));
                    return Ok::<_, Infallible>(response.expect("a response"));
                }
                if is_write {
                    let next = format!("{}0", version(&sent));
                    *stored = sent;
                    stored["metadata"]["resourceVersion"] = next.into();
                }
                Ok(Response::new(Body::from(stored.to_string().into_bytes())))
            }
        };
        let client = ObjectClient::new(Client::new(tower::service_fn(answer), "default"));
        let claim = json!({"metadata": {"namespace": "n", "name": "c", "resourceVersion": "1"}, "spec": {}});
        let binding = Binding {
            claim: claim.into(),
            allocation: Some(json!({"devices": {"results": [{"device": "x"}, {"device": "y", "shareID": ""}]}})),
            user: json!({"resource": "pods", "name": "p", "uid": "u"}),
        };
        let action = PodAction::Prepare { volumes: Vec::new(), claims: vec![binding], awaited: None };
        let result = perform(&client, &key(0), &action, "1", Timestamp::UNIX_EPOCH, &Random::seeded(1)).await;
        let code = result.err().map(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        });
        let stored = stored.lock().clone();
        (stored, code)
    }

    #[tokio::test]
    async fn a_claim_that_others_change_is_written_again_unless_it_has_devices() {
        let claim = |status: Value| {
            let metadata = json!({"namespace": "n", "name": "c", "resourceVersion": "2", "labels": {"new": "1"}});
            json!({"metadata": metadata, "spec": {}, "status": status})
        };
        let (stored, code) = bound(claim(json!({}))).await;
        assert_eq!((code, &stored["metadata"]["labels"]), (None, &json!({"new": "1"})));
        assert_eq!(stored["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(stored["status"]["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "u"}]));
        let results = json!([{"device": "x"}, {"device": "y", "shareID": Random::seeded(1).uuid()}]);
        let allocation = json!({"devices": {"results": results}, "allocationTimestamp": "1970-01-01T00:00:00Z"});
        assert_eq!(stored["status"]["allocation"], allocation);
        let taken = claim(json!({"allocation": {"devices": {"results": [{"device": "x"}]}}}));
        assert_eq!(bound(taken.clone()).await, (taken, Some(409)));
    }
}
