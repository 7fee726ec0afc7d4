//! The garbage collector: deletes what has lost its owners, lets go what is to be orphaned, and lets owners wait for their
//! dependents.
//!
//! The decisions are the [`graph`]'s; here they are carried out, some at a time. Nothing is polled: what fails because an
//! object has changed is decided upon again when the change arrives.

pub(crate) mod graph;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed, registry::Resource};
use serde_json::{Value, json};

use self::graph::{Claim, Decision, Graph, Object, Uid, Verdict};
use super::{
    batch::{self, Batch},
    retry::{Retries, until},
};
use crate::{
    access::{Access, Address, Deletion, is_conflict, is_gone},
    events::{Occurrence, Recorder},
};

/// How many objects are dealt with at a time.
const AT_A_TIME: usize = 32;

/// Collects garbage for as long as it is polled.
pub(crate) async fn run(api: ApiServer, access: Access, clock: SharedClock, events: Recorder) {
    let feed = api.feed();
    let collector = Collector {
        api,
        access,
        clock,
        events,
        feed,
        graph: Graph::default(),
        work: FuturesUnordered::new(),
        busy: BTreeSet::new(),
        settled: BTreeSet::new(),
        retries: Retries::default(),
        reported: BTreeSet::new(),
    };
    collector.run().await;
}

/// How a piece of work went.
enum Outcome {
    /// The write was done, or was too late. The feed tells of the object's new state.
    Written,
    /// Owners were looked at.
    Verified(Vec<(Claim, Verdict)>),
    /// Neither.
    Failed(kube::Error),
}

struct Collector {
    api: ApiServer,
    access: Access,
    clock: SharedClock,
    events: Recorder,
    feed: Feed,
    graph: Graph,
    /// Each tells the object, the version that was decided upon, and how it went.
    work: FuturesUnordered<BoxFuture<'static, (Uid, String, Outcome)>>,
    /// Objects that are being dealt with.
    busy: BTreeSet<Uid>,
    /// Objects that have been written to and whose new state has not arrived yet.
    settled: BTreeSet<Uid>,
    retries: Retries<Uid>,
    /// Dependents and owners whose misplacement has been told.
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
        }
    }

    fn take_all(&mut self, batch: &Batch) {
        if batch.anew {
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
        let Some(object) = object(&change.resource, &change.object) else { return };
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
        while self.work.len() < AT_A_TIME {
            let Some(uid) = self.graph.next() else { return };
            if self.settled.contains(&uid) || self.busy.contains(&uid) || self.retries.is_waiting(&uid) {
                continue;
            }
            self.report_misplaced(&uid);
            let Some(object) = self.graph.get(&uid) else { continue };
            let version = object.version.clone();
            let work = match self.graph.decide(&uid) {
                Decision::Nothing => {
                    self.retries.forget(&uid);
                    continue;
                }
                Decision::Verify(claims) => verify(self.api.clone(), self.access.clone(), claims),
                decision => write(self.access.clone(), object.clone(), decision),
            };
            self.busy.insert(uid.clone());
            self.work.push(Box::pin(async move { (uid, version, work.await) }));
        }
    }

    fn conclude(&mut self, uid: Uid, version: &str, outcome: Outcome) {
        self.busy.remove(&uid);
        match outcome {
            Outcome::Written => {
                self.retries.forget(&uid);
                match self.graph.get(&uid) {
                    Some(object) if object.version == version => {
                        self.settled.insert(uid);
                    }
                    // The object's new state has arrived already.
                    _ => self.graph.touch(uid),
                }
            }
            Outcome::Verified(verdicts) => {
                for (claim, verdict) in verdicts {
                    self.graph.verified(claim, verdict);
                }
                self.graph.touch(uid);
            }
            Outcome::Failed(error) => {
                tracing::debug!(%error, %uid, "garbage could not be collected, and will be later");
                self.retries.failed(uid, self.clock.monotonic());
            }
        }
    }

    /// Tells of owners in other namespaces, once for each.
    fn report_misplaced(&mut self, uid: &Uid) {
        let misplaced = self.graph.misplaced_owners(uid);
        let Some(object) = self.graph.get(uid) else { return };
        for owner in misplaced {
            if !self.reported.insert((uid.clone(), owner.uid.clone())) {
                continue;
            }
            let namespace = object.address.namespace.clone().unwrap_or_default();
            let OwnerReference { api_version, kind, name, uid: owner_uid, .. } = owner;
            let message = format!(
                "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner_uid}] does not exist \
                 in namespace {namespace:?}"
            );
            self.events.record(Occurrence {
                regarding: [
                    group_version(&object.address),
                    object.kind.to_string(),
                    namespace,
                    object.address.name.clone(),
                    object.uid.to_string(),
                ],
                warning: true,
                reason: "OwnerRefInvalidNamespace".into(),
                message,
            });
        }
    }
}

