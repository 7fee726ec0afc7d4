//! A background task that doesn't ask whether it leads.
//!
//! Besides its controller, the program runs a task that writes a bill for each meter that has none. The controllers
//! wait for the lease; the task runs on each replica, and each meter is billed as often as there are replicas. In
//! controller-runtime it takes a method that says so.
//!
//! The fixed task runs on the leader, and names the bill after its meter.

use kube::api::ListParams;
use kubewright::{client::Client, manager::Runnable};
use tokio::time::sleep;

use crate::kit::*;

bug!("leader lock not checked by a task", replicas 2, [
    "https://github.com/InftyAI/Nebula/issues/95",
    "https://github.com/kubernetes-sigs/controller-runtime/pull/487",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Meter", namespaced)]
pub(crate) struct MeterSpec {
    tariff: String,
}

/// Bills the meters that have no bill. Errors are left to the next call.
async fn bill(client: kube::Client, fixed: bool) -> Result<(), ClientError> {
    let client = Client::new(client).field_owner("billing").namespace("default");
    let (meters, bills) = (client.kind::<Meter>(), client.kind::<ConfigMap>());
    let known = bills.list(&ListParams::default()).await?;
    for meter in meters.list(&ListParams::default()).await? {
        let name = meter.name_any();
        if known.iter().all(|bill| entry(bill, "meter") != name) {
            let metadata = if fixed { named(&format!("bill-{name}")) } else { generated(&format!("bill-{name}-")) };
            bills.create(&config_map(metadata, "meter", &name)).await?;
        }
    }
    Ok(())
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let task = Runnable::new("billing", async move |context| {
        while context.cancelled.run_until_cancelled(sleep(Duration::from_secs(60))).await.is_some() {
            let _ = bill(context.client.clone(), fixed).await;
        }
        Ok(())
    });
    let rules = [
        PolicyRule::of::<ConfigMap>([Verb::List, Verb::Create]),
        PolicyRule::of::<Meter>([Verb::List]),
    ];
    let task = rules.into_iter().fold(task.needs_leader(fixed), Runnable::policy_rule);
    manager.kind::<Meter>().runnable(task)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("a meter is billed once", |world| {
        let bills = world.list::<ConfigMap>();
        let count = |name: String| bills.iter().filter(|bill| entry(bill, "meter") == name).count();
        world.list::<Meter>().iter().all(|meter| count(meter.name_any()) <= 1)
    });
    sim.apply(&manifest("Meter", "house", json!({"tariff": "night"}))).await;
    sim.until("it is billed", |world| world.list::<ConfigMap>().iter().any(|it| !entry(it, "meter").is_empty())).await;
    sim.advance(1.hours()).await;
}
