//! The simulator: runs of an operator in a second, virtual time of an idle one, and memory.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use kubewright::simulation::{Fault, Point, Scenario, Schedule, Sim, fault::WriteFault};
use kubewright_apimachinery::clock::SharedClock;
use serde::{Deserialize, Serialize};

use crate::{
    process,
    report::{Limit, Outcome},
    sizes::Sizes,
};

const PODSET: &str = "{apiVersion: app.example.com/v1alpha1, kind: PodSet, metadata: {name: web}, spec: {replicas: 3}}";

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Simulated {
    /// A PodSet with three pods, and one fault at a write.
    Podset,
    /// A PodSet with three pods that nobody changes.
    Idle,
}

/// What a process has measured.
#[derive(Debug, Deserialize, Serialize)]
struct Figures {
    runs: usize,
    seconds: f64,
    /// The resident memory after a tenth of the runs and at the end, in MiB.
    early: f64,
    late: f64,
    peak: f64,
}

/// Runs simulations one after the other on this thread, and returns their figures as JSON.
pub(crate) fn measure(what: Simulated, clock: &SharedClock, sizes: &Sizes) -> Result<String> {
    let (scenario, runs) = match what {
        Simulated::Podset => (Scenario::new("scales", podset_operator::register, scales), sizes.simulations),
        Simulated::Idle => {
            let time = Duration::from_secs(3600 * sizes.idle_hours);
            let idles = async move |sim: &Sim| {
                scales(sim).await;
                sim.advance(time).await;
            };
            (Scenario::new("idles", podset_operator::register, idles), 1)
        }
    };
    // What a process makes once isn't measured.
    scenario_run(&Scenario::new("scales", podset_operator::register, scales), 0)?;
    let (start, mut early) = (clock.monotonic(), 0.0);
    for nth in 0..runs {
        scenario_run(&scenario, nth)?;
        if nth == runs / 10 {
            early = resident("VmRSS:")?;
        }
    }
    let seconds = clock.monotonic().saturating_sub(start).as_secs_f64();
    let figures = Figures { runs, seconds, early, late: resident("VmRSS:")?, peak: resident("VmHWM:")? };
    serde_json::to_string(&figures).context("print the figures")
}

/// Runs a scenario once, with a fault at one of the first writes: another one for each number.
fn scenario_run(scenario: &Scenario, nth: usize) -> Result<()> {
    let fault = Fault::Write(WriteFault::ALL[nth % WriteFault::ALL.len()]);
    let schedule = Schedule::calm(nth as u64).with(Point::Write(nth % 5), fault);
    let outcome = scenario.run(&schedule).context("run the scenario")?;
    if let Some(finding) = outcome.findings.first() {
        bail!("the simulation {schedule} has found: {finding}");
    }
    Ok(())
}

async fn scales(sim: &Sim) {
    sim.apply(PODSET).await;
    sim.until("three pods run", |world| {
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        world.list::<Pod>().iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count() == 3
    })
    .await;
}

fn resident(field: &str) -> Result<f64> {
    process::mebibytes("/proc/self/status", field)
}

/// Measures in processes of this program.
pub(crate) fn all(sizes: &Sizes) -> Result<Vec<Outcome>> {
    let idle = in_a_process("idle", sizes)?;
    let podset = in_a_process("podset", sizes)?;
    let hours = sizes.idle_hours as f64;
    Ok(vec![
        Outcome {
            name: "simulation",
            figure: podset.runs as f64 / podset.seconds,
            unit: "runs/s",
            limit: Limit::AtLeast(60.0),
            details: format!("{} runs in {:.1} s", podset.runs, podset.seconds),
            method: "Runs of a scenario of PodSet by the simulator, one after the other on one thread: a PodSet with three pods, \
                     with one fault at one of the first five writes, then an hour and a half of virtual time. Each run starts a cluster.",
        },
        Outcome {
            name: "simulation-idle",
            figure: hours / idle.seconds,
            unit: "h/s",
            limit: Limit::AtLeast(200.0),
            details: format!("{hours} hours in {:.1} s", idle.seconds),
            method: "Virtual time that passes in a second of one thread while PodSet, its cluster and three pods run and nothing changes.",
        },
        Outcome {
            name: "simulation-memory",
            figure: podset.peak,
            unit: "MiB",
            limit: Limit::AtMost(50.0),
            details: format!("{:.1} MiB after a tenth of the runs, {:.1} MiB at the end", podset.early, podset.late),
            method: "The most resident memory of the process that makes the runs of `simulation`, with its program.",
        },
    ])
}

fn in_a_process(what: &str, sizes: &Sizes) -> Result<Figures> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.args(["--simulation", what]).args(sizes.flags()).stderr(Stdio::inherit());
    let output = command.output().context("run simulations")?;
    if !output.status.success() {
        bail!("the simulations of {what} ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("read the figures of simulations")
}