fn group_version(address: &Address) -> String {
    if address.group.is_empty() {
        address.version.to_string()
    } else {
        format!("{}/{}", address.group, address.version)
    }
}

/// Looks whether owners exist.
fn verify(api: ApiServer, access: Access, claims: Vec<Claim>) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        let mut verdicts = Vec::new();
        for claim in claims {
            match look(&api, &access, &claim).await {
                Ok(verdict) => verdicts.push((claim, verdict)),
                Err(error) => return Outcome::Failed(error),
            }
        }
        Outcome::Verified(verdicts)
    })
}

async fn look(api: &ApiServer, access: &Access, claim: &Claim) -> Result<Verdict, kube::Error> {
    let resources = api.registry().all();
    let found = resources.iter().find(|entry| *entry.group == *claim.group && *entry.kind == *claim.kind);
    let Some(resource) = found else { return Ok(Verdict::Unknown) };
    if resource.namespaced && claim.namespace.is_none() {
        // Something outside of all namespaces can't be owned by something in one: nobody can say in which.
        return Ok(Verdict::Unknown);
    }
    let address = Address::of(resource, claim.namespace.as_deref(), &claim.name);
    let object = access.get(&address).await?;
    let same = object.is_some_and(|object| object["metadata"]["uid"] == *claim.uid);
    Ok(if same { Verdict::Present } else { Verdict::Absent })
}

/// Carries out a decision, if the object is still as it was decided upon.
fn write(access: Access, object: Object, decision: Decision) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        let metadata = |field: &str, value: Value| {
            let mut patch = json!({"metadata": {"uid": &*object.uid, "resourceVersion": object.version}});
            patch["metadata"][field] = value;
            patch
        };
        let result = match &decision {
            Decision::Nothing | Decision::Verify(_) => Ok(()),
            Decision::Delete(policy) => {
                let how = Deletion {
                    uid: Some(&object.uid),
                    version: Some(&object.version),
                    propagation: Some(policy),
                    grace: None,
                };
                access.delete(&object.address, &how).await
            }
            Decision::SetOwners(owners) => {
                let patch = metadata("ownerReferences", json!(owners));
                access.merge(&object.address, "", &patch).await.map(drop)
            }
            Decision::SetFinalizers(finalizers) => {
                let patch = metadata("finalizers", json!(finalizers));
                access.merge(&object.address, "", &patch).await.map(drop)
            }
        };
        match result {
            Ok(()) => Outcome::Written,
            Err(error) if is_gone(&error) || is_conflict(&error) => Outcome::Written,
            Err(error) => Outcome::Failed(error),
        }
    })
}

/// What the graph needs to know of an object.
fn object(resource: &Resource, value: &Value) -> Option<Object> {
    let metadata = &value["metadata"];
    let text = |field: &str| metadata[field].as_str();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    Some(Object {
        uid: Arc::from(text("uid")?),
        address: Address::of(resource, text("namespace"), text("name")?),
        kind: resource.kind.clone(),
        version: text("resourceVersion").unwrap_or_default().into(),
        owners: owners.filter_map(|owner| serde_json::from_value(owner.clone()).ok()).collect(),
        finalizers: finalizers.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        deleting: !metadata["deletionTimestamp"].is_null(),
    })
}
