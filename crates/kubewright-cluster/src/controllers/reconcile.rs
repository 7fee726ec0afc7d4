//! The loop that the controllers of workloads share: it feeds a [`Controller`] with changes and carries out its plans.
//!
//! A stale view never leads to a second pod: while an object's plan is carried out no other is made for it, and the feed is
//! read to its end, which has all that the plan has written, before the next one is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, Feed};
use serde_json::{Value, json};

use super::{
    batch::{self, Batch},
    family::Kind,
    retry::{Retries, until},
};
use crate::{
    access::{Access, Address, Deletion, is_conflict, is_gone},
    events::{Occurrence, Recorder},
};

/// How many objects are dealt with at a time.
const AT_A_TIME: usize = 32;
/// How many pods of one plan are created at a time.
const WRITES: usize = 64;

/// An object of a kind that is understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The namespace.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

impl Key {
    /// That of an object in a namespace.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        Some(Self { namespace: metadata["namespace"].as_str()?.into(), name: metadata["name"].as_str()?.into() })
    }

    /// The first that a namespace can have.
    pub(crate) fn first_of(namespace: &str) -> Self {
        Self { namespace: namespace.into(), name: String::new() }
    }
}

/// What a controller is: what it knows, and what follows from it. Pure.
pub(crate) trait Controller: Send {
    /// Forgets everything; all that exists will be told again.
    fn reset(&mut self);
    /// Takes in a change, and says which objects it matters to.
    fn take(&mut self, change: &Change) -> Vec<Key>;
    /// What is to be done for an object.
    fn decide(&self, key: &Key, now: Timestamp) -> Plan;
    /// A plan has been carried out, or has failed: then with the step's sort and what the server said.
    fn concluded(&mut self, _key: &Key, _failure: Option<(Sort, String)>) {}
}

/// What sort of step it was that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A pod could not be created.
    Create,
    /// A pod could not be deleted.
    Delete,
    /// Anything else.
    Other,
}

/// What is to be done for an object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Whom events are about: `apiVersion`, `kind`, `namespace`, `name` and `uid`.
    pub(crate) regarding: [String; 5],
    /// In order; none is taken after one that has failed.
    pub(crate) steps: Vec<Step>,
    /// When to decide again, though nothing may have changed.
    pub(crate) again: Option<Duration>,
}

impl Plan {
    /// A plan for an object, with nothing to do.
    pub(crate) fn of(kind: &Kind, object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let regarding = [kind.api_version(), kind.kind.into(), text("namespace"), text("name"), text("uid")];
        Self { regarding, ..Self::default() }
    }

    /// Decide again after `delay`, or earlier if that was planned.
    pub(crate) fn again_in(&mut self, delay: Duration) {
        self.again = Some(self.again.map_or(delay, |planned| planned.min(delay)));
    }

    /// Tell of something in an event.
    pub(crate) fn tell(&mut self, warning: bool, reason: &'static str, message: String) {
        self.steps.push(Step::Tell { warning, reason, message });
    }
}

