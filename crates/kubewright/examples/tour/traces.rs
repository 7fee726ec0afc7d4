//! Traces: the reason for each reconcile and what it did, as served at `/debug/traces` on the port of the probes.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{prelude::*, trace::Traces};

use crate::{Greeting, cluster, controller::Greeter, greet, start, until};

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let traces = Traces::default();
    let manager = Manager::new(cluster.client())
        .traces(traces.clone())
        .controller(Controller::<Greeting>::new(Greeter).owns::<ConfigMap>());
    let manager = start(manager);
    greet(&cluster, &["ada"]).await?;
    let key = ObjectKey::namespaced("default", "hello");
    // Each run has its trigger, reads, writes, result and next run.
    let page = || traces.explain("greeting", &key).map(|page| page.to_string()).unwrap_or_default();
    until("the write is recorded", async || page().contains("card-ada")).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
