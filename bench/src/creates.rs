//! The number of pods that the API server creates per second.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config, api::PostParams};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::task::JoinSet;

use crate::{
    process,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

const CALLERS: usize = 32;

/// Creates pods one by one from concurrent callers, over TLS on loopback.
pub(crate) async fn over_tls(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let count = sizes.creates;
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = client(&listener.kubeconfig()).await?;
    // The built-in controllers create the namespace's service account first, as on any cluster.
    let template = Arc::new(pod());

    let start = clock.monotonic();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, template, clock) = (client.clone(), template.clone(), clock.clone());
        callers.spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client, "default");
            let mut latencies = Vec::with_capacity(count / CALLERS + 1);
            for number in (caller..count).step_by(CALLERS) {
                let mut pod = Pod::clone(&template);
                pod.metadata.name = Some(format!("pod-{number:05}"));
                let sent = clock.monotonic();
                pods.create(&PostParams::default(), &pod).await?;
                latencies.push(clock.monotonic().saturating_sub(sent));
            }
            Ok::<_, kube::Error>(latencies)
        });
    }
    let mut latencies: Vec<Duration> = Vec::with_capacity(count);
    while let Some(caller) = callers.join_next().await {
        latencies.extend(caller.context("a caller panicked")?.context("create a pod")?);
    }
    let took = clock.monotonic().saturating_sub(start);
    let resident = process::mebibytes("/proc/self/status", "VmRSS:")?;
    cluster.shutdown().await;
    Ok(Outcome {
        name: "pod-creates",
        figure: count as f64 / took.as_secs_f64(),
        unit: "pods/s",
        limit: Limit::AtLeast(3000.0),
        details: format!(
            "{count} pods in {:.1} s; a create took {:.1} ms at p50, {:.1} ms at p99; then {resident:.0} MiB resident",
            took.as_secs_f64(),
            milliseconds(percentile(&mut latencies, 50)),
            milliseconds(percentile(&mut latencies, 99))
        ),
        method: "32 concurrent callers of kube's typed client create 30,000 pods, one request each, over TLS on loopback; server, built-in \
                 controllers (garbage collector, namespaces) and client share one process and the same two cores; no node. \
                 Defaulting, validation and field ownership are on.",
    })
}

/// Creates a client from the text of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.context("use the kubeconfig")?;
    Client::try_from(config).context("make a client")
}

/// Returns a pod as an operator would create it.
fn pod() -> Pod {
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
