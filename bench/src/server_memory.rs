//! The memory of `kubewright cluster`: at rest, and with many pods.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    creates::pod,
    kubernetes::PODS,
    load::Target,
    process,
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// The number of environment variables with which a stored pod takes 3.4 KB as JSON.
const VARIABLES: usize = 13;
/// The time without work before the memory is read.
const QUIET: Duration = Duration::from_secs(3);

/// Measures the resident memory at rest, and after each number of pods.
pub(crate) async fn of_the_command(program: &Path, sizes: &Sizes, clock: SharedClock) -> Result<Vec<Outcome>> {
    let (mut cluster, _) = process::cluster(program, &["--pods", "simulate"])?;
    process::rest(&mut cluster, QUIET).await?;
    let rest = cluster.resident_mebibytes()?;
    cluster.end()?;
    let mut outcomes = vec![Outcome {
        name: "server-memory-rest",
        figure: rest,
        unit: "MiB",
        limit: Limit::AtMost(25.0),
        details: "with node and controllers".to_owned(),
        method: "Resident memory (VmRSS) of `kubewright cluster --pods simulate` after three seconds without work; about 20 MiB of it \
                 are pages of the program.",
    }];
    for ((name, limit), count) in
        [("server-memory-30000", 250.0), ("server-memory-100000", 800.0)].into_iter().zip(sizes.stored)
    {
        let (resident, length) =
            with_pods(program, count, &clock).await.with_context(|| format!("store {count} pods"))?;
        outcomes.push(Outcome {
            name,
            figure: resident,
            unit: "MiB",
            limit: Limit::AtMost(limit),
            details: format!("{length} bytes each as JSON"),
            method: "Resident memory of `kubewright cluster --api-only` after so many pods of 3.4 KB have been created over TLS, and three \
                     seconds without work.",
        });
    }
    Ok(outcomes)
}

/// Creates pods, and returns the resident memory in MiB and the length of one pod as JSON.
async fn with_pods(program: &Path, count: usize, clock: &SharedClock) -> Result<(f64, usize)> {
    let (mut cluster, kubeconfig) = process::cluster(program, &["--api-only"])?;
    let kubeconfig = fs::read_to_string(kubeconfig).context("read the kubeconfig")?;
    let target = Target::new(&process::config(&kubeconfig).await?, None)?;
    let mut template = serde_json::to_value(pod()).context("write a pod")?;
    template["metadata"]["name"] = "NAME".into();
    let variable =
        |number| serde_json::json!({"name": format!("VARIABLE_{number}"), "value": "a value of some length"});
    template["spec"]["containers"][0]["env"] = (0..VARIABLES).map(variable).collect();
    let template: Arc<str> = template.to_string().into();
    let create =
        move |number| (Method::POST, PODS.to_owned(), template.replacen("NAME", &format!("pod-{number:06}"), 1).into());
    target.rate(count, clock, create).await.context("create pods")?;
    process::rest(&mut cluster, QUIET).await?;
    let resident = cluster.resident_mebibytes()?;
    let length = target.send(Method::GET, &format!("{PODS}/pod-000000"), Bytes::new()).await.context("get a pod")?;
    cluster.end()?;
    Ok((resident, length))
}
