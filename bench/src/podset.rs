//! The time that a PodSet takes from zero to five running pods.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::core::v1::Pod, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use kubewright::prelude::Manager;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::sync::oneshot;

use crate::{
    creates::client,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// Creates a PodSet of five, waits for its pods, deletes it, and waits until they are gone, in each round.
pub(crate) async fn zero_to_five(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let cluster = Cluster::builder().clock(clock.clone()).pods(Pods::Run).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in podset_operator::crds() {
        crds.create(&PostParams::default(), &crd).await.context("create the CRDs")?;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = podset_operator::register(Manager::new(client.clone()).clock(clock.clone()));
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));

    let mut samples = Vec::with_capacity(sizes.podset_rounds);
    for number in 0..sizes.podset_rounds {
        samples.push(round(&client, &clock, number).await?);
    }
    // The receiver may be gone if the manager ended early; its own result says why.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    cluster.shutdown().await;
    let figure = milliseconds(percentile(&mut samples, 100));
    Ok(Outcome {
        name: "podset-0-to-5",
        figure,
        unit: "ms",
        limit: Limit::AtMost(2000.0),
        details: format!("p50 {:.1} ms", milliseconds(percentile(&mut samples, 50))),
        method: "From creating a PodSet (app.example.com) of five until a list shows five pods in phase Running, each a process of the host. Operator and user connect over TLS; \
                 the user lists every 2 ms. 10 rounds; the figure is the maximum.",
    })
}

async fn round(client: &Client, clock: &SharedClock, number: usize) -> Result<Duration> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("app.example.com", "v1alpha1", "PodSet"));
    let podsets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let name = format!("bench-{number}");
    let podset = DynamicObject::new(&name, &resource).data(serde_json::json!({ "spec": { "replicas": 5 } }));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let of_podset = ListParams::default().labels(&format!("app={name}"));

    let start = clock.monotonic();
    podsets.create(&PostParams::default(), &podset).await.with_context(|| format!("create the PodSet {name}"))?;
    until(|| async { Ok(pods.list(&of_podset).await?.items.iter().filter(|pod| runs(pod)).count() == 5) }).await?;
    let took = clock.monotonic().saturating_sub(start);

    podsets
        .delete(&podset.name_any(), &DeleteParams::default())
        .await
        .with_context(|| format!("delete the PodSet {name}"))?;
    until(|| async { Ok(pods.list(&of_podset).await?.items.is_empty()) }).await?;
    Ok(took)
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

async fn until<F: Future<Output = Result<bool>>>(holds: impl Fn() -> F) -> Result<()> {
    tokio::time::timeout(Duration::from_secs(60), async {
        while !holds().await? {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    })
    .await
    .context("not so after 60 s")?
}
