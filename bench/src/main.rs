//! Benchmarks of the embedded cluster and the runtime: `cargo xtask bench`.
//!
//! Each benchmark reports its result, its method, and its limit. Nothing here is a test.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]

mod admission;
mod convergence;
mod creates;
mod cronjob;
mod dev;
mod fanout;
mod idle;
mod memory;
mod overhead;
mod podset;
mod process;
mod queue;
mod report;
mod scaffold;
mod setting;
mod start;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use kubewright_apimachinery::clock::SystemClock;

use crate::{convergence::Contest, report::Report};

/// Benchmarks of the embedded cluster and the runtime.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run only the benchmarks whose name contains this text, and leave the results file unchanged
    filter: Option<String>,

    /// Markdown file for the results of a complete run
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// The `kubewright` command to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/kubewright")]
    kubewright: PathBuf,

    /// Directory of the operators' programs to measure
    #[arg(long, value_name = "FOLDER", default_value = "target/release")]
    operators: PathBuf,

    /// Program with the five operators, built as for a release
    #[arg(long, value_name = "FILE", default_value = "target/dist/five-operators")]
    shipped: PathBuf,

    /// Number of PodSets that have to converge; use the default for results
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    podsets: usize,

    /// Start a cluster, print the milliseconds until its first response, and exit: one cold start
    #[arg(long, hide = true)]
    cold_start: bool,

    /// Fill a cache with pods, print the bytes per pod, and exit
    #[arg(long, hide = true, value_name = "STORE")]
    cache_pods: Option<memory::Store>,

    /// Measure the overhead of a reconcile with this number of cached objects, print it, and exit
    #[arg(long, hide = true, value_name = "NUMBER")]
    overhead: Option<usize>,

    /// Runtime for --overhead
    #[arg(long, hide = true, value_name = "RUNTIME", default_value = "kubewright")]
    by: overhead::Runtime,
}

#[tokio::main]
async fn main() -> ExitCode {
    let clock = SystemClock::shared();
    match run(Arguments::parse(), clock).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmarks, and returns whether every result is within its limit.
async fn run(arguments: Arguments, clock: kubewright_apimachinery::clock::SharedClock) -> Result<bool> {
    if arguments.cold_start {
        println!("{}", start::cold(clock).await?.as_secs_f64() * 1000.0);
        return Ok(true);
    }
    if let Some(store) = arguments.cache_pods {
        println!("{}", memory::fill(store).await?);
        return Ok(true);
    }
    if let Some(size) = arguments.overhead {
        println!("{}", overhead::measure(clock, arguments.by, size).await?);
        return Ok(true);
    }
    setting::raise_open_files_limit();
    let mut report = Report::new(setting::machine());
    let wanted = |name: &str| arguments.filter.as_deref().is_none_or(|filter| name.contains(filter));
    println!("{}", report.machine());
    if wanted("start-in-process") {
        report.add(start::in_process()?);
    }
    if wanted("start-command") {
        report.add(start::command(&arguments.kubewright, clock.clone()).await?);
    }
    if wanted("scaffold") {
        report.add(scaffold::project(&arguments.kubewright, &clock)?);
    }
    if wanted("manifests") {
        report.add(scaffold::manifests(&arguments.kubewright, &arguments.shipped, &clock)?);
    }
    if wanted("dev") {
        report.try_add("dev", dev::restart(&arguments.kubewright, &clock).await.map(|outcome| vec![outcome]));
    }
    if wanted("pod-creates") {
        report.add(creates::over_tls(clock.clone()).await?);
    }
    if wanted("admission") {
        report.add(admission::round_trip(clock.clone()).await?);
    }
    if wanted("admission-runtime") {
        report.add(admission::by_the_runtime(clock.clone()).await?);
    }
    if wanted("watch-fanout") {
        report.add(fanout::to_watchers(clock.clone()).await?);
    }
    if wanted("podset") {
        report.add(podset::zero_to_five(clock.clone()).await?);
    }
    if wanted("cached-pod") {
        memory::of_a_cached_pod()?.into_iter().for_each(|outcome| report.add(outcome));
    }
    if wanted("cronjob-latest") {
        report.add(cronjob::latest_missed(&clock)?);
    }
    if wanted("cronjob-1000") {
        report.add(cronjob::due_at_once().await?);
    }
    if wanted("queue") {
        report.try_add("queue", queue::both(&clock).await);
    }
    if wanted("overhead") {
        report.try_add("overhead", overhead::both());
    }
    if wanted("idle") {
        report.try_add("idle", idle::both(&arguments.kubewright, &arguments.shipped).await);
    }
    if wanted("convergence") {
        let contest = Contest {
            clock: clock.clone(),
            kubewright: &arguments.kubewright,
            programs: arguments.operators.clone(),
            podsets: arguments.podsets,
        };
        report.try_add("convergence", contest.hold().await);
    }
    if let (Some(file), None) = (&arguments.results, &arguments.filter) {
        // The build times are measured by `cargo xtask builds`; their table is preserved.
        let kept = std::fs::read_to_string(file).unwrap_or_default();
        let builds = kept.find("## Builds from nothing").map_or("", |start| &kept[start..]);
        let text = [report.markdown().trim_end(), builds].join("\n\n");
        std::fs::write(file, text.trim_end().to_owned() + "\n").with_context(|| format!("write {}", file.display()))?;
        println!("kept in {}", file.display());
    }
    Ok(report.within())
}
