//! The garbage collector: deletes objects whose owners are gone, orphans dependents, and makes owners wait for
//! dependents.
//!
//! The [`graph`] decides, and this module executes the decisions concurrently. Nothing is polled: if a write fails
//! because the object has changed, a new decision is made when the change arrives.

pub(crate) mod graph;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed, registry::Resource};
use serde_json::{Value, json};

use self::graph::{Decision, Graph, Object, OwnerIdentity, OwnerState, Uid};
use super::{
    batch::{self, Batch},
    retry::{Retries, until},
};
use crate::{
    events::{ObjectEvent, Recorder},
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
    panics::restarting,
};

/// The maximum number of objects with a write or lookup in progress.
const CONCURRENCY: usize = 32;

/// Collects garbage for as long as it is polled.
pub(crate) async fn run(api: ApiServer, client: ObjectClient, clock: SharedClock, events: Recorder) {
    let start = || {
        let collector = Collector {
            feed: api.feed(),
            api: api.clone(),
            client: client.clone(),
            clock: clock.clone(),
            events: events.clone(),
            graph: Graph::default(),
            work: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            settled: BTreeSet::new(),
            retries: Retries::default(),
            reported: BTreeSet::new(),
        };
        collector.run()
    };
    restarting("garbage-collector-controller", clock.clone(), start).await;
}

/// The result of a write or a lookup.
enum WorkResult {
    /// The write succeeded, or was obsolete. The feed delivers the new state of the object.
    Written,
    /// The owners were looked up.
    Verified(Vec<(OwnerIdentity, OwnerState)>),
    /// The request failed.
    Failed(kube::Error),
}

struct Collector {
    api: ApiServer,
    client: ObjectClient,
    clock: SharedClock,
    events: Recorder,
    feed: Feed,
    graph: Graph,
    /// For each request: the object, the version that the decision was based on, and the result.
    work: FuturesUnordered<BoxFuture<'static, (Uid, String, WorkResult)>>,
    /// Objects with a request in progress.
    busy: BTreeSet<Uid>,
    /// Objects that were written and whose new state has not arrived yet.
    settled: BTreeSet<Uid>,
    retries: Retries<Uid>,
    /// The dependents and owners for which an event has been recorded.
    reported: BTreeSet<(Uid, String)>,
}

impl Collector {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            for uid in self.retries.due(now) {
                self.graph.touch(uid);
            }
            if self.feed.is_synced() {
                self.begin_work();
            }
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                batch = batch::next(&mut self.feed) => self.take_all(&batch),
                Some((uid, version, outcome)) = self.work.next() => self.conclude(uid, &version, outcome),
                () = timer => {}
            }
            // Requests progress even if changes arrive without a pause.
            if let Some(Some((uid, version, outcome))) = self.work.next().now_or_never() {
                self.conclude(uid, &version, outcome);
            }
        }
    }

    fn take_all(&mut self, batch: &Batch) {
        if batch.restarted {
            self.graph = Graph::default();
            self.settled.clear();
        }
        for change in &batch.changes {
            self.take(change);
        }
    }

    fn take(&mut self, change: &Change) {
        if change.resource.kind.as_ref() == "CustomResourceDefinition" {
            self.graph.kinds_changed();
        }
        let Some(object) = object(&change.resource, &change.stored.outline()) else { return };
        self.settled.remove(&object.uid);
        if change.kind == ChangeKind::Deleted {
            self.retries.forget(&object.uid);
            self.reported.retain(|(uid, _)| *uid != object.uid);
            self.graph.remove(&object.uid);
        } else {
            self.graph.set(object);
        }
    }

    fn begin_work(&mut self) {
        while self.work.len() < CONCURRENCY {
            let Some(uid) = self.graph.next() else { return };
            if self.settled.contains(&uid) || self.busy.contains(&uid) || self.retries.is_waiting(&uid) {
                continue;
            }
            self.report_cross_namespace_owners(&uid);
            let Some(object) = self.graph.get(&uid) else { continue };
            let version = object.version.clone();
            let work = match self.graph.decide(&uid) {
                Decision::Nothing => {
                    self.retries.forget(&uid);
                    continue;
                }
                Decision::Verify(owners) => verify(self.api.clone(), self.client.clone(), owners),
                decision => write(self.client.clone(), object.clone(), decision),
            };
            self.busy.insert(uid.clone());
            self.work.push(Box::pin(async move { (uid, version, work.await) }));
        }
    }

    fn conclude(&mut self, uid: Uid, version: &str, outcome: WorkResult) {
        self.busy.remove(&uid);
        match outcome {
            WorkResult::Written => {
                self.retries.forget(&uid);
                match self.graph.get(&uid) {
                    Some(object) if object.version == version => {
                        self.settled.insert(uid);
                    }
                    // The new state of the object has already arrived.
                    _ => self.graph.touch(uid),
                }
            }
            WorkResult::Verified(states) => {
                for (owner, state) in states {
                    self.graph.verified(owner, state);
                }
                self.graph.touch(uid);
            }
            // The state that the write conflicts with has arrived.
            WorkResult::Failed(error)
                if is_conflict(&error) && self.graph.get(&uid).is_some_and(|object| object.version != version) =>
            {
                self.graph.touch(uid);
            }
            WorkResult::Failed(error) => {
                tracing::debug!(%error, %uid, "failed to collect garbage; retrying later");
                self.retries.failed(uid, self.clock.monotonic());
            }
        }
    }

    /// Records an event for each owner in another namespace, once.
    fn report_cross_namespace_owners(&mut self, uid: &Uid) {
        let owners = self.graph.cross_namespace_owners(uid);
        let Some(object) = self.graph.get(uid) else { return };
        for owner in owners {
            if !self.reported.insert((uid.clone(), owner.uid.clone())) {
                continue;
            }
            let namespace = object.address.namespace.clone().unwrap_or_default();
            let OwnerReference { api_version, kind, name, uid: owner_uid, .. } = owner;
            let message = format!(
                "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner_uid}] does not exist \
                 in namespace {namespace:?}"
            );
            let regarding = [
                group_version(&object.address),
                object.kind.to_string(),
                namespace,
                object.address.name.clone(),
                object.uid.to_string(),
            ];
            self.events.record(ObjectEvent::new(regarding, true, "OwnerRefInvalidNamespace", message));
        }
    }
}

