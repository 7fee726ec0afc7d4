//! What happens outside of the operator: to pods, the node, the namespace and the clock, and by the user between the
//! steps of the scenario.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, TypeMeta},
    core::GroupVersionKind,
};
use kubewright_apimachinery::clock::{Clock, VirtualClock};
use kubewright_cluster::Cluster;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    control::{Behind, Control, Target},
    fault::{FAILING, FINALIZER, FULL, Fault, HELD, NODELESS, RestartFault, UNREADY, UserFault, WorldFault},
    oracle::Own,
    sim::{PATIENCE, REPEAT_DELAY, is_unanswered},
    state::State,
    world::{NAMESPACE, World, text},
};

/// How long an object may take to be gone until it is created again. Another client may hold it for ten minutes.
const GONE: Duration = Duration::from_secs(1200);
/// The interval at which pods and objects are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long pods fail as soon as they run: long enough to tell who replaces them without a delay.
const FAILING_AT_ONCE: Duration = Duration::from_secs(150);
/// How long a pod runs at most before it fails after that.
const LONGEST_LIFE: Duration = Duration::from_secs(16);
/// The interval of the checks whether an object with the finalizer is being deleted.
const HOLD_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The name of the quota that is full.
const QUOTA: &str = "simulation";
/// Kinds that the cluster itself has to create, or that nobody counts.
const UNCOUNTED: [&str; 6] = ["events", "leases", "endpoints", "endpointslices", "resourcequotas", "serviceaccounts"];
/// What is in each namespace, and stays in one that is deleted.
const OF_NAMESPACE: [&str; 3] = ["kube-root-ca.crt", "default", "kubernetes"];

/// What surrounds the operator.
pub(crate) struct Outside {
    pub(crate) state: Arc<State>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
    pub(crate) clock: Arc<VirtualClock>,
    /// The groups and plurals of the kinds that the operator declares.
    own: Arc<Own>,
    control: mpsc::UnboundedSender<Control>,
    tasks: Mutex<JoinSet<()>>,
}

impl Outside {
    pub(crate) fn new(
        state: Arc<State>,
        cluster: Arc<Cluster>,
        clock: Arc<VirtualClock>,
        own: Arc<Own>,
        control: mpsc::UnboundedSender<Control>,
    ) -> Arc<Self> {
        let client = cluster.client();
        Arc::new(Self { state, cluster, client, clock, own, control, tasks: Mutex::default() })
    }

    /// Does something to the processes of the operator.
    pub(crate) fn control(&self, control: Control) {
        // Nobody listens if the run has ended.
        let _ = self.control.send(control);
    }

    /// Starts a task, which ends with the run.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    /// Ends all tasks.
    pub(crate) async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    /// Lets a fault happen, or remembers it if it happens some time after a step. `version` is that of the cluster
    /// before the step.
    pub(crate) async fn happens(self: &Arc<Self>, fault: Fault, version: u64) {
        match fault {
            Fault::World(fault) if fault.is_of_clock() => self.state.postpone(Fault::World(fault), version),
            Fault::Restart(_) => self.state.postpone(fault, version),
            Fault::World(WorldFault::PodsFail) => self.spawn(self.clone().fail_pods()),
            Fault::World(WorldFault::PodEvicted) => self.evict().await,
            Fault::World(WorldFault::PodsUnready) => self.unready().await,
            Fault::World(WorldFault::NodeLost) => self.lose_node().await,
            Fault::World(WorldFault::QuotaFull) => self.fill_quota().await,
            Fault::World(WorldFault::NamespaceDeleted) => {
                self.state.end_namespace();
                self.spawn(self.clone().empty_namespace());
            }
            Fault::World(WorldFault::WebhookUnavailable) => self.state.begin_webhook_outage(),
            Fault::User(UserFault::Edited) => self.edit().await,
            Fault::User(UserFault::Recreated) => self.recreate().await,
            Fault::User(UserFault::StatusWiped) => self.set_status(|_| Value::Null).await,
            Fault::User(UserFault::StatusWrong) => self.set_status(wrong).await,
            Fault::User(UserFault::Held) => self.hold(self.state.targets()).await,
            Fault::User(UserFault::ChildrenHeld) => {
                let children = self.children(&self.state.targets()).await;
                self.hold(children).await;
            }
            _ => {}
        }
    }

