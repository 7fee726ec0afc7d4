//! Benchmarks of the embedded cluster and the runtime: `cargo xtask bench`.
//!
//! Each benchmark reports its result, its method, and its limit. Nothing here is a test.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]

mod admission;
mod baseline;
mod convergence;
mod creates;
mod cronjob;
mod dev;
mod fanout;
mod go;
mod idle;
mod keys;
mod kubernetes;
mod load;
mod memory;
mod overhead;
mod podset;
mod process;
mod queue;
mod report;
mod reviews;
mod scaffold;
mod server_memory;
mod setting;
mod simulation;
mod sizes;
mod start;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use kubewright_apimachinery::clock::{SharedClock, SystemClock};

use crate::{
    convergence::{Contest, ServerPrograms},
    go::Peers,
    report::{Outcome, Report},
    sizes::Sizes,
};

/// The timeout of a benchmark in a smoke run, which takes seconds.
const SMOKE_TIMEOUT: Duration = Duration::from_secs(120);

/// Benchmarks of the embedded cluster and the runtime.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run only the benchmarks whose name contains this text, and leave the results file unchanged
    filter: Option<String>,

    /// Run each benchmark once with small sizes, without holding it to its limit; fail if one doesn't work, and skip
    /// those whose programs aren't built
    #[arg(long, conflicts_with = "results")]
    smoke: bool,

    /// Markdown file for the results of a complete run
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// The `kubewright` command to measure [default: target/release/kubewright; with --smoke, the one beside this
    /// program]
    #[arg(long, value_name = "FILE")]
    kubewright: Option<PathBuf>,

    /// A `kubewright` command of another build, with which the API server of the measured one is compared
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Directory of the operators' programs to measure [default: target/project; with --smoke, the one of this program]
    #[arg(long, value_name = "FOLDER")]
    operators: Option<PathBuf>,

    /// Program with the five operators; `cargo xtask bench` passes that of `kubewright build --profile dist` [default:
    /// target/dist/five-operators; with --smoke, the one beside this program]
    #[arg(long, value_name = "FILE")]
    shipped: Option<PathBuf>,

    /// Directory with `kube-apiserver` and `etcd`, with which the embedded API server is compared [default:
    /// target/control-plane]
    #[arg(long, value_name = "FOLDER")]
    control_plane: Option<PathBuf>,

    /// Directory with the programs of `bench/peers/controller-runtime`; without them, nothing is compared with Go
    /// [default: target/peers]
    #[arg(long, value_name = "FOLDER")]
    go_peers: Option<PathBuf>,

    /// Number of rounds in which operators are compared with those on other frameworks; use the default for results
    /// [default: 3; with --smoke, 1]
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<usize>,

    /// Number of seconds for which idle managers are compared; use the default for results [default: 600; with --smoke,
    /// 5]
    #[arg(long, value_name = "SECONDS")]
    idle_seconds: Option<u64>,

    /// Number of PodSets that have to converge; use the default for results [default: 10000; with --smoke, 20]
    #[arg(long, value_name = "NUMBER")]
    podsets: Option<usize>,

    /// Start a cluster, print the milliseconds until its first response, and exit: one cold start
    #[arg(long, hide = true)]
    cold_start: bool,

    /// Fill a cache with pods, print the bytes per pod, and exit
    #[arg(long, hide = true, value_name = "STORE")]
    cache_pods: Option<memory::Store>,

    /// Measure the overhead of a reconcile with this number of cached objects, print it, and exit
    #[arg(long, hide = true, value_name = "NUMBER")]
    overhead: Option<usize>,

    /// Reconcile many keys, print the figures, and exit
    #[arg(long, hide = true)]
    many_keys: bool,

    /// Serve admission reviews with the certificate in this folder, until the process is asked to end
    #[arg(long, hide = true, value_name = "FOLDER", requires = "serve_port")]
    serve_reviews: Option<PathBuf>,

    /// Port for --serve-reviews
    #[arg(long, hide = true, value_name = "PORT")]
    serve_port: Option<u16>,

    /// Simulate PodSet, print the figures, and exit
    #[arg(long, hide = true, value_name = "WHAT")]
    simulation: Option<simulation::Simulated>,

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

