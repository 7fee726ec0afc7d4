//! What happens outside of the operator: to pods, to the clock, and by the user between the steps of the scenario.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::clock::{Clock, VirtualClock};
use kubewright_cluster::Cluster;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    control::{Behind, Control},
    fault::{FAILING, Fault, RestartFault, UNREADY, UserFault, WorldFault},
    state::State,
    world::World,
};

/// How long an object may take to be gone until it is created again.
const GONE: Duration = Duration::from_secs(600);
/// The interval at which pods and objects are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What surrounds the operator.
pub(crate) struct Outside {
    pub(crate) state: Arc<State>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) client: Client,
    pub(crate) clock: Arc<VirtualClock>,
    control: mpsc::UnboundedSender<Control>,
    tasks: Mutex<JoinSet<()>>,
}

impl Outside {
    pub(crate) fn new(
        state: Arc<State>,
        cluster: Arc<Cluster>,
        clock: Arc<VirtualClock>,
        control: mpsc::UnboundedSender<Control>,
    ) -> Arc<Self> {
        let client = cluster.client();
        Arc::new(Self { state, cluster, client, clock, control, tasks: Mutex::default() })
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

    /// Lets a fault happen, or remembers it if it happens some time after a step. `version` is that of the cluster before the step.
    pub(crate) async fn happens(self: &Arc<Self>, fault: Fault, version: u64) {
        match fault {
            Fault::World(fault) if fault.is_of_clock() => self.state.postpone(Fault::World(fault), version),
            Fault::Restart(_) => self.state.postpone(fault, version),
            Fault::World(WorldFault::PodsFail) => self.spawn(self.clone().fail_pods()),
            Fault::World(WorldFault::PodEvicted) => self.evict().await,
            Fault::World(WorldFault::PodsUnready) => self.unready().await,
            Fault::User(UserFault::Edited) => self.edit().await,
            Fault::User(UserFault::Recreated) => self.recreate().await,
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
        let end = self.clock.monotonic() + FAILING;
        while self.clock.monotonic() < end {
            for pod in self.state.read(running) {
                // A pod that has ended meanwhile is met the next time.
                let _ = self.cluster.finish_pod(&pod.namespace().unwrap_or_default(), &pod.name_any(), 1).await;
            }
            sleep(LOOK).await;
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

    async fn recreate(self: &Arc<Self>) {
        for target in self.state.targets() {
            let api = target.api(self.client.clone());
            let Ok(object) = api.get(&target.name).await else { continue };
            if api.delete(&target.name, &DeleteParams::default()).await.is_err() {
                continue;
            }
            self.spawn(async move {
                let gone = async {
                    while api.get_opt(&target.name).await.is_ok_and(|it| it.is_some_and(|it| it.uid() == object.uid()))
                    {
                        sleep(LOOK).await;
                    }
                };
                if timeout(GONE, gone).await.is_ok() {
                    // Somebody else may have created it meanwhile.
                    let _ = api.create(&PostParams::default(), &anew(object)).await;
                }
            });
        }
    }
}

/// Returns the object as its user has written it.
fn anew(object: DynamicObject) -> DynamicObject {
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

/// Returns the pods that run and aren't being deleted.
fn running(world: &World) -> Vec<Pod> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let mut pods = world.list::<Pod>();
    pods.retain(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none());
    pods
}
