//! Pods as processes: the page answers at its node port.

use std::{env, time::Duration};

use k8s_openapi::{
    api::core::v1::Pod, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright::{prelude::*, simulation::env::within_a_minute};
use kubewright_cluster::{Cluster, ImageTable, Program};
use lolcow_operator::api::v1alpha1::Lolcow;
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    fixtures::{NAME, cow, reported, status},
    page::try_get,
};

/// Waits in real time, within the limit of [`within_a_minute`].
async fn until(mut so: impl AsyncFnMut() -> bool) {
    while !so().await {
        sleep(Duration::from_millis(50)).await;
    }
}

async fn edit(cows: &Api<Lolcow>, spec: Value) {
    cows.patch(NAME, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
}

/// Returns the URL of the page once it shows the spec.
async fn serves(cows: &Api<Lolcow>) -> String {
    let mut url = None;
    until(async || {
        let cow = cows.get(NAME).await.unwrap();
        let status = status(&cow);
        url = status.url.clone();
        status.observed_generation == cow.metadata.generation && reported(&status, "Ready") == "True Serving"
    })
    .await;
    url.unwrap().trim_start_matches("http://").to_owned()
}

#[tokio::test]
async fn the_page_follows_greeting_and_port() {
    within_a_minute(async {
        let page = Program::executable(env!("CARGO_BIN_EXE_lolcow-page")).env("LISTEN", "$(POD_IP):8080");
        let images = ImageTable::default().with("ghcr.io/vsoch/lolcow-operator", page);
        let cluster = Cluster::builder().images(images).start().await.unwrap();
        let crds = Api::<CustomResourceDefinition>::all(cluster.client());
        crds.create(&PostParams::default(), &lolcow_operator::crds()[0]).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let manager = lolcow_operator::register_at(Manager::new(cluster.client()), "127.0.0.1");
        let operator = tokio::spawn(manager.run_until(async { stopped.await.unwrap_or_default() }));
        walk(&cluster).await;
        drop(stop);
        operator.await.unwrap().unwrap();
        cluster.shutdown().await;
    })
    .await;
}

async fn walk(cluster: &Cluster) {
    let cows = Api::<Lolcow>::default_namespaced(cluster.client());
    until(async || cows.create(&PostParams::default(), &cow(None, Some("--help, it costs $(HOME)"))).await.is_ok())
        .await;
    let first = serves(&cows).await;
    let says = async |address: &str, what: &str| {
        let label = format!("aria-label=\"A cow says: {what}\"");
        try_get(address).await.is_ok_and(|page| page.contains(&label))
    };
    until(async || says(&first, "--help, it costs $(HOME)").await).await;

    edit(&cows, json!({"greeting": "What, you have never seen a flying cow before?"})).await;
    assert_eq!(serves(&cows).await, first);
    until(async || says(&first, "What, you have never seen a flying cow before?").await).await;
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let running = pods.list(&Default::default()).await.unwrap().items;
    let pod = running.iter().find(|pod| pod.metadata.deletion_timestamp.is_none()).unwrap();
    let logs = pods.logs(&pod.name_any(), &Default::default()).await.unwrap();
    assert!(logs.contains("(oo)") && logs.contains("seen a flying cow"), "{logs}");
    let address = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert!(says(&format!("{address}:8080"), "What, you have never seen a flying cow before?").await);

    // The API server has chosen a port; its neighbour is free, unless that is the last.
    let port: u32 = first.rsplit_once(':').unwrap().1.parse().unwrap();
    let next = if port == 32767 { port - 1 } else { port + 1 };
    edit(&cows, json!({"port": next})).await;
    let second = serves(&cows).await;
    assert_eq!(second, format!("127.0.0.1:{next}"));
    until(async || says(&second, "What, you have never seen a flying cow before?").await).await;
    until(async || try_get(&first).await.is_err()).await;

    edit(&cows, json!({"greeting": null})).await;
    serves(&cows).await;
    until(async || {
        try_get(&second).await.is_ok_and(|page| page.contains("A cow says: ") && !page.contains("flying cow before"))
    })
    .await;
    cows.delete(NAME, &DeleteParams::default()).await.unwrap();
    until(async || pods.list(&Default::default()).await.unwrap().items.is_empty()).await;
    until(async || try_get(&second).await.is_err()).await;
}
