//! A crash between the creation of a child with a generated name and the note of that name.
//!
//! The operator creates a pod whose name the API server generates, and notes the name in the status. If it dies in
//! between, or if the answer is lost, nobody knows of the pod, and the next run creates a second one. So do controllers
//! of clouds, with what costs money. Sieve calls the pattern "intermediate state".
//!
//! The fixed operator derives the name from its object, so that a second creation meets the first.

use crate::kit::*;

bug!("crash between two writes doubles", [
    "https://github.com/aws-controllers-k8s/community/issues/2062",
    "https://github.com/CleverCloud/clever-kubernetes-operator/issues/163",
    "https://github.com/scylladb/scylla-operator/pull/2493",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Machine", namespaced, status = "MachineStatus")]
pub(crate) struct MachineSpec {
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct MachineStatus {
    instance: Option<String>,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Machine> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, machine: &Machine, ctx: &Context<Machine>) -> Result<Action, ClientError> {
        if machine.status.as_ref().is_some_and(|status| status.instance.is_some()) {
            return Ok(Action::await_change());
        }
        let instance = if self.fixed {
            ctx.get_or_create_child(pod(named(&machine.name_any()), &machine.spec.image)).await?
        } else {
            ctx.create_child(pod(generated(&format!("{}-", machine.name_any())), &machine.spec.image)).await?
        };
        ctx.set_status(MachineStatus { instance: Some(instance.name_any()) }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Machine>().controller(Controller::<Machine>::new(Operator { fixed }).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("a machine has at most one instance", |world| {
        let pods = world.list::<Pod>();
        world.list::<Machine>().iter().all(|it| pods.iter().filter(|pod| is_child_of(*pod, it)).count() <= 1)
    });
    sim.apply(&manifest("Machine", "build", json!({"image": "builder"}))).await;
    sim.until("the instance is noted", |world| {
        world.get::<Machine>("build").is_some_and(|it| it.status.is_some_and(|status| status.instance.is_some()))
    })
    .await;
    sim.advance(1.hours()).await;
}
