//! The reconcile loop of the workload controllers: it feeds changes to a [`Controller`] and executes its plans.
//!
//! A stale view never results in duplicate pods: while a plan is executed for an object, no other plan is made for it,
//! and before the next plan the feed is read to its end, which includes all writes of the previous plan
//! ([`Subscription::decide`]).

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::Change;
use serde_json::{Value, json};

use super::{
    informer::Subscription,
    kind::Kind,
    retry::{Backoff, Retries, until},
    value::text,
};
use crate::{
    events::{ObjectEvent, Recorder},
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone, is_in_terminating_namespace},
};

/// The maximum number of objects with a plan in progress.
const CONCURRENCY: usize = 32;
/// The number of pods of one plan that are created concurrently.
const WRITES: usize = 64;

/// Reviews of what a user may do.
const REVIEW: Kind =
    Kind { group: "authorization.k8s.io", kind: "SubjectAccessReview", plural: "subjectaccessreviews" };

/// A namespace and a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The namespace.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
}

impl Key {
    /// Returns the key of a namespaced object.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        Some(Self { namespace: metadata["namespace"].as_str()?.into(), name: metadata["name"].as_str()?.into() })
    }

    /// Returns the key of an object of any scope. That of one without a namespace has an empty one.
    pub(crate) fn of_any_scope(object: &Value) -> Self {
        Self { namespace: text(object, "/metadata/namespace").into(), name: text(object, "/metadata/name").into() }
    }

    /// Returns a key that sorts before all objects of a namespace.
    pub(crate) fn first_of(namespace: &str) -> Self {
        Self { namespace: namespace.into(), name: String::new() }
    }
}

/// Keeps an object by its key, or drops it if it is gone. Returns the key.
pub(crate) fn keep(objects: &mut BTreeMap<Key, Arc<Value>>, object: &Arc<Value>, gone: bool) -> Key {
    let key = Key::of_any_scope(object);
    if gone {
        objects.remove(&key);
    } else {
        objects.insert(key.clone(), object.clone());
    }
    key
}

/// The answers to what a plan has read, by path: an object, or the server's message.
pub(crate) type Answers = BTreeMap<String, Result<Value, String>>;

/// A controller: its state, and the decisions based on it. Pure.
pub(crate) trait Controller: Send {
    /// Clears the state. A snapshot of all objects follows.
    fn reset(&mut self);
    /// Processes a change, and returns the affected objects.
    fn take(&mut self, change: &Change) -> Vec<Key>;
    /// Returns the plan for an object.
    fn decide(&self, key: &Key, now: Timestamp) -> Plan;
    /// Returns the pauses before failed plans are repeated.
    fn backoff(&self) -> Backoff {
        Backoff::default()
    }
    /// Called with the answers to what a plan has read.
    fn answered(&mut self, _key: &Key, _answers: Answers) {}
    /// Called when a plan was executed, or failed. A failure consists of the failed step and the server's message.
    fn finished(&mut self, _key: &Key, _failure: Option<(StepKind, String)>) {}
}

/// The kind of a failed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// The creation of a pod.
    Create,
    /// The deletion of a pod.
    Delete,
    /// A change of a scale.
    Scale,
    /// Any other step.
    Other,
}

/// The plan for an object: a list of steps.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The object that events refer to: `apiVersion`, `kind`, `namespace`, `name` and `uid`.
    pub(crate) regarding: [String; 5],
    /// The steps in order. A failed step ends the plan.
    pub(crate) steps: Vec<Step>,
    /// The delay until the next decision if nothing changes before.
    pub(crate) requeue_after: Option<Duration>,
}

impl Plan {
    /// Creates an empty plan for an object.
    pub(crate) fn of(kind: &Kind, object: &Value) -> Self {
        Self { regarding: regarding(kind, object), ..Self::default() }
    }

    /// Requests another decision after `delay` at the latest.
    pub(crate) fn requeue_after(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |planned| planned.min(delay)));
    }

    /// Adds an event about the object.
    pub(crate) fn event(&mut self, warning: bool, reason: &'static str, message: String) {
        self.steps.push(Step::Event { warning, reason, message });
    }
}

/// Returns the reference to an object in events.
pub(crate) fn regarding(kind: &Kind, object: &Value) -> [String; 5] {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    [kind.api_version(), kind.kind.into(), text("namespace"), text("name"), text("uid")]
}