/// The programs that are measured from outside.
struct Programs {
    kubewright: PathBuf,
    baseline: Option<PathBuf>,
    podset: PathBuf,
    podset_kube_rs: PathBuf,
    /// The five operators in one program.
    five_operators: PathBuf,
    kube_apiserver: PathBuf,
    etcd: PathBuf,
    go: Peers,
}

impl Programs {
    fn of(arguments: &Arguments) -> Result<Self> {
        let (built, projects, shipped): (PathBuf, PathBuf, PathBuf) = if arguments.smoke {
            let program = std::env::current_exe().context("find this program")?;
            let folder = program.parent().context("find the folder of this program")?.to_owned();
            (folder.clone(), folder.clone(), folder)
        } else {
            ("target/release".into(), "target/project".into(), "target/dist".into())
        };
        let operators = arguments.operators.as_ref().unwrap_or(&projects);
        let peers = arguments.control_plane.clone().unwrap_or_else(|| "target/control-plane".into());
        Ok(Self {
            baseline: arguments.baseline.clone(),
            kube_apiserver: peers.join("kube-apiserver"),
            etcd: peers.join("etcd"),
            go: Peers::new(arguments.go_peers.clone().unwrap_or_else(|| "target/peers".into())),
            podset: operators.join("podset-operator"),
            podset_kube_rs: operators.join("podset-kube-rs"),
            kubewright: arguments.kubewright.clone().unwrap_or_else(|| built.join("kubewright")),
            five_operators: arguments.shipped.clone().unwrap_or_else(|| shipped.join("five-operators")),
        })
    }
}

/// Runs benchmarks one after the other.
struct Runner<'a> {
    filter: Option<&'a str>,
    sizes: &'a Sizes,
    clock: SharedClock,
    report: Report,
}

