//! Leader election: of two replicas one works and the other stands by, and both report their health.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kubewright::{client::Client, leader::LeaderOptions, prelude::*};
use kubewright_cluster::Cluster;

use crate::{Greeting, cluster, controller::Greeter, greet, start, until};

fn replica(cluster: &Cluster, identity: &str) -> Manager {
    let manager = Manager::new(cluster.client())
        .leader_election(LeaderOptions::new("default", "greeter", identity))
        .controller(Controller::<Greeting>::new(Greeter).owns::<ConfigMap>());
    // In addition to the manager's own checks.
    manager.probes().readyz.add("example", || async { Ok(()) });
    manager
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let client = Client::new(cluster.client()).namespace("default");
    let (leases, cards) = (client.kind::<Lease>(), client.kind::<ConfigMap>());
    let holder = async || leases.get(&ObjectKey::cluster("greeter")).await.ok()??.spec?.holder_identity;
    let first = start(replica(&cluster, "first"));
    until("the first leads", async || holder().await.as_deref() == Some("first")).await?;
    let second = start(replica(&cluster, "second"));
    greet(&cluster, &["ada"]).await?;
    until("it works", async || matches!(cards.get(&ObjectKey::cluster("card-ada")).await, Ok(Some(_)))).await?;
    // It releases the lease, so the second doesn't wait until the lease expires.
    first.stop().await?;
    until("the second leads", async || holder().await.as_deref() == Some("second")).await?;
    greet(&cluster, &["ada", "bob"]).await?;
    until("it works on", async || matches!(cards.get(&ObjectKey::cluster("card-bob")).await, Ok(Some(_)))).await?;
    second.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
