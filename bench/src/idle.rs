//! The cost of an idle operator: memory and program size.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};

use crate::{
    process::{self, Process},
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// Measures memory and program size.
pub(crate) async fn both(kubewright: &Path, operators: &Path, sizes: &Sizes) -> Result<Vec<Outcome>> {
    Ok(vec![size(operators)?, memory(kubewright, operators, sizes).await?])
}

/// Starts the five operators as they are released, and measures their memory after an idle minute.
async fn memory(kubewright: &Path, operators: &Path, sizes: &Sizes) -> Result<Outcome> {
    let (cluster, kubeconfig) = process::cluster(kubewright, &["--pods", "simulate"])?;
    let client = process::client(&kubeconfig).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let all = [at_operator::crds(), cronjob_operator::crds(), guestbook_operator::crds(), lolcow_operator::crds()];
    for crd in all.into_iter().flatten().chain(podset_operator::crds()) {
        crds.create(&PostParams::default(), &crd).await.context("create the CRDs")?;
    }
    let mut command = Command::new(operators);
    command.args([
        "--kubeconfig",
        &kubeconfig,
        "--health-probe-bind-address",
        "127.0.0.1:0",
        "--enable-webhooks=false",
    ]);
    let mut operators = Process::start(command.env("KUBEWRIGHT_LOG", "warn"))?;
    tokio::time::sleep(sizes.idle).await;
    operators.check()?;
    let (resident, peak, cpu) =
        (operators.resident_mebibytes()?, operators.peak_mebibytes()?, operators.cpu_seconds()?);
    operators.end()?;
    cluster.end()?;
    Ok(Outcome {
        name: "idle-memory",
        figure: resident,
        unit: "MiB",
        limit: Limit::AtMost(15.0),
        details: format!("{peak:.1} MiB at the peak, {:.0} ms of processor time", cpu * 1000.0),
        method: "The five operators (six controllers, eleven kinds watched) in one process, built with the profile `dist`, over TLS on an embedded cluster in another process without custom objects; VmRSS a minute after the start. Probes \
                 are served, webhooks are not.",
    })
}

/// Measures the size of their program.
fn size(operators: &Path) -> Result<Outcome> {
    let bytes =
        fs::metadata(operators).with_context(|| format!("look at {}: is it built?", operators.display()))?.len();
    Ok(Outcome {
        name: "idle-size",
        figure: bytes as f64 / 1e6,
        unit: "MB",
        limit: Limit::AtMost(12.0),
        details: format!("{bytes} bytes"),
        method: "The program of the five operators, with webhooks, built with the profile `dist`: stripped, optimized for size, with link-time optimization.",
    })
}