/// A thing to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Create pods: one, then two, then four at a time, so that what can't be is not tried often.
    CreatePods(Vec<Value>),
    /// Delete pods, by name and UID.
    DeletePods(Vec<(String, String)>),
    /// Create something.
    Create(Address, Value),
    /// Merge a patch into an object or its subresource.
    Merge(Address, &'static str, Value),
    /// Delete the object of this UID.
    Delete(Address, String),
    /// Record an event.
    Tell {
        /// Or else `Normal`.
        warning: bool,
        /// In one word.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

impl Step {
    /// A patch of an object, if it is still as it was decided upon.
    pub(crate) fn change(kind: &Kind, object: &Value, mut patch: Value) -> Self {
        let metadata = &object["metadata"];
        patch["metadata"]["uid"] = metadata["uid"].clone();
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
        Self::Merge(address(kind, object), "", patch)
    }

    /// What makes an object's status this one; nothing if it is.
    pub(crate) fn status(kind: &Kind, object: &Value, mut status: Value) -> Option<Self> {
        let before = &object["status"];
        if *before == status {
            return None;
        }
        for (field, _) in before.as_object().into_iter().flatten() {
            if status.get(field).is_none() {
                status[field] = Value::Null;
            }
        }
        let patch = json!({"metadata": {"uid": object["metadata"]["uid"]}, "status": status});
        Some(Self::Merge(address(kind, object), "/status", patch))
    }

    /// A deletion.
    pub(crate) fn delete(kind: &Kind, object: &Value) -> Self {
        Self::Delete(address(kind, object), object["metadata"]["uid"].as_str().unwrap_or_default().into())
    }
}

fn address(kind: &Kind, object: &Value) -> Address {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    kind.address(text("namespace"), text("name"))
}

/// Runs a controller for as long as it is polled.
pub(crate) async fn run(
    api: ApiServer,
    access: Access,
    clock: SharedClock,
    events: Recorder,
    controller: impl Controller,
) {
    let runner = Runner {
        feed: api.feed(),
        worker: Worker { access, events },
        clock,
        controller,
        dirty: BTreeSet::new(),
        busy: BTreeMap::new(),
        work: FuturesUnordered::new(),
        retries: Retries::default(),
    };
    runner.run().await;
}

type Ended = (Key, Result<(), (Sort, kube::Error)>);

struct Runner<C> {
    feed: Feed,
    worker: Worker,
    clock: SharedClock,
    controller: C,
    dirty: BTreeSet<Key>,
    /// Objects whose plans are carried out, and when to decide again then.
    busy: BTreeMap<Key, Option<Duration>>,
    work: FuturesUnordered<BoxFuture<'static, Ended>>,
    retries: Retries<Key>,
}

impl<C: Controller> Runner<C> {
    async fn run(mut self) {
        loop {
            self.catch_up();
            let now = self.clock.monotonic();
            self.dirty.extend(self.retries.due(now));
            if self.feed.is_synced() {
                self.begin_work(now);
            }
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                batch = batch::next(&mut self.feed) => self.take(&batch),
                Some((key, result)) = self.work.next() => self.conclude(key, result),
                () = timer => {}
            }
        }
    }

    fn catch_up(&mut self) {
        loop {
            let batch = batch::ready(&mut self.feed);
            if batch.changes.is_empty() && !batch.anew {
                return;
            }
            self.take(&batch);
        }
    }

    fn take(&mut self, batch: &Batch) {
        if batch.anew {
            self.controller.reset();
        }
        for change in &batch.changes {
            self.dirty.extend(self.controller.take(change));
        }
    }

    fn begin_work(&mut self, now: Duration) {
        let waiting: Vec<_> = self.dirty.iter().filter(|key| !self.busy.contains_key(key)).cloned().collect();
        for key in waiting {
            if self.work.len() >= AT_A_TIME {
                return;
            }
            self.dirty.remove(&key);
            let plan = self.controller.decide(&key, self.clock.now());
            if plan.steps.is_empty() {
                self.settle(key, plan.again, now);
                continue;
            }
            self.busy.insert(key.clone(), plan.again);
            let worker = self.worker.clone();
            self.work.push(Box::pin(async move {
                let result = worker.carry_out(plan).await;
                (key, result)
            }));
        }
    }

    fn settle(&mut self, key: Key, again: Option<Duration>, now: Duration) {
        self.retries.forget(&key);
        if let Some(delay) = again {
            self.retries.later(key, now + delay);
        }
    }

    fn conclude(&mut self, key: Key, result: Result<(), (Sort, kube::Error)>) {
        let again = self.busy.remove(&key).flatten();
        let now = self.clock.monotonic();
        match result {
            Ok(()) => {
                self.controller.concluded(&key, None);
                self.settle(key, again, now);
            }
            Err((_, error)) if is_conflict(&error) || is_gone(&error) => self.retries.failed(key, now),
            Err((sort, error)) => {
                tracing::debug!(%error, name = key.name, namespace = key.namespace, "a plan could not be carried out");
                self.controller.concluded(&key, Some((sort, said(&error))));
                self.retries.failed(key, now);
            }
        }
    }
}

/// What the server said.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Carries out plans.
#[derive(Clone)]
struct Worker {
    access: Access,
    events: Recorder,
}

impl Worker {
    async fn carry_out(self, plan: Plan) -> Result<(), (Sort, kube::Error)> {
        let regarding = &plan.regarding;
        for step in &plan.steps {
            match step {
                Step::CreatePods(pods) => {
                    self.create_pods(regarding, pods).await.map_err(|error| (Sort::Create, error))?
                }
                Step::DeletePods(pods) => {
                    self.delete_pods(regarding, pods).await.map_err(|error| (Sort::Delete, error))?
                }
                Step::Create(address, body) => {
                    self.access.create(address, "", body).await.map_err(|error| (Sort::Other, error))?;
                }
                Step::Merge(address, subresource, patch) => {
                    self.access.merge(address, subresource, patch).await.map_err(|error| (Sort::Other, error))?;
                }
                Step::Delete(address, uid) => {
                    let how = Deletion { uid: Some(uid), propagation: Some("Background"), ..Deletion::default() };
                    forgive(self.access.delete(address, &how).await).map_err(|error| (Sort::Other, error))?;
                }
                Step::Tell { warning, reason, message } => self.tell(regarding, *warning, reason, message.clone()),
            }
        }
        Ok(())
    }

    async fn create_pods(&self, regarding: &[String; 5], pods: &[Value]) -> Result<(), kube::Error> {
        let address = Address::core("pods", Some(&regarding[2]), "");
        let (mut rest, mut size) = (pods, 1);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            let mut writes = Vec::new();
            for pod in batch {
                writes.push(self.access.create(&address, "", pod));
            }
            let mut failure = None;
            for result in join_all(writes).await {
                match result {
                    Ok(pod) => {
                        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                        self.tell(regarding, false, "SuccessfulCreate", format!("Created pod: {name}"));
                    }
                    Err(error) => {
                        self.tell(regarding, true, "FailedCreate", format!("Error creating: {}", said(&error)));
                        failure = Some(error);
                    }
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
            (rest, size) = (after, WRITES.min(size * 2));
        }
        Ok(())
    }

    async fn delete_pods(&self, regarding: &[String; 5], pods: &[(String, String)]) -> Result<(), kube::Error> {
        let mut result = Ok(());
        for (name, uid) in pods {
            let address = Address::core("pods", Some(&regarding[2]), name);
            let how = Deletion { uid: Some(uid), ..Deletion::default() };
            let deleted = forgive(self.access.delete(&address, &how).await);
            match &deleted {
                Ok(()) => self.tell(regarding, false, "SuccessfulDelete", format!("Deleted pod: {name}")),
                Err(error) => self.tell(regarding, true, "FailedDelete", format!("Error deleting: {}", said(error))),
            }
            result = result.and(deleted);
        }
        result
    }

    fn tell(&self, regarding: &[String; 5], warning: bool, reason: &str, message: String) {
        let regarding = regarding.clone();
        self.events.record(Occurrence { regarding, warning, reason: reason.into(), message });
    }
}

/// It is gone already, or another has taken its name.
fn forgive(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if is_gone(&error) || is_conflict(&error) => Ok(()),
        other => other,
    }
}