/// Returns the status that a plan writes; `null` if it writes none.
#[cfg(test)]
pub(crate) fn status_of(plan: &Plan) -> Value {
    let found = plan.steps.iter().find_map(|step| match step {
        Step::Merge(_, "/status", patch) => Some(patch["status"].clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// One step of a plan.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Create pods in batches of one, two, four and so on, so that a failure is not repeated many times.
    CreatePods(Vec<Value>),
    /// Delete pods, by name and UID.
    DeletePods(Vec<(String, String)>),
    /// Create an object.
    Create(ObjectPath, Value),
    /// Merge a patch into an object or its subresource.
    Merge(ObjectPath, &'static str, Value),
    /// Merge the first patch whose review of access, an object to create, allows it. Without one, the step fails.
    MergeFirstAllowed(ObjectPath, &'static str, Vec<(Value, Value)>),
    /// Apply a configuration of an object or its subresource with force, as a field manager.
    Apply(ObjectPath, &'static str, &'static str, Value),
    /// Delete the object of this UID.
    Delete(ObjectPath, String, Deletion),
    /// Execute a step, and record an event about its result.
    Reported(Box<Step>, Report),
    /// Read what is at these paths, for the next decision ([`Controller::answered`]). An error is an answer, too.
    Read(Vec<String>),
    /// Remove a folder of the node with its content. It may be gone already.
    RemoveFolder(PathBuf),
    /// Record an event about the plan's object.
    Event {
        /// Whether the type is `Warning` instead of `Normal`.
        warning: bool,
        /// The reason in one word.
        reason: &'static str,
        /// The human-readable message.
        message: String,
    },
    /// Record an event about another object.
    EventAbout(ObjectEvent),
}

/// How an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Before its dependents.
    Background,
    /// After its dependents.
    Foreground,
    /// Without a grace period.
    Now,
}

/// The event about the result of a step. An object that already exists or has changed is no failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The reason and the message of a success, if it is recorded.
    pub(crate) success: Option<(&'static str, String)>,
    /// The events about a failure: the reason, and the start of the message, which the server's message follows.
    pub(crate) failures: Vec<(&'static str, String)>,
}

impl Step {
    /// Returns the step with an event about its result.
    pub(crate) fn reported(self, report: Report) -> Self {
        Self::Reported(Box::new(self), report)
    }

    /// Returns the step with its report, if it has one.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&Self, Option<&Report>) {
        match self {
            Self::Reported(step, report) => (step, Some(report)),
            step => (step, None),
        }
    }

    /// Returns the kind that a failure of the step has.
    fn kind(&self) -> StepKind {
        match self {
            Self::CreatePods(_) => StepKind::Create,
            Self::DeletePods(_) => StepKind::Delete,
            Self::Reported(step, _) => match **step {
                Self::Create(..) => StepKind::Create,
                Self::Delete(..) => StepKind::Delete,
                Self::Merge(_, "/scale", _) => StepKind::Scale,
                _ => StepKind::Other,
            },
            _ => StepKind::Other,
        }
    }

    /// Returns a patch of an object, with the precondition that the object hasn't changed since the decision.
    pub(crate) fn change(kind: &Kind, object: &Value, patch: Value) -> Self {
        Self::change_through(kind, object, "", patch)
    }

    /// Like [`Self::change`], through a subresource.
    pub(crate) fn change_through(kind: &Kind, object: &Value, subresource: &'static str, mut patch: Value) -> Self {
        let metadata = &object["metadata"];
        patch["metadata"]["uid"] = metadata["uid"].clone();
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
        Self::Merge(address(kind, object), subresource, patch)
    }

    /// Returns the patch that sets an object's status; `None` if it is the same already.
    pub(crate) fn status(kind: &Kind, object: &Value, status: Value) -> Option<Self> {
        Self::status_at(address(kind, object), object, status)
    }

    /// Like [`Self::status`], for an object at a path.
    pub(crate) fn status_at(path: ObjectPath, object: &Value, mut status: Value) -> Option<Self> {
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
        Some(Self::Merge(path, "/status", patch))
    }

    /// Like [`Self::status`], with the precondition that the object hasn't changed since the decision: for a status
    /// with lists that others write as well, such as the conditions of a pod.
    pub(crate) fn shared_status(kind: &Kind, object: &Value, status: Value) -> Option<Self> {
        let mut step = Self::status(kind, object, status);
        if let Some(Self::Merge(_, _, patch)) = &mut step {
            patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        }
        step
    }

    /// Returns a deletion in the background.
    pub(crate) fn delete(kind: &Kind, object: &Value) -> Self {
        Self::delete_as(kind, object, Deletion::Background)
    }

    /// Returns a deletion.
    pub(crate) fn delete_as(kind: &Kind, object: &Value, deletion: Deletion) -> Self {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        Self::Delete(address(kind, object), uid.into(), deletion)
    }
}

fn address(kind: &Kind, object: &Value) -> ObjectPath {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    kind.address(text("namespace"), text("name"))
}

/// Runs a controller for as long as it is polled.
pub(crate) async fn run(
    subscription: Subscription,
    backoff: Backoff,
    client: ObjectClient,
    clock: SharedClock,
    events: Recorder,
) {
    let runner = Runner {
        subscription,
        worker: Worker { client, events },
        clock,
        busy: BTreeMap::new(),
        work: FuturesUnordered::new(),
        retries: Retries::with(backoff),
    };
    runner.run().await;
}

type Completion = (Key, Result<Answers, (StepKind, kube::Error)>);

struct Runner {
    subscription: Subscription,
    worker: Worker,
    clock: SharedClock,
    /// Objects with a plan in progress, with the delay until the next decision.
    busy: BTreeMap<Key, Option<Duration>>,
    work: FuturesUnordered<BoxFuture<'static, Completion>>,
    retries: Retries<Key>,
}

impl Runner {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            self.begin_work(now);
            let timer = until(self.retries.next(), now);
            tokio::select! {
                biased;
                // Before the changes, which may arrive without a pause; each round takes those that are there.
                Some((key, result)) = self.work.next() => self.finish(key, result),
                () = self.subscription.woken() => {}
                () = timer => {}
            }
        }
    }

    fn begin_work(&mut self, now: Duration) {
        let due = self.retries.due(now);
        for key in self.subscription.waiting(due) {
            if self.work.len() >= CONCURRENCY {
                return;
            }
            if self.busy.contains_key(&key) {
                continue;
            }
            let Some(plan) = self.subscription.decide(&key, self.clock.now()) else {
                self.retries.failed(key, now);
                continue;
            };
            if plan.steps.is_empty() {
                self.settle(key, plan.requeue_after, now);
                continue;
            }
            self.busy.insert(key.clone(), plan.requeue_after);
            let worker = self.worker.clone();
            self.work.push(Box::pin(async move {
                let result = worker.execute(plan).await;
                (key, result)
            }));
        }
    }

    fn settle(&mut self, key: Key, requeue_after: Option<Duration>, now: Duration) {
        self.retries.forget(&key);
        if let Some(delay) = requeue_after {
            self.retries.later(key, now + delay);
        }
    }

    fn finish(&mut self, key: Key, result: Result<Answers, (StepKind, kube::Error)>) {
        let requeue_after = self.busy.remove(&key).flatten();
        let now = self.clock.monotonic();
        // Nothing is left to do in a namespace that is being deleted, as in Kubernetes' controllers.
        let result = match result {
            Err((_, error)) if is_in_terminating_namespace(&error) => Ok(Answers::new()),
            other => other,
        };
        match result {
            Ok(answers) => {
                self.subscription.finished(&key, None, answers);
                self.settle(key, requeue_after, now);
            }
            Err((_, error)) if is_conflict(&error) || is_gone(&error) => self.retries.outdated(key, now),
            Err((sort, error)) => {
                tracing::debug!(%error, name = key.name, namespace = key.namespace, "failed to execute a plan");
                self.subscription.finished(&key, Some((sort, error_message(&error))), Answers::new());
                self.retries.failed(key, now);
            }
        }
    }
}

/// Returns the server's message.
fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Executes plans.
#[derive(Clone)]
struct Worker {
    client: ObjectClient,
    events: Recorder,
}

impl Worker {
    async fn execute(self, plan: Plan) -> Result<Answers, (StepKind, kube::Error)> {
        let mut answers = Answers::new();
        for step in &plan.steps {
            let result = self.step(&plan.regarding, step, &mut answers).await;
            result.map_err(|error| (step.kind(), error))?;
        }
        Ok(answers)
    }

    async fn step(&self, regarding: &[String; 5], step: &Step, answers: &mut Answers) -> Result<(), kube::Error> {
        match step {
            Step::CreatePods(pods) => self.create_pods(regarding, pods).await,
            Step::DeletePods(pods) => self.delete_pods(regarding, pods).await,
            Step::Create(address, body) => self.client.create(address, "", body).await.map(drop),
            Step::Merge(address, subresource, patch) => self.client.merge(address, subresource, patch).await.map(drop),
            Step::MergeFirstAllowed(address, subresource, reviews) => {
                self.merge_first_allowed(address, subresource, reviews).await
            }
            Step::Apply(address, subresource, manager, config) => {
                self.client.apply(address, subresource, manager, config).await.map(drop)
            }
            Step::Delete(address, uid, deletion) => self.delete(address, uid, *deletion).await,
            Step::Reported(step, report) => {
                let result = Box::pin(self.step(regarding, step, answers)).await;
                self.report(regarding, report, result)
            }
            Step::Read(paths) => {
                answers.extend(join_all(paths.iter().map(|path| self.read(path))).await);
                Ok(())
            }
            Step::RemoveFolder(folder) => remove(folder.clone()).await,
            Step::Event { warning, reason, message } => {
                self.record(regarding, *warning, reason, message.clone());
                Ok(())
            }
            Step::EventAbout(event) => {
                self.events.record(event.clone());
                Ok(())
            }
        }
    }

    async fn read(&self, path: &str) -> (String, Result<Value, String>) {
        let answer = self.client.read(path).await;
        (path.to_owned(), answer.map_err(|error| error_message(&error)))
    }

    async fn merge_first_allowed(
        &self,
        address: &ObjectPath,
        subresource: &str,
        reviews: &[(Value, Value)],
    ) -> Result<(), kube::Error> {
        for (review, patch) in reviews {
            if self.client.create(&REVIEW.address("", ""), "", review).await?["status"]["allowed"] == true {
                return self.client.merge(address, subresource, patch).await.map(drop);
            }
        }
        Err(kube::Error::Service("the subject access review was not approved".into()))
    }

    async fn create_pods(&self, regarding: &[String; 5], pods: &[Value]) -> Result<(), kube::Error> {
        let address = ObjectPath::core("pods", Some(&regarding[2]), "");
        let (mut rest, mut size) = (pods, 1);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            let mut writes = Vec::new();
            for pod in batch {
                writes.push(self.client.create(&address, "", pod));
            }
            let mut failure = None;
            for result in join_all(writes).await {
                match result {
                    Ok(pod) => {
                        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                        self.record(regarding, false, "SuccessfulCreate", format!("Created pod: {name}"));
                    }
                    Err(error) => {
                        self.record(
                            regarding,
                            true,
                            "FailedCreate",
                            format!("Error creating: {}", error_message(&error)),
                        );
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
            let address = ObjectPath::core("pods", Some(&regarding[2]), name);
            let how = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
            let deleted = forgive(self.client.delete(&address, &how).await);
            match &deleted {
                Ok(()) => self.record(regarding, false, "SuccessfulDelete", format!("Deleted pod: {name}")),
                Err(error) if is_conflict(error) => {}
                Err(error) => {
                    self.record(regarding, true, "FailedDelete", format!("Error deleting: {}", error_message(error)))
                }
            }
            result = result.and(deleted);
        }
        result
    }

    async fn delete(&self, address: &ObjectPath, uid: &str, deletion: Deletion) -> Result<(), kube::Error> {
        let (propagation, grace) = match deletion {
            Deletion::Background => (Some("Background"), None),
            Deletion::Foreground => (Some("Foreground"), None),
            Deletion::Now => (None, Some(0)),
        };
        let how = DeleteOptions { uid: Some(uid), propagation, grace, ..DeleteOptions::default() };
        forgive(self.client.delete(address, &how).await)
    }

    /// Records the event about a result, and returns the result.
    fn report(
        &self,
        regarding: &[String; 5],
        report: &Report,
        result: Result<(), kube::Error>,
    ) -> Result<(), kube::Error> {
        match &result {
            Ok(()) => {
                if let Some((reason, message)) = &report.success {
                    self.record(regarding, false, reason, message.clone());
                }
            }
            Err(error) if is_conflict(error) => {}
            Err(error) => {
                for (reason, beginning) in &report.failures {
                    self.record(regarding, true, reason, format!("{beginning}{}", error_message(error)));
                }
            }
        }
        result
    }

    fn record(&self, regarding: &[String; 5], warning: bool, reason: &str, message: String) {
        self.events.record(ObjectEvent::new(regarding.clone(), warning, reason, message));
    }
}

async fn remove(folder: PathBuf) -> Result<(), kube::Error> {
    // Pods that are simulated have no folders, and no run of theirs may depend on when a thread ends.
    if matches!(std::fs::symlink_metadata(&folder), Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
    match removed.unwrap_or_else(|error| Err(error.into())) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(kube::Error::Service(error.into())),
        _ => Ok(()),
    }
}

/// Converts the error "not found" to success. After a conflict the object may have been replaced by another one of that
/// name, or not: the next decision, which follows soon, knows.
fn forgive(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}
