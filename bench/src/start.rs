//! The time from the start to the first answered request.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};

use crate::{
    process,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// Starts a cluster in this process, and returns the time until a list is answered.
pub(crate) async fn cold(clock: SharedClock) -> Result<Duration> {
    let start = clock.monotonic();
    let cluster = Cluster::builder().clock(clock.clone()).pods(Pods::Run).start().await.context("start the cluster")?;
    Api::<Namespace>::all(cluster.client()).list(&ListParams::default()).await.context("list namespaces")?;
    let took = clock.monotonic().saturating_sub(start);
    cluster.shutdown().await;
    Ok(took)
}

/// Measures cold starts, each in a fresh process of this program, since a second start in one process is warm.
pub(crate) fn in_process(sizes: &Sizes) -> Result<Outcome> {
    let program = std::env::current_exe().context("find this program")?;
    let mut samples = Vec::with_capacity(sizes.starts);
    for _ in 0..sizes.starts {
        let output =
            Command::new(&program).arg("--cold-start").stderr(Stdio::inherit()).output().context("run a cold start")?;
        if !output.status.success() {
            bail!("a cold start ended with {}", output.status);
        }
        let text = String::from_utf8(output.stdout).context("read a cold start's figure")?;
        samples
            .push(Duration::from_secs_f64(text.trim().parse::<f64>().context("read a cold start's figure")? / 1000.0));
    }
    Ok(outcome(
        "start-in-process",
        50.0,
        samples,
        "From the call of `Cluster::builder()`, with node and built-in controllers, to the response to a list of namespaces by the \
         in-process client; 20 runs, each in a new process. The figure is the 95th percentile.",
    ))
}

/// Measures starts of the `kubewright cluster` command until a request is answered over TLS.
pub(crate) async fn command(program: &Path, sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let mut samples = Vec::with_capacity(sizes.starts);
    for _ in 0..sizes.starts {
        let start = clock.monotonic();
        let (process, kubeconfig) = process::cluster(program, &[])?;
        let client = process::client(&kubeconfig).await?;
        Api::<Namespace>::all(client).list(&ListParams::default()).await.context("list namespaces")?;
        samples.push(clock.monotonic().saturating_sub(start));
        process.end()?;
    }
    Ok(outcome(
        "start-command",
        150.0,
        samples,
        "From spawning `kubewright cluster --listen 127.0.0.1:0` (release) to the response to a list of namespaces over TLS, \
         including reading the kubeconfig and the handshake; 20 runs. The figure is the 95th percentile.",
    ))
}

fn outcome(name: &'static str, limit: f64, mut samples: Vec<Duration>, method: &'static str) -> Outcome {
    let figure = milliseconds(percentile(&mut samples, 95));
    let details = format!(
        "p50 {:.1} ms, max {:.1} ms",
        milliseconds(percentile(&mut samples, 50)),
        milliseconds(percentile(&mut samples, 100))
    );
    Outcome { name, figure, unit: "ms", limit: Limit::AtMost(limit), details, method }
}
