//! Children that are replaced as fast as they fail.
//!
//! The operator deletes a pod that has failed, and creates it again in the same run. A pod that can't run is then
//! created hundreds of times in a minute. Kubernetes had it with ReplicaSets whose pods the kubelet refused.
//!
//! The fixed operator waits before each replacement twice as long as before the one before it.

use kubewright::create_backoff::{CreateBackoff, Decision};
use parking_lot::Mutex;

use crate::kit::*;

bug!("failed children replaced without a delay", [
    "https://github.com/kubernetes/kubernetes/issues/72593",
    "https://github.com/kubernetes/kubernetes/issues/76370",
    "https://github.com/kubernetes/kubernetes/issues/2529",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Daemon", namespaced)]
pub(crate) struct DaemonSpec {
    image: String,
}

#[derive(Default)]
struct Operator {
    fixed: bool,
    backoff: Mutex<BTreeMap<ObjectKey, CreateBackoff>>,
}

impl Operator {
    /// Returns how long the next creation has to wait.
    fn wait(&self, daemon: &Daemon, ctx: &Context<Daemon>) -> Option<Duration> {
        let mut backoff = self.backoff.lock();
        let backoff = backoff.entry(ctx.key().clone()).or_default();
        match backoff.decide(daemon.metadata.generation, 1, ctx.monotonic()) {
            Decision::Slow(wait) | Decision::Refused(wait, _) if self.fixed => Some(wait),
            _ => None,
        }
    }
}

impl Reconciler<Daemon> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, daemon: &Daemon, ctx: &Context<Daemon>) -> Result<Action, ClientError> {
        let has_ended = |pod: &Pod| pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Failed");
        let pods = ctx.children::<Pod>()?;
        for pod in pods.iter().filter(|pod| has_ended(pod)) {
            ctx.delete(pod.as_ref()).any_version().grace_period(Duration::ZERO).await?;
        }
        if pods.iter().any(|pod| !has_ended(pod)) {
            return Ok(Action::await_change());
        }
        if let Some(wait) = self.wait(daemon, ctx) {
            return Ok(Action::requeue_after(wait));
        }
        let name = format!("{}-{}", daemon.name_any(), ctx.random().suffix(5));
        let mut pod = pod(named(&name), &daemon.spec.image);
        if let Some(spec) = &mut pod.spec {
            spec.restart_policy = Some("Never".into());
        }
        ctx.create_child(pod).await?;
        if let Some(backoff) = self.backoff.lock().get_mut(ctx.key()) {
            backoff.created(1, 1, ctx.monotonic());
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let operator = Operator { fixed, ..Operator::default() };
    manager.kind::<Daemon>().controller(Controller::<Daemon>::new(operator).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Daemon", "log", json!({"image": "log"}))).await;
    sim.until("it runs", |world| !world.list::<Pod>().is_empty()).await;
    sim.advance(1.hours()).await;
}