    /// Lets the faults happen that belong some time after a step.
    pub(crate) fn postponed_happen(&self) {
        for (fault, version) in self.state.postponed() {
            match fault {
                Fault::World(WorldFault::ClockAhead) => self.clock.jump(SignedDuration::from_hours(1)),
                Fault::World(WorldFault::ClockBack) => self.clock.jump(SignedDuration::from_hours(-1)),
                Fault::Restart(fault) => {
                    let of_own = fault == RestartFault::OwnKindsBehind;
                    self.control(Control::Restart(Some(Behind { version, of_own })));
                }
                _ => {}
            }
        }
    }

    async fn fail_pods(self: Arc<Self>) {
        let start = self.clock.monotonic();
        let mut pause = LOOK;
        while self.clock.monotonic() < start + FAILING {
            for pod in self.state.read(running) {
                // A pod that has ended meanwhile is met the next time.
                let _ = self.cluster.finish_pod(&pod.namespace().unwrap_or_default(), &pod.name_any(), 1).await;
            }
            sleep(pause).await;
            if self.clock.monotonic() > start + FAILING_AT_ONCE {
                pause = (pause * 2).min(LONGEST_LIFE);
            }
        }
    }

    async fn evict(&self) {
        let is_controlled = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.controller == Some(true));
        if let Some(pod) = self.state.read(running).into_iter().find(is_controlled) {
            let _ = self.pods(&pod).delete(&pod.name_any(), &DeleteParams::default()).await;
        }
    }

    async fn unready(self: &Arc<Self>) {
        let pods = self.state.read(running);
        for pod in &pods {
            self.set_ready(pod, "False").await;
        }
        let outside = self.clone();
        self.spawn(async move {
            sleep(UNREADY).await;
            for pod in pods {
                let is_it = |other: &Pod| other.uid() == pod.uid();
                if outside.state.read(running).iter().any(is_it) {
                    outside.set_ready(&pod, "True").await;
                }
            }
        });
    }

    async fn set_ready(&self, pod: &Pod, status: &str) {
        let conditions = ["Ready", "ContainersReady"].map(|name| json!({"type": name, "status": status}));
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        let _ = self.pods(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
    }

    /// Removes all pods that a node has, as the garbage collector of pods does when their node is gone, and allows no
    /// new ones on it for a time.
    async fn lose_node(self: &Arc<Self>) {
        self.allow_pods(false).await;
        let mut pods = self.state.read(|world| world.list::<Pod>());
        pods.retain(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        for pod in pods {
            // One that is gone already is what it should be.
            let _ = self.pods(&pod).delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        }
        let outside = self.clone();
        self.spawn(async move {
            sleep(NODELESS).await;
            outside.allow_pods(true).await;
        });
    }

    /// Sets whether the scheduler may bind pods to the nodes.
    async fn allow_pods(&self, is_allowed: bool) {
        let api = Api::<Node>::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": (!is_allowed).then_some(true)}}));
        for node in self.state.read(|world| world.list::<Node>()) {
            let _ = api.patch(&node.name_any(), &PatchParams::default(), &patch).await;
        }
    }

    /// Allows no new objects in the user's namespace for a time, but those of the operator's kinds.
    async fn fill_quota(self: &Arc<Self>) {
        let entries = self.cluster.api().registry().all();
        let is_counted = |group: &str, plural: &str| {
            !UNCOUNTED.contains(&plural) && !self.own.contains(&(group.to_owned(), plural.to_owned()))
        };
        let counted = entries.iter().filter(|it| it.namespaced && it.verbs.contains(&"create"));
        let counted = counted.filter(|it| is_counted(&it.group, &it.plural)).map(|it| match &*it.group {
            "" => format!("count/{}", it.plural),
            group => format!("count/{}.{group}", it.plural),
        });
        let hard: BTreeMap<_, _> = counted.map(|name| (name, "0")).collect();
        let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": hard}});
        let api = Api::<ResourceQuota>::namespaced(self.client.clone(), NAMESPACE);
        let Ok(quota) = serde_json::from_value(quota) else { return };
        if api.create(&PostParams::default(), &quota).await.is_ok() {
            self.spawn(async move {
                sleep(FULL).await;
                let _ = api.delete(QUOTA, &DeleteParams::default()).await;
            });
        }
    }

    /// Deletes what is in the user's namespace, until nothing is left.
    async fn empty_namespace(self: Arc<Self>) {
        let end = self.clock.monotonic() + GONE;
        while self.clock.monotonic() < end {
            let entries = self.cluster.api().registry().all();
            let entries = entries.iter().filter(|it| it.namespaced && it.verbs.contains(&"delete"));
            // A kind of the operator may have the plural of a built-in one.
            let is_own = |group: &str, plural: &str| self.own.contains(&(group.to_owned(), plural.to_owned()));
            let mut is_empty = true;
            for entry in entries.filter(|it| !UNCOUNTED.contains(&&*it.plural) || is_own(&it.group, &it.plural)) {
                let kind = GroupVersionKind::gvk(&entry.group, &entry.version, &entry.kind);
                let resource = ApiResource::from_gvk_with_plural(&kind, &entry.plural);
                for name in self.state.read(|world| names(world, &entry.group, &entry.kind)) {
                    is_empty = false;
                    let target = Target { resource: resource.clone(), namespace: Some(NAMESPACE.into()), name };
                    let _ = target.api(self.client.clone()).delete(&target.name, &DeleteParams::default()).await;
                }
            }
            if is_empty {
                return;
            }
            sleep(LOOK).await;
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    async fn edit(&self) {
        let patch = json!({"metadata": {"annotations": {"simulation.kubewright.dev/edited-by": "the user"}}});
        for target in self.state.targets() {
            let api = target.api(self.client.clone());
            // An object that doesn't exist any more can't be edited.
            let _ = api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        }
    }

    /// Replaces the status of the objects of the latest step, if they have one.
    async fn set_status(&self, change: impl Fn(Value) -> Value) {
        for target in self.state.targets() {
            let api = target.api(self.client.clone());
            let Ok(object) = api.get(&target.name).await else { continue };
            let status = object.data["status"].clone();
            // A merge patch keeps what it doesn't name, so the status goes first.
            for status in [Value::Null, change(status)] {
                let patch = Patch::Merge(json!({"status": status}));
                let _ = api.patch_status(&target.name, &PatchParams::default(), &patch).await;
                if status.is_null() && object.data["status"].is_null() {
                    break;
                }
            }
        }
    }

    /// Returns the objects whose controller is one of these.
    async fn children(&self, owners: &[Target]) -> Vec<Target> {
        let mut uids = Vec::new();
        for owner in owners {
            let owner = owner.api(self.client.clone()).get(&owner.name).await;
            uids.extend(owner.ok().and_then(|owner| owner.uid()));
        }
        let is_child = |object: &&Arc<Value>| {
            let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
            owners.iter().any(|owner| owner["controller"] == true && uids.iter().any(|uid| owner["uid"] == **uid))
        };
        let children: Vec<_> = self.state.read(|world| world.all().filter(is_child).cloned().collect());
        children.iter().filter_map(|child| self.target(child)).collect()
    }

    /// Returns where an object of the cluster is found.
    fn target(&self, object: &Value) -> Option<Target> {
        let types = TypeMeta {
            api_version: object["apiVersion"].as_str()?.to_owned(),
            kind: object["kind"].as_str()?.to_owned(),
        };
        let kind = GroupVersionKind::try_from(types).ok()?;
        let entries = self.cluster.api().registry().all();
        let entry = entries.iter().find(|entry| *entry.group == *kind.group && *entry.kind == *kind.kind)?;
        let namespace = Some(text(object, "namespace").to_owned()).filter(|namespace| !namespace.is_empty());
        let resource = ApiResource::from_gvk_with_plural(&kind, &entry.plural);
        Some(Target { resource, namespace, name: text(object, "name").to_owned() })
    }

    /// Adds a finalizer to objects, and removes it some time after they are deleted.
    async fn hold(self: &Arc<Self>, targets: Vec<Target>) {
        for target in targets {
            let api = target.api(self.client.clone());
            let Ok(object) = api.get(&target.name).await else { continue };
            let mut finalizers = object.metadata.finalizers.unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            let version = object.metadata.resource_version;
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
            // One that is being deleted can't be held any more.
            let _ = api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            let outside = self.clone();
            self.spawn(async move {
                while outside.state.read(|world| is_undeleted(world, &target)) {
                    sleep(HOLD_CHECK_INTERVAL).await;
                }
                sleep(HELD).await;
                release(&api, &target.name).await;
            });
        }
    }

    async fn recreate(self: &Arc<Self>) {
        for target in self.state.targets() {
            let api = target.api(self.client.clone());
            let Ok(object) = api.get(&target.name).await else { continue };
            if api.delete(&target.name, &DeleteParams::default()).await.is_err() {
                continue;
            }
            let state = self.state.clone();
            self.spawn(async move {
                let gone = async {
                    while api.get_opt(&target.name).await.is_ok_and(|it| it.is_some_and(|it| it.uid() == object.uid()))
                    {
                        sleep(LOOK).await;
                    }
                };
                if timeout(GONE, gone).await.is_err() {
                    return;
                }
                let object = as_user_wrote(object);
                let create = async {
                    // A namespace that is being deleted takes no new objects.
                    while !state.has_no_namespace() {
                        match api.create(&PostParams::default(), &object).await {
                            Err(error) if is_unanswered(&error.to_string()) => sleep(REPEAT_DELAY).await,
                            // Somebody else may have created it meanwhile.
                            _ => return,
                        }
                    }
                };
                let _ = timeout(PATIENCE, create).await;
            });
        }
    }
}

/// Returns whether an object exists and isn't being deleted.
fn is_undeleted(world: &World, target: &Target) -> bool {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    world.values(&target.resource.group, &target.resource.kind).any(|object| {
        text(object, "name") == target.name
            && text(object, "namespace") == namespace
            && object["metadata"]["deletionTimestamp"].is_null()
    })
}

/// Removes the finalizer of another client, if an object has it.
async fn release(api: &Api<DynamicObject>, name: &str) {
    loop {
        let Ok(object) = api.get(name).await else { return };
        let mut finalizers = object.metadata.finalizers.unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return;
        }
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let version = object.metadata.resource_version;
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
        // A conflict is tried again.
        if api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.is_err() {
            sleep(LOOK).await;
        }
    }
}

/// Returns a status with other numbers and conditions.
fn wrong(status: Value) -> Value {
    match status {
        Value::Object(fields) => {
            let change = |(name, value): (String, Value)| {
                let value = match (name.as_str(), &value) {
                    ("observedGeneration", _) => value,
                    ("status", Value::String(text)) if text == "True" => "False".into(),
                    ("status", Value::String(text)) if text == "False" => "True".into(),
                    _ => wrong(value),
                };
                (name, value)
            };
            Value::Object(fields.into_iter().map(change).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(wrong).collect()),
        Value::Number(number) => number.as_i64().map_or(Value::Number(number), |number| (number + 1).into()),
        other => other,
    }
}

/// Returns the object as its user wrote it, without what the API server and controllers have added.
fn as_user_wrote(object: DynamicObject) -> DynamicObject {
    let ObjectMeta { name, namespace, labels, annotations, .. } = object.metadata;
    let mut data = object.data;
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    DynamicObject {
        metadata: ObjectMeta { name, namespace, labels, annotations, ..ObjectMeta::default() },
        data,
        ..object
    }
}

/// Returns the names of the objects of a kind in the user's namespace that aren't being deleted.
fn names(world: &World, group: &str, kind: &str) -> Vec<String> {
    let is_left = |object: &&Arc<Value>| {
        text(object, "namespace") == NAMESPACE
            && object["metadata"]["deletionTimestamp"].is_null()
            && !OF_NAMESPACE.contains(&text(object, "name"))
    };
    world.values(group, kind).filter(is_left).map(|object| text(object, "name").to_owned()).collect()
}

/// Returns the pods that run and aren't being deleted.
fn running(world: &World) -> Vec<Pod> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let mut pods = world.list::<Pod>();
    pods.retain(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none());
    pods
}
