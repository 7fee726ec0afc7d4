//! A hot loop on a refused write.
//!
//! The API server refuses a pod, here because its image is empty; it can also be a quota, a policy or a webhook. The
//! operator reports it and asks to run again at once, without a delay and past the queue's backoff. It then fills the
//! log and takes the API server's time until a user corrects the spec.
//!
//! The fixed operator returns the error, and leaves the pace to the queue.

use crate::kit::*;

bug!("hot loop on refused writes", [
    "https://github.com/kubernetes/kubernetes/issues/76370",
    "https://github.com/ogx-ai/ogx-k8s-operator/pull/131",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Runner", namespaced)]
pub(crate) struct RunnerSpec {
    image: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Runner> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, runner: &Runner, ctx: &Context<Runner>) -> Result<Action, ClientError> {
        if !ctx.children::<Pod>()?.is_empty() {
            return Ok(Action::await_change());
        }
        match ctx.get_or_create_child(pod(named(&runner.name_any()), &runner.spec.image)).await {
            Err(error) if error.refusal().is_some() && !self.fixed => Ok(Action::requeue_after(Duration::ZERO)),
            answer => answer.map(|_| Action::await_change()),
        }
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Runner>().controller(Controller::<Runner>::new(Operator { fixed }).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Runner", "tests", json!({"image": ""}))).await;
    sim.advance(10.minutes()).await;
    sim.edit::<Runner>("tests", json!({"spec": {"image": "runner"}})).await;
    sim.finally("it runs", |world| world.get::<Runner>("tests").is_none() || !world.list::<Pod>().is_empty());
    sim.advance(1.hours()).await;
}
