//! What a scenario sees: the user of a cluster.

use std::{pin::pin, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use kubewright_apimachinery::clock::Clock;
use kubewright_apiserver::FeedSignal;
use kubewright_runtime::object::Object;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    control::{Control, Target},
    fault::{DOWN, Fault, UserFault},
    oracle::Finding,
    outside::Outside,
    state::{Condition, State},
    world::{NAMESPACE, World},
};

/// How long [`Sim::until`] waits, in virtual time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

/// The time until the user repeats a step that was refused because a webhook didn't answer.
pub(crate) const REPEAT_DELAY: Duration = Duration::from_secs(5);

/// A time in which everything that a step causes has happened, so that faults that belong some time after it happen
/// now.
const LATER: Duration = Duration::from_secs(300);
/// The shortest time that the user lets pass in which such faults may happen.
const LONG: Duration = Duration::from_secs(1800);
/// The time without a change after which a status is at rest.
const REST: Duration = Duration::from_secs(600);

/// Spans of time, as in `2.hours()`.
pub trait Span {
    /// Returns a duration in seconds.
    fn seconds(self) -> Duration;
    /// Returns a duration in minutes.
    fn minutes(self) -> Duration;
    /// Returns a duration in hours.
    fn hours(self) -> Duration;
}

impl Span for u64 {
    fn seconds(self) -> Duration {
        Duration::from_secs(self)
    }

    fn minutes(self) -> Duration {
        Duration::from_secs(self.saturating_mul(60))
    }

    fn hours(self) -> Duration {
        Duration::from_secs(self.saturating_mul(3600))
    }
}

/// The user of a cluster in which the operator runs. Objects without a namespace belong to `default`.
///
/// A step that the API server refuses is a finding, and ends the run. What the operator does is awaited with
/// [`until`](Self::until); nothing is awaited by itself.
pub struct Sim {
    state: Arc<State>,
    outside: Arc<Outside>,
    signal: FeedSignal,
    has_upgrade: bool,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Sim {
    pub(crate) fn new(outside: Arc<Outside>, signal: FeedSignal, has_upgrade: bool) -> Self {
        Self { state: outside.state.clone(), outside, signal, has_upgrade }
    }

    /// States what must hold after every change of the cluster, from now on.
    pub fn always(&self, name: &str, holds: impl Fn(&World) -> bool + Send + 'static) {
        self.state.always(Condition { name: name.into(), holds: Box::new(holds) });
    }

    /// States what must hold at the end, once faults have stopped and half an hour has passed.
    pub fn finally(&self, name: &str, holds: impl Fn(&World) -> bool + Send + 'static) {
        self.state.finally(Condition { name: name.into(), holds: Box::new(holds) });
    }

    /// Waits until a condition holds. It is checked at each change of the cluster. If it doesn't hold within an hour of
    /// virtual time, this is a finding, and ends the run. With [`Scenario::upgrade`](crate::Scenario::upgrade), the
    /// operator is upgraded after the first wait.
    pub async fn until(&self, name: &str, holds: impl Fn(&World) -> bool) {
        let mut deadline = pin!(sleep(PATIENCE));
        let mut signal = self.signal.clone();
        while !self.state.read(&holds) {
            tokio::select! {
                biased;
                _ = signal.changed() => {}
                () = &mut deadline => self.fail(Finding::new("until", name)).await,
            }
        }
        if self.has_upgrade && self.state.upgrade() {
            self.outside.control(Control::Restart(None));
        }
    }

    /// Lets virtual time pass.
    pub async fn advance(&self, time: Duration) {
        if time < LONG || !self.state.has_postponed() {
            return self.pass(time).await;
        }
        self.pass(LATER).await;
        self.outside.postponed_happen();
        self.pass(time - LATER).await;
    }

    async fn pass(&self, time: Duration) {
        let mut deadline = pin!(sleep(time));
        let mut signal = self.signal.clone();
        loop {
            self.state.follow();
            tokio::select! {
                biased;
                _ = signal.changed() => {}
                () = &mut deadline => break,
            }
        }
    }

    /// Moves the clock forward at once, as if the whole cluster was suspended for this time: nothing runs in it, and
    /// timers don't elapse. Days or months cost no more than an hour; what happens after them is awaited with
    /// [`advance`](Self::advance) or [`until`](Self::until).
    pub fn skip(&self, time: Duration) {
        self.outside.clock.jump(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX));
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        self.outside.clock.now()
    }

