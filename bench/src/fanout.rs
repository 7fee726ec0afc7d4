//! The latency of one write to a thousand watchers.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use http::Method;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    load::{Target, Watch},
    process,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// The config maps that are watched: apart from those of other benchmarks.
pub(crate) const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";

/// Performs writes one by one, and waits until every watcher has received each.
pub(crate) async fn to_watchers(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let target = Target::new(&process::config(&listener.kubeconfig()).await?, None)?;

    let mut delays = delays(&target, sizes.watchers, 1, sizes.watched_writes, &clock).await?;
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
/// `shared` is the number of watchers on each connection.
pub(crate) async fn delays(
    target: &Target,
    watchers: usize,
    shared: usize,
    writes: usize,
    clock: &SharedClock,
) -> Result<Vec<Duration>> {
    let mut opening = JoinSet::new();
    for _ in 0..watchers / shared {
        opening.spawn(open(target.clone(), shared));
    }
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    while let Some(opened) = opening.join_next().await {
        for mut watch in opened.context("a watcher panicked")?.context("open the watches")? {
            let (seen, clock) = (seen.clone(), clock.clone());
            readers.spawn(async move { while watch.event().await.is_ok() && seen.send(clock.monotonic()).is_ok() {} });
        }
    }
    drop(seen);

    let mut delays = Vec::with_capacity(watchers * writes);
    for number in 0..writes {
        let map = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"write-{number}"}}}}"#);
        let written = clock.monotonic();
        target.send(Method::POST, MAPS, map.into()).await.context("create a config map")?;
        for _ in 0..watchers {
            let arrived = arrivals.recv().await.context("a watch ended early")?;
            delays.push(arrived.saturating_sub(written));
        }
    }
    readers.shutdown().await;
    Ok(delays)
}

async fn open(target: Target, count: usize) -> Result<Vec<Watch>> {
    let path = format!("{MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name!=kube-root-ca.crt");
    let watches = async {
        match count {
            1 => Ok(vec![target.watch(&path).await?]),
            count => target.watches(&path, count).await,
        }
    };
    let opened = tokio::time::timeout(Duration::from_secs(30), watches).await;
    opened.context("the watch was not answered")?
}