fn group_version(address: &ObjectPath) -> String {
    if address.group.is_empty() {
        address.version.to_string()
    } else {
        format!("{}/{}", address.group, address.version)
    }
}

/// Looks up owners.
fn verify(api: ApiServer, client: ObjectClient, owners: Vec<OwnerIdentity>) -> BoxFuture<'static, WorkResult> {
    Box::pin(async move {
        let mut states = Vec::new();
        for owner in owners {
            match look(&api, &client, &owner).await {
                Ok(state) => states.push((owner, state)),
                Err(error) => return WorkResult::Failed(error),
            }
        }
        WorkResult::Verified(states)
    })
}

async fn look(api: &ApiServer, client: &ObjectClient, owner: &OwnerIdentity) -> Result<OwnerState, kube::Error> {
    let resources = api.registry().all();
    let is_meant = |entry: &&Arc<Resource>| {
        (&*entry.group, &*entry.version, &*entry.kind) == (&*owner.group, &*owner.version, &*owner.kind)
    };
    let found = resources.iter().find(is_meant);
    let Some(resource) = found else { return Ok(OwnerState::Unknown) };
    if resource.namespaced && owner.namespace.is_none() {
        // A cluster-scoped object can't have a namespaced owner, since the reference doesn't contain a namespace.
        return Ok(OwnerState::Unknown);
    }
    let address = ObjectPath::of(resource, owner.namespace.as_deref(), &owner.name);
    let object = client.get(&address).await?;
    let same = object.is_some_and(|object| object["metadata"]["uid"] == *owner.uid);
    Ok(if same { OwnerState::Present } else { OwnerState::Absent })
}

/// Executes a decision, with the precondition that the object hasn't changed since.
fn write(client: ObjectClient, object: Object, decision: Decision) -> BoxFuture<'static, WorkResult> {
    Box::pin(async move {
        let metadata = |field: &str, value: Value| {
            let mut patch = json!({"metadata": {"uid": &*object.uid, "resourceVersion": object.version}});
            patch["metadata"][field] = value;
            patch
        };
        let result = match &decision {
            Decision::Nothing | Decision::Verify(_) => Ok(()),
            Decision::Delete(policy) => {
                let how = DeleteOptions {
                    uid: Some(&object.uid),
                    version: Some(&object.version),
                    propagation: Some(policy),
                    grace: None,
                };
                client.delete(&object.address, &how).await
            }
            Decision::SetOwners(owners) => {
                let patch = metadata("ownerReferences", json!(owners));
                client.merge(&object.address, "", &patch).await.map(drop)
            }
            Decision::SetFinalizers(finalizers) => {
                let patch = metadata("finalizers", json!(finalizers));
                client.merge(&object.address, "", &patch).await.map(drop)
            }
        };
        match result {
            Ok(()) => WorkResult::Written,
            Err(error) if is_gone(&error) => WorkResult::Written,
            Err(error) => WorkResult::Failed(error),
        }
    })
}

/// Returns the parts of an object that the graph needs.
fn object(resource: &Resource, value: &Value) -> Option<Object> {
    let metadata = &value["metadata"];
    let text = |field: &str| metadata[field].as_str();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    Some(Object {
        uid: Arc::from(text("uid")?),
        address: ObjectPath::of(resource, text("namespace"), text("name")?),
        kind: resource.kind.clone(),
        version: text("resourceVersion").unwrap_or_default().into(),
        owners: owners.filter_map(|owner| serde_json::from_value(owner.clone()).ok()).collect(),
        finalizers: finalizers.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        deleting: !metadata["deletionTimestamp"].is_null(),
    })
}
