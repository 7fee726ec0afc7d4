//! Several clusters: a controller works on each of them, and on those that come later.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{manager::RemoteCluster, prelude::*};
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet, start, until};

/// Notes which greeting it has seen in which cluster, and answers there.
#[derive(Clone, Default)]
struct Traveller(Arc<Mutex<BTreeSet<String>>>);

impl Reconciler<Greeting> for Traveller {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let here = ctx.cluster().unwrap_or("home");
        let mut answer = ConfigMap::default();
        answer.metadata.name = Some("answer".into());
        answer.data = Some([("from".to_owned(), here.to_owned())].into());
        ctx.apply_child(answer).await?;
        self.0.lock().insert(format!("{} in {here}", ctx.key().name()));
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let (home, east, west) = (cluster().await?, cluster().await?, cluster().await?);
    let traveller = Traveller::default();
    let travelling = traveller.clone();
    let manager = Manager::new(home.client())
        .cluster("east", RemoteCluster::new(east.client()))
        .controller_by_cluster(move |_| Controller::<Greeting>::new(travelling.clone()).owns::<ConfigMap>());
    // Secrets with this label have the kubeconfigs of further clusters.
    let clusters = manager.clusters();
    let manager = manager.controller(clusters.kubeconfig_secrets("tour.kubewright.dev/cluster"));
    let manager = start(manager);

    let saw = |what: &str| traveller.0.lock().contains(what);
    greet(&east, &["ada"]).await?;
    until("it works on the first", async || saw("hello in east")).await?;
    clusters.add("west", RemoteCluster::new(west.client())).await?;
    greet(&west, &["grace"]).await?;
    until("it works on the second", async || saw("hello in west")).await?;
    clusters.remove("west").await;
    assert_eq!(clusters.names(), ["east"]);

    manager.stop().await?;
    for cluster in [home, east, west] {
        cluster.shutdown().await;
    }
    Ok(())
}
