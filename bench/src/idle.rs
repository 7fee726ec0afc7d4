//! The cost of an idle operator: memory and program size.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};

use crate::{
    go::{self, each, median},
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
    let (cluster, kubeconfig) = cluster(kubewright).await?;
    let mut operators = Process::start(&mut command(operators, OURS, &kubeconfig))?;
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
        method: "The five operators (six controllers, eleven kinds watched) in one process, built by `kubewright build --profile dist`, over TLS on an embedded cluster in another process without custom objects; VmRSS a minute after the start. Probes \
                 are served, webhooks are not.",
    })
}

/// The flags of our operators besides the kubeconfig.
const OURS: &[&str] = &["--health-probe-bind-address", "127.0.0.1:0", "--enable-webhooks=false"];

fn command(program: &Path, flags: &[&str], kubeconfig: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--kubeconfig", kubeconfig]).args(flags).env("KUBEWRIGHT_LOG", "warn");
    command
}

/// Starts a cluster with the kinds of the operators.
async fn cluster(kubewright: &Path) -> Result<(Process, String)> {
    let (cluster, kubeconfig) = process::cluster(kubewright, &["--pods", "simulate"])?;
    let crds: Api<CustomResourceDefinition> = Api::all(process::client(&kubeconfig).await?);
    let all = [at_operator::crds(), cronjob_operator::crds(), guestbook_operator::crds(), lolcow_operator::crds()];
    for crd in all.into_iter().flatten().chain(podset_operator::crds()) {
        crds.create(&PostParams::default(), &crd).await.context("create the CRDs")?;
    }
    Ok((cluster, kubeconfig))
}

/// The measurements of one idle manager.
struct Rest {
    resident: f64,
    cpu: f64,
}

/// Compares the idle operators with a manager of controller-runtime that has the same controllers and kinds.
pub(crate) async fn beside_go(kubewright: &Path, operators: &Path, peer: &Path, sizes: &Sizes) -> Result<Vec<Outcome>> {
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..sizes.rounds {
        let mut running = Vec::new();
        for turn in go::turns(2, round) {
            let (cluster, kubeconfig) = cluster(kubewright).await?;
            let (program, flags) = if turn == 0 { (operators, OURS) } else { (peer, &[][..]) };
            running.push((turn, cluster, Process::start(&mut command(program, flags, &kubeconfig))?));
        }
        // Both rest at the same time: they have nothing to do, and ten minutes each are long.
        tokio::time::sleep(sizes.idle_compared).await;
        for (turn, cluster, mut operators) in running {
            operators.check()?;
            rounds[turn].push(Rest { resident: operators.resident_mebibytes()?, cpu: operators.cpu_seconds()? });
            operators.end()?;
            cluster.end()?;
        }
    }
    let [ours, theirs] = &rounds;
    let outcome = |name, limit, figure: fn(&Rest) -> f64, unit: &str, method| {
        let [our, their] = [ours, theirs].map(|rounds| median(rounds, figure));
        let details = format!(
            "{our:.2} {unit}; on controller-runtime {their:.2} {unit}; rounds {} and {}",
            each(ours, figure),
            each(theirs, figure)
        );
        Outcome { name, figure: our / their, unit: "times", limit: Limit::AtMost(limit), details, method }
    };
    Ok(vec![
        outcome("idle-go-memory", 0.25, |rest| rest.resident, "MiB", IDLE),
        outcome("idle-go-cpu", 0.25, |rest| rest.cpu, "CPU-seconds", IDLE_CPU),
    ])
}

const IDLE: &str = "The program of `idle-memory`, and `bench/peers/controller-runtime/idle-go`, a manager of controller-runtime 0.25 with the same six \
    controllers and eleven kinds, typed, without managed fields. Each has an embedded cluster of its own without custom objects; both run at the same time, for ten \
    minutes, three times. The figure is the median of Kubewright's VmRSS divided by that of the peer.";
const IDLE_CPU: &str = "The user and system time of both processes from their start to the end of these ten minutes: the median of Kubewright divided \
    by that of the peer.";

/// Measures the size of their program.
fn size(operators: &Path) -> Result<Outcome> {
    let bytes =
        fs::metadata(operators).with_context(|| format!("look at {}: is it built?", operators.display()))?.len();
    Ok(Outcome {
        name: "idle-size",
        figure: bytes as f64 / 1e6,
        unit: "MB",
        limit: Limit::AtMost(13.0),
        details: format!("{bytes} bytes"),
        method: "The program of the five operators, with webhooks, built by `kubewright build --profile dist`: linked statically, stripped, optimized for size, with link-time optimization.",
    })
}
