//! A scenario for `Guestbook`: a pod that stands by takes over from the active one.

use guestbook_operator::api::v1::{Guestbook, GuestbookStatus};
use k8s_openapi::api::core::v1::Pod;
use kubewright::simulation::{Sim, World, scenario};

use serde_json::json;

const SAMPLE: &str = include_str!("../../config/samples/webapp_v1_guestbook.yaml");
const NAME: &str = "guestbook-sample";

#[scenario(operator = guestbook_operator::register)]
async fn guestbook(sim: &Sim) {
    sim.apply(SAMPLE).await;
    sim.until("three pods are ready", |world| status(world).ready_replicas == 3).await;
    sim.until("one of them is active", |world| {
        let status = status(world);
        status.standby.len() == 2 && !status.active.is_empty()
    })
    .await;
    let wrong = json!({"active": "book-none", "standby": ["book-nobody"], "readyReplicas": 7});
    sim.spoil_status::<Guestbook>(NAME, wrong).await;
    let first = sim.read(status).active;
    sim.delete::<Pod>(&first).await;
    sim.until("another one is active", |world| {
        let status = status(world);
        status.ready_replicas == 3 && !status.active.is_empty() && status.active != first
    })
    .await;
    sim.delete::<Guestbook>(NAME).await;
    sim.finally("no pod is left", |world| world.list::<Pod>().is_empty());
}

fn status(world: &World) -> GuestbookStatus {
    world.get::<Guestbook>(NAME).and_then(|book| book.status).unwrap_or_default()
}