impl Runner<'_> {
    fn selects(&self, name: &str) -> bool {
        self.filter.is_none_or(|filter| name.contains(filter))
    }

    /// Runs a benchmark if it is selected. A smoke run skips it if one of its programs isn't built.
    async fn run(
        &mut self,
        name: &'static str,
        programs: &[&Path],
        benchmark: impl Future<Output = Result<Vec<Outcome>>>,
    ) {
        if !self.selects(name) {
            return;
        }
        let start = self.clock.monotonic();
        let outcomes = if self.sizes.smoke {
            if let Some(missing) = programs.iter().find(|program| !program.is_file()) {
                return Report::skip(name, &format!("{} is not built", missing.display()));
            }
            let outcomes = tokio::time::timeout(SMOKE_TIMEOUT, benchmark).await;
            outcomes.unwrap_or_else(|_| Err(anyhow!("the benchmark took longer than {SMOKE_TIMEOUT:?}")))
        } else {
            benchmark.await
        };
        let took = self.clock.monotonic().saturating_sub(start);
        self.report.add(name, took, outcomes);
    }

    async fn start(&mut self, programs: &Programs) {
        let (sizes, clock, kubewright) = (self.sizes, self.clock.clone(), programs.kubewright.as_path());
        self.run("start-in-process", &[], async { start::in_process(sizes).map(one) }).await;
        let command = async { start::command(kubewright, sizes, clock.clone()).await.map(one) };
        self.run("start-command", &[kubewright], command).await;
    }

    async fn commands(&mut self, programs: &Programs) {
        let (sizes, clock) = (self.sizes, self.clock.clone());
        let (kubewright, operators) = (programs.kubewright.as_path(), programs.five_operators.as_path());
        self.run("scaffold", &[kubewright], async { scaffold::project(kubewright, sizes, &clock).map(one) }).await;
        let manifests = async { scaffold::manifests(kubewright, operators, sizes, &clock).map(one) };
        self.run("manifests", &[kubewright, operators], manifests).await;
        if !sizes.smoke {
            let dev = async { dev::restart(kubewright, sizes, &clock).await.map(one) };
            self.run("dev", &[kubewright], dev).await;
        } else if self.selects("dev") {
            // The tests of the command line cover what `kubewright dev` does.
            self.run("dev", &[], async { dev::check_project().await.map(|()| Vec::new()) }).await;
            Report::skip("dev", "its builds, which take minutes; only its project was checked");
        }
    }

    async fn server(&mut self) {
        let (sizes, clock) = (self.sizes, self.clock.clone());
        self.run("pod-creates", &[], async { creates::over_tls(sizes, clock.clone()).await }).await;
        self.run("kept-creates", &[], async { creates::kept(sizes, clock.clone()).await }).await;
        self.run("admission", &[], async { admission::round_trip(sizes, clock.clone()).await.map(one) }).await;
        let by_the_runtime = async { admission::by_the_runtime(sizes, clock.clone()).await.map(one) };
        self.run("admission-runtime", &[], by_the_runtime).await;
        self.run("watch-fanout", &[], async { fanout::to_watchers(sizes, clock.clone()).await.map(one) }).await;
    }

    async fn beside_kubernetes(&mut self, programs: &Programs) {
        let Programs { kubewright, kube_apiserver, etcd, .. } = programs;
        let name = "beside-kubernetes";
        if self.selects(name) && !(kube_apiserver.is_file() && etcd.is_file()) {
            return Report::skip(name, NO_CONTROL_PLANE);
        }
        let contest =
            kubernetes::Contest { kubewright, kube_apiserver, etcd, sizes: self.sizes, clock: self.clock.clone() };
        self.run(name, &[kubewright], contest.hold()).await;
    }

    async fn server_memory(&mut self, programs: &Programs) {
        let (kubewright, sizes, clock) = (programs.kubewright.as_path(), self.sizes, self.clock.clone());
        let memory = server_memory::of_the_command(kubewright, sizes, clock);
        self.run("server-memory", &[kubewright], memory).await;
    }

    async fn beside_another_build(&mut self, programs: &Programs) {
        let Some(baseline) = &programs.baseline else { return };
        let (kubewright, sizes, clock) = (programs.kubewright.as_path(), self.sizes, self.clock.clone());
        let compared = baseline::compared(kubewright, baseline, sizes, &clock);
        self.run("baseline", &[kubewright, baseline], compared).await;
    }

    async fn runtime(&mut self) {
        let (sizes, clock) = (self.sizes, self.clock.clone());
        self.run("podset", &[], async { podset::zero_to_five(sizes, clock.clone()).await.map(one) }).await;
        self.run("cached-pod", &[], async { memory::of_a_cached_pod(sizes) }).await;
        self.run("cronjob-latest", &[], async { cronjob::latest_missed(sizes, &clock).map(one) }).await;
        self.run("cronjob-1000", &[], async { cronjob::due_at_once(sizes).await.map(one) }).await;
        self.run("queue", &[], queue::both(sizes, &clock)).await;
        self.run("overhead", &[], async { overhead::both(sizes) }).await;
        self.run("simulation", &[], async { simulation::all(sizes) }).await;
        self.run("many-keys", &[], async { keys::held(sizes) }).await;
    }

    /// Runs what is compared with a program in Go, or says that the program is missing.
    async fn beside_go<B: Future<Output = Result<Vec<Outcome>>>>(
        &mut self,
        name: &'static str,
        (programs, peer): (&Programs, &str),
        needed: &[&Path],
        benchmark: impl FnOnce(PathBuf) -> B,
    ) {
        match programs.go.program(peer) {
            Some(program) => self.run(name, needed, benchmark(program)).await,
            None if self.selects(name) => {
                Report::skip(
                    name,
                    &format!("{peer} isn't built in {}, which needs Go", programs.go.folder().display()),
                );
            }
            None => {}
        }
    }

    async fn peers_in_go(&mut self, programs: &Programs) {
        let (sizes, clock) = (self.sizes, self.clock.clone());
        let (kubewright, five) = (programs.kubewright.as_path(), programs.five_operators.as_path());
        let pods = |peer: PathBuf| async move { memory::beside_go(&peer, sizes).await };
        self.beside_go("cached-pod-go", (programs, "cached-go"), &[], pods).await;
        let reviews = |peer: PathBuf| async move { reviews::beside_go(&peer, sizes, &clock).await };
        self.beside_go("reviews-go", (programs, "webhook-go"), &[], reviews).await;
        let idle = |peer: PathBuf| async move { idle::beside_go(kubewright, five, &peer, sizes).await };
        self.beside_go("idle-go", (programs, "idle-go"), &[kubewright, five], idle).await;
    }

    async fn operators(&mut self, programs: &Programs, podsets: usize) {
        let (sizes, kubewright, five) = (self.sizes, programs.kubewright.as_path(), programs.five_operators.as_path());
        self.run("idle", &[kubewright, five], idle::both(kubewright, five, sizes)).await;
        let (ours, kube_rs) = (programs.podset.as_path(), programs.podset_kube_rs.as_path());
        let go = programs.go.program("podset-go");
        if go.is_none() && self.selects("convergence") {
            Report::skip("convergence-go", "podset-go isn't built, which needs Go");
        }
        let (clock, go) = (self.clock.clone(), go.as_deref());
        let embedded = ServerPrograms::Embedded(kubewright);
        let namespaces = sizes.podset_namespaces;
        let contest =
            Contest { clock: clock.clone(), sizes, programs: embedded, ours, kube_rs, go, podsets, namespaces };
        self.run("convergence", &[kubewright, kube_rs, ours], contest.hold()).await;
        let Programs { kube_apiserver, etcd, .. } = programs;
        let name = "on-kubernetes";
        if self.selects(name) && !(kube_apiserver.is_file() && etcd.is_file()) {
            return Report::skip(name, NO_CONTROL_PLANE);
        }
        let kubernetes = ServerPrograms::Kubernetes(kube_apiserver, etcd);
        let podsets = podsets.min(sizes.real_podsets);
        let namespaces = sizes.real_podset_namespaces;
        let contest = Contest { clock, sizes, programs: kubernetes, ours, kube_rs, go, podsets, namespaces };
        self.run(name, &[kube_rs, ours], contest.hold()).await;
    }
}

