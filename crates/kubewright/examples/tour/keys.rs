//! A controller whose keys are no Kubernetes objects: the zones of name servers, which config maps and a channel name.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{
    controller::{KeyContext, KeyController, KeyReconciler},
    prelude::*,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{cluster, start, until};

/// Counts the runs of each zone.
#[derive(Clone, Default)]
struct Zones(Arc<Mutex<BTreeMap<String, usize>>>);

impl KeyReconciler<String> for Zones {
    type Error = Infallible;

    async fn reconcile(&self, zone: &String, _: &KeyContext) -> Result<Action, Infallible> {
        *self.0.lock().entry(zone.clone()).or_default() += 1;
        Ok(Action::await_change())
    }
}

/// The keys that an object wakes: any number, of any type that can be compared and printed.
fn zone_of(map: &ConfigMap) -> Vec<String> {
    map.labels().get("zone").cloned().into_iter().collect()
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let zones = Zones::default();
    let (sender, receiver) = mpsc::channel(1);
    let controller = KeyController::new("zones", zones.clone())
        .watches_when(
            Predicate::<ConfigMap>::new(|change| change.object().namespace().as_deref() == Some("default")),
            zone_of,
        )
        .reconcile_on(receiver);
    let manager = start(Manager::new(cluster.client()).key_controller(controller));
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, labels: {zone: example.com}}}";
    cluster.apply_yaml(map).await?;
    let runs = |zone: &str| zones.0.lock().get(zone).copied().unwrap_or_default();
    until("an object wakes its zone", async || runs("example.com") == 1).await?;
    sender.send("example.org".into()).await?;
    until("so does the channel", async || runs("example.org") == 1).await?;
    // A changed label wakes the zone before and the one after.
    cluster.apply_yaml(&map.replace("example.com", "example.net")).await?;
    until("both run", async || (runs("example.com"), runs("example.net")) == (2, 1)).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
