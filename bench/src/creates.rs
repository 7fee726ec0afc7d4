//! The number of pods that the API server creates and returns per second.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Durability, Pods};
use tokio::task::JoinSet;

use crate::{
    process,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

const CALLERS: usize = 32;

/// Creates pods one by one from concurrent callers, over TLS on loopback, and gets each of them.
pub(crate) async fn over_tls(sizes: &Sizes, clock: SharedClock) -> Result<Vec<Outcome>> {
    let count = sizes.creates;
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;
    // The built-in controllers create the namespace's service account first, as on any cluster.
    let template = Arc::new(pod());

    let create = move |pods: Api<Pod>, name: String| {
        let mut pod = Pod::clone(&template);
        async move {
            pod.metadata.name = Some(name);
            pods.create(&PostParams::default(), &pod).await.map(drop)
        }
    };
    let creates = concurrently(count, &client, &clock, create).await.context("create pods")?;
    let resident = process::mebibytes("/proc/self/status", "VmRSS:")?;
    let get = |pods: Api<Pod>, name: String| async move { pods.get(&name).await.map(drop) };
    let gets = concurrently(count, &client, &clock, get).await.context("get pods")?;
    cluster.shutdown().await;
    Ok(vec![
        creates.outcome(
            "pod-creates",
            "pods/s",
            3000.0,
            format!("then {resident:.0} MiB resident"),
            "32 concurrent callers of kube's typed client create 30,000 pods, one request each, over TLS on loopback; server, built-in \
             controllers (garbage collector, namespaces) and client share one process and the same two cores; no node. \
             Defaulting, validation and field ownership are on.",
        ),
        gets.outcome(
            "pod-gets",
            "gets/s",
            6000.0,
            "read as typed objects".to_owned(),
            "The same callers get each of these pods.",
        ),
    ])
}

/// Creates pods in a cluster in memory and in one with a data directory, in turns, and compares the rates.
pub(crate) async fn kept(sizes: &Sizes, clock: SharedClock) -> Result<Vec<Outcome>> {
    const ROUNDS: usize = 3;
    let count = (sizes.creates / ROUNDS).max(CALLERS);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (rates, durability) in rates.iter_mut().zip([None, Some(Durability::Process), Some(Durability::Machine)]) {
            rates.push(creates_per_second(count, durability, &clock).await?);
        }
    }
    let [memory, process, machine] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    let details = format!("{process:.0} pods/s, {memory:.0} in memory; with --fsync {machine:.0}");
    Ok(vec![Outcome {
        name: "kept-creates",
        figure: process / memory,
        unit: "of in memory",
        limit: Limit::AtLeast(0.5),
        details,
        method: "`pod-creates` with 10,000 pods in memory, with a data directory, and with one and `fsync`, in turns; the medians \
                 of three rounds. The directory is in the temporary directory.",
    }])
}

async fn creates_per_second(count: usize, durability: Option<Durability>, clock: &SharedClock) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory")?;
    let builder = Cluster::builder().clock(clock.clone()).pods(Pods::None);
    let builder = match durability {
        Some(durability) => builder.data_dir(directory.path()).durability(durability),
        None => builder,
    };
    let cluster = builder.start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;
    let template = Arc::new(pod());
    let create = move |pods: Api<Pod>, name: String| {
        let mut pod = Pod::clone(&template);
        async move {
            pod.metadata.name = Some(name);
            pods.create(&PostParams::default(), &pod).await.map(drop)
        }
    };
    let creates = concurrently(count, &client, clock, create).await.context("create pods")?;
    cluster.shutdown().await;
    Ok(count as f64 / creates.took.as_secs_f64())
}

/// The duration of many requests.
pub(crate) struct Requests {
    pub(crate) took: Duration,
    latencies: Vec<Duration>,
}

impl Requests {
    fn outcome(
        mut self,
        name: &'static str,
        unit: &'static str,
        limit: f64,
        more: String,
        method: &'static str,
    ) -> Outcome {
        let (count, seconds) = (self.latencies.len(), self.took.as_secs_f64());
        let [p50, p99] = [50, 99].map(|percent| milliseconds(percentile(&mut self.latencies, percent)));
        let details =
            format!("{count} in {seconds:.1} s; a request took {p50:.1} ms at p50, {p99:.1} ms at p99; {more}");
        Outcome { name, figure: count as f64 / seconds, unit, limit: Limit::AtLeast(limit), details, method }
    }
}

/// Sends a request for each of so many pods, from concurrent callers.
pub(crate) async fn concurrently<F>(
    count: usize,
    client: &Client,
    clock: &SharedClock,
    request: impl Fn(Api<Pod>, String) -> F + Clone + Send + 'static,
) -> Result<Requests>
where
    F: Future<Output = Result<(), kube::Error>> + Send,
{
    let start = clock.monotonic();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, clock, request) = (client.clone(), clock.clone(), request.clone());
        callers.spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client, "default");
            let mut latencies = Vec::with_capacity(count / CALLERS + 1);
            for number in (caller..count).step_by(CALLERS) {
                let sent = clock.monotonic();
                request(pods.clone(), format!("pod-{number:05}")).await?;
                latencies.push(clock.monotonic().saturating_sub(sent));
            }
            Ok::<_, kube::Error>(latencies)
        });
    }
    let mut latencies: Vec<Duration> = Vec::with_capacity(count);
    while let Some(caller) = callers.join_next().await {
        latencies.extend(caller.context("a caller panicked")??);
    }
    Ok(Requests { took: clock.monotonic().saturating_sub(start), latencies })
}

/// Creates a client from the text of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    Client::try_from(process::config(kubeconfig).await?).context("make a client")
}

/// Returns a pod as an operator would create it.
pub(crate) fn pod() -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": { "labels": { "app": "bench", "version": "v0.1" } },
        "spec": { "containers": [{
            "name": "busybox", "image": "busybox", "command": ["sleep", "3600"],
            "env": [{ "name": "GREETING", "value": "hello" }],
            "ports": [{ "containerPort": 8080, "name": "http" }],
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
        }] },
    }))
    .unwrap_or_default()
}
