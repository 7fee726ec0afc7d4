//! The latency of one write to a thousand watchers.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams, client::Body};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    creates::client,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// Performs writes one by one, and waits until every watcher has received each.
pub(crate) async fn to_watchers(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;

    let mut delays = delays(&client, sizes.watchers, sizes.watched_writes, &clock).await?;
    cluster.shutdown().await;
    let figure = milliseconds(percentile(&mut delays, 99));
    Ok(Outcome {
        name: "watch-fanout",
        figure,
        unit: "ms",
        limit: Limit::AtMost(50.0),
        details: format!(
            "p50 {:.1} ms, max {:.1} ms",
            milliseconds(percentile(&mut delays, 50)),
            milliseconds(percentile(&mut delays, 100))
        ),
        method: "1,000 watches of config maps in one namespace over TLS on loopback, watchers in the same process and on the same two cores; 50 writes, one after the other. A delay is the time from \
                 sending the create until a watcher has read the last byte of the event. The figure is the 99th percentile of all \
                 50,000.",
    })
}

/// Creates config maps one by one, and returns the time after which each of so many watchers has received each of them.
pub(crate) async fn delays(
    client: &Client,
    watchers: usize,
    writes: usize,
    clock: &SharedClock,
) -> Result<Vec<Duration>> {
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    let opened = try_join_all((0..watchers).map(|_| open(client))).await.context("open the watches")?;
    for mut body in opened {
        let (seen, clock) = (seen.clone(), clock.clone());
        readers.spawn(async move {
            // One event consists of one or more frames, and ends with a newline.
            while let Some(Ok(frame)) = body.frame().await {
                let ended = frame.data_ref().is_some_and(|data| data.ends_with(b"\n"));
                if ended && seen.send(clock.monotonic()).is_err() {
                    return;
                }
            }
        });
    }

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let mut delays = Vec::with_capacity(watchers * writes);
    for number in 0..writes {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("write-{number}"));
        let written = clock.monotonic();
        maps.create(&PostParams::default(), &map).await.context("create a config map")?;
        for _ in 0..watchers {
            let arrived = arrivals.recv().await.context("a watch ended early")?;
            delays.push(arrived.saturating_sub(written));
        }
    }
    readers.shutdown().await;
    Ok(delays)
}

async fn open(client: &Client) -> Result<Body> {
    let request = http::Request::get("/api/v1/namespaces/kube-public/configmaps?watch=true&resourceVersion=0&fieldSelector=metadata.name!=kube-root-ca.crt")
        .body(Body::empty())
        .context("make a request")?;
    let response = tokio::time::timeout(Duration::from_secs(30), client.send(request))
        .await
        .context("the watch was not answered")??;
    anyhow::ensure!(response.status().is_success(), "the watch was answered with {}", response.status());
    Ok(response.into_body())
}