    /// Calls a function with the objects of the cluster.
    pub fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        self.state.read(read)
    }

    /// Returns the client of the user, which no fault affects. What is written with it isn't a step of the story.
    pub fn client(&self) -> Client {
        self.outside.client.clone()
    }

    /// Applies a manifest of one or more documents, as `kubectl apply --server-side` does.
    pub async fn apply(&self, manifest: &str) {
        let apply = async |_| {
            let applied = self.outside.cluster.apply_yaml(manifest).await.map_err(|error| format!("apply: {error}"))?;
            Ok(applied.iter().filter_map(|object| self.target(object)).collect())
        };
        self.step(format!("applies {}", manifest.trim()), apply).await;
    }

    /// Creates an object.
    pub async fn create<K: Object>(&self, object: &K) {
        let kind = K::kind(&());
        let name = object.meta().name.as_deref().or(object.meta().generate_name.as_deref()).unwrap_or_default();
        let create = async |_| {
            let created = match dynamic(object) {
                Ok(body) => target::<K>(object.meta()).api(self.client()).create(&PostParams::default(), &body).await,
                Err(error) => Err(kube::Error::SerdeError(error)),
            };
            let created = created.map_err(|error| format!("create {kind} {name}: {error}"))?;
            Ok(vec![target::<K>(&created.metadata)])
        };
        self.step(format!("creates {kind} {name}"), create).await;
    }

    /// Merges a patch into an object of the namespace `default`, as `kubectl patch --type merge` does.
    pub async fn edit<K: Object>(&self, name: &str, patch: Value) {
        let (what, target) = (format!("edits {} {name}: {patch}", K::kind(&())), named::<K>(name));
        let edit = async |_| {
            let edited = target.api(self.client()).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            edited.map(|_| vec![target.clone()]).map_err(|error| format!("edit {name}: {error}"))
        };
        self.step(what, edit).await;
    }

    /// Merges a patch into the status of an object of the namespace `default`.
    pub async fn edit_status<K: Object>(&self, name: &str, status: Value) {
        let (what, target) = (format!("edits the status of {} {name}: {status}", K::kind(&())), named::<K>(name));
        let edit = async |_| {
            let (api, patch) = (target.api(self.client()), Patch::Merge(json!({"status": status})));
            let edited = api.patch_status(name, &PatchParams::default(), &patch).await;
            edited.map(|_| vec![target.clone()]).map_err(|error| format!("edit the status of {name}: {error}"))
        };
        self.step(what, edit).await;
    }

    /// Deletes an object of the namespace `default`, as `kubectl delete --wait=false` does.
    pub async fn delete<K: Object>(&self, name: &str) {
        self.delete_with::<K>(name, &DeleteParams::default()).await;
    }

    /// Deletes an object of the namespace `default` with these parameters, for instance in the foreground.
    pub async fn delete_with<K: Object>(&self, name: &str, params: &DeleteParams) {
        let delete = async |fault| {
            let params = match fault {
                Some(Fault::User(UserFault::DeletedInForeground)) => &DeleteParams::foreground(),
                Some(Fault::User(UserFault::ChildrenOrphaned)) => &DeleteParams::orphan(),
                _ => params,
            };
            let deleted = named::<K>(name).api(self.client()).delete(name, params).await;
            // Nothing is done to an object that the user wants to be gone.
            deleted.map(|_| Vec::new()).map_err(|error| format!("delete {name}: {error}"))
        };
        self.step(format!("deletes {} {name}", K::kind(&())), delete).await;
    }

    /// Writes a wrong status of an object of the namespace `default`, and then removes the status; each time, the
    /// operator has to write the right one again, apart from the times of transitions. The right one is what it has
    /// written before, once it has not changed it for ten minutes. `wrong` is merged into it.
    pub async fn spoil_status<K: Object>(&self, name: &str, wrong: Value) {
        let right = self.status_at_rest::<K>(name).await;
        for status_to_write in [wrong, Value::Null] {
            self.edit_status::<K>(name, status_to_write).await;
            self.until("the status is right again", |world| status::<K>(world, name) == right).await;
        }
    }

    /// Waits until a status doesn't change any more, or as long as a condition is waited for.
    async fn status_at_rest<K: Object>(&self, name: &str) -> Value {
        let end = self.state.elapsed() + PATIENCE;
        let mut before = self.read(|world| status::<K>(world, name));
        loop {
            self.pass(REST).await;
            let now = self.read(|world| status::<K>(world, name));
            if now == before || self.state.elapsed() >= end {
                return now;
            }
            before = now;
        }
    }

    /// Ends the containers of a running pod with code 0.
    pub async fn finish_pod(&self, name: &str) {
        self.end_pod(name, 0).await;
    }

    /// Ends the containers of a running pod with code 1.
    pub async fn fail_pod(&self, name: &str) {
        self.end_pod(name, 1).await;
    }

    async fn end_pod(&self, name: &str, code: i32) {
        let end = async |_| {
            let ended = self.outside.cluster.finish_pod(NAMESPACE, name, code).await;
            ended.map(|()| self.state.targets()).map_err(|error| format!("end {name}: {error}"))
        };
        self.step(format!("ends pod {name} with code {code}"), end).await;
    }

    /// Takes a step, with the fault of the schedule at it. The step returns the objects that were written. It is
    /// repeated if a webhook didn't answer.
    async fn step(&self, what: String, step: impl AsyncFn(Option<Fault>) -> Result<Vec<Target>, String>) {
        let Some((fault, version)) = self.state.step(what) else { return };
        if self.state.has_no_namespace() {
            // It is refused for as long as there is no namespace, which the user doesn't make again.
            self.state.give_up();
            std::future::pending::<()>().await;
        }
        let mut is_down = fault == Some(Fault::User(UserFault::OperatorDown));
        let is_other = !is_down;
        if is_down {
            self.outside.control(Control::Stop);
            // The process ends before the step.
            self.pass(Duration::from_millis(1)).await;
        }
        let end = self.state.elapsed() + PATIENCE;
        loop {
            match step(fault).await {
                Ok(targets) => break self.state.touch(targets),
                Err(error) if is_unanswered(&error) && self.state.elapsed() < end => {
                    if std::mem::take(&mut is_down) {
                        self.start_again().await;
                    }
                    self.pass(REPEAT_DELAY).await;
                }
                Err(error) => self.fail(Finding::new("step", error)).await,
            }
        }
        self.state.follow();
        if is_down {
            self.start_again().await;
        } else if is_other && let Some(fault) = fault {
            self.outside.happens(fault, version).await;
        }
    }

    /// Starts the operator after it was down.
    async fn start_again(&self) {
        self.pass(DOWN).await;
        self.outside.control(Control::Resume);
    }

    /// Kills all processes, and starts them again.
    pub(crate) fn restart(&self) {
        self.outside.control(Control::Restart(None));
    }

    /// Ends the run with a finding, or the steps of the user if it isn't one.
    async fn fail(&self, finding: Finding) {
        if self.state.counts(&finding.oracle) {
            self.state.found(finding);
            self.state.stop();
        } else {
            self.state.give_up();
        }
        std::future::pending::<()>().await;
    }

    /// Returns where an object of the API server is found.
    fn target(&self, object: &DynamicObject) -> Option<Target> {
        let kind = GroupVersionKind::try_from(object.types.as_ref()?).ok()?;
        let entries = self.outside.cluster.api().registry().all();
        let entry = entries.iter().find(|entry| {
            *entry.group == *kind.group && *entry.version == *kind.version && *entry.kind == *kind.kind
        })?;
        let resource = ApiResource::from_gvk_with_plural(&kind, &entry.plural);
        Some(Target { resource, namespace: object.namespace(), name: object.name_any() })
    }
}

/// Returns the status of an object of the namespace `default`, without the times of transitions.
fn status<K: Object>(world: &World, name: &str) -> Value {
    let mut status = world.value::<K>(name).map_or(Value::Null, |object| object["status"].clone());
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

/// Returns where an object of the namespace `default` is found.
fn named<K: Object>(name: &str) -> Target {
    target::<K>(&ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() })
}

/// Returns where an object is found.
fn target<K: Object>(meta: &ObjectMeta) -> Target {
    let namespace = meta.namespace.clone().unwrap_or_else(|| NAMESPACE.into());
    Target {
        resource: ApiResource::erase::<K>(&()),
        namespace: K::is_namespaced().then_some(namespace),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Returns whether the API server refuses a step because a webhook doesn't answer.
pub(crate) fn is_unanswered(error: &str) -> bool {
    ["failed calling webhook", "conversion webhook for"].iter().any(|text| error.contains(text))
}

fn dynamic<K: Object>(object: &K) -> Result<DynamicObject, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    serde_json::from_value(value)
}