/// Why benchmarks on a real control plane are skipped.
const NO_CONTROL_PLANE: &str = "kube-apiserver and etcd aren't built, which needs Go";

fn one(outcome: Outcome) -> Vec<Outcome> {
    vec![outcome]
}

/// Runs the benchmarks, and returns whether all have succeeded, in a complete run with every result within its limit.
async fn run(arguments: Arguments, clock: SharedClock) -> Result<bool> {
    let sizes = Sizes::new(arguments.smoke);
    if let Some(folder) = arguments.serve_reviews {
        reviews::serve(&folder, arguments.serve_port.unwrap_or_default()).await?;
        return Ok(true);
    }
    if arguments.many_keys {
        println!("{}", keys::measure(clock, sizes).await?);
        return Ok(true);
    }
    if arguments.cold_start {
        println!("{}", start::cold(clock).await?.as_secs_f64() * 1000.0);
        return Ok(true);
    }
    if let Some(store) = arguments.cache_pods {
        println!("{}", memory::fill(store, sizes).await?);
        return Ok(true);
    }
    if let Some(size) = arguments.overhead {
        println!("{}", overhead::measure(clock, arguments.by, size, sizes).await?);
        return Ok(true);
    }
    if let Some(what) = arguments.simulation {
        // Each run has a tokio runtime of its own, which can't be started within another one.
        let thread = std::thread::spawn(move || simulation::measure(what, &clock, sizes));
        println!("{}", thread.join().map_err(|_| anyhow!("a simulation has panicked"))??);
        return Ok(true);
    }
    setting::raise_open_files_limit();
    let programs = Programs::of(&arguments)?;
    let mut compared = sizes.clone();
    compared.rounds = arguments.rounds.unwrap_or(sizes.rounds);
    compared.idle_compared = arguments.idle_seconds.map_or(sizes.idle_compared, Duration::from_secs);
    let sizes = &compared;
    let machine = setting::machine();
    let report = if sizes.smoke { Report::without_limits(machine) } else { Report::new(machine) };
    println!("{}", report.machine());
    let mut runner = Runner { filter: arguments.filter.as_deref(), sizes, clock, report };
    runner.start(&programs).await;
    runner.commands(&programs).await;
    runner.server().await;
    runner.server_memory(&programs).await;
    runner.beside_kubernetes(&programs).await;
    runner.beside_another_build(&programs).await;
    runner.runtime().await;
    runner.peers_in_go(&programs).await;
    runner.operators(&programs, arguments.podsets.unwrap_or(sizes.podsets)).await;
    let report = runner.report;
    if let (Some(file), None) = (&arguments.results, &arguments.filter) {
        // The build times are measured by `cargo xtask builds`; their table is preserved.
        let kept = std::fs::read_to_string(file).unwrap_or_default();
        let builds = kept.find("## Builds from nothing").map_or("", |start| &kept[start..]);
        let text = [report.markdown().trim_end(), builds].join("\n\n");
        std::fs::write(file, text.trim_end().to_owned() + "\n").with_context(|| format!("write {}", file.display()))?;
        println!("kept in {}", file.display());
    }
    Ok(report.passed())
}
