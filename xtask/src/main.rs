//! The project's own chores: `cargo xtask test`, `generate`, `pictures`, `book`, `clients`, `conformance`, `bench`,
//! `builds`, `order`, `release`, `corpus`, `fuzz`, `invariants`.
//!
//! It depends on no crate of the project, so that it builds in seconds on a machine that has nothing yet.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its progress and its results")]

mod book;
mod builds;
mod clients;
mod conformance;
mod generate;
mod invariants;
mod order;
mod release;
mod steps;
mod test;
mod tools;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use release::Extent;
use steps::{Steps, cargo};
use tools::CHROMIUM;

/// Chores of the Kubewright project.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --all\n  cargo xtask generate --check\n  cargo xtask bench"
)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check formatting, lints, unit and integration tests with kubectl, the operators' manifests, and the demo
    Test {
        /// Check everything that CI checks: also exhaustive faults, the golden projects, pages in Chromium, the book's
        /// commands, OpenTelemetry, the documentation, a short run of the benchmarks, and the packages
        #[arg(long)]
        all: bool,
        /// Begin no step after so many minutes: the later ones are skipped, and named in the summary
        #[arg(long, value_name = "MINUTES")]
        time_limit: Option<u64>,
    },
    /// Rewrite the generated files: the manifests under operators/*/config, and the golden projects under testdata
    Generate {
        /// Compare only; fail when a file differs from its source
        #[arg(long)]
        check: bool,
    },
    /// Retake the README's pictures under docs/pictures, with Chromium
    Pictures,
    /// Build the book into target/book, with mdbook, which is installed below target when missing
    Book {
        /// Run the commands of the book's pages instead; with PAGE, only of the pages whose path contains it
        #[arg(long = "try", value_name = "PAGE", num_args = 0..=1, default_missing_value = "")]
        tried: Option<String>,
    },
    /// Run stock clients in five languages, kubectl and helm against an embedded cluster, and print a table of what
    /// works
    Clients {
        /// Run only the suite of this name: python, javascript, java, go, kubectl or helm
        #[arg(default_value = "")]
        suite: String,
        /// Use the cluster of this kubeconfig, on a loopback address, instead of an embedded one
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
    /// Run Kubernetes' end-to-end tests against an embedded cluster, which takes hours; needs Go, Linux and root
    Conformance {
        /// Run only the tests whose name matches this regular expression
        #[arg(default_value = r"\[Conformance\]")]
        focus: String,
        /// Leave out the tests whose name matches this regular expression
        #[arg(long, value_name = "EXPRESSION", default_value = "")]
        skip: String,
    },
    /// Run the benchmarks, print the figures, and rewrite bench/RESULTS.md
    Bench {
        /// Run only the benchmarks whose name contains this; the results file is then left alone
        filter: Option<String>,
        /// A `kubewright` command of another build, with which the API server is compared
        #[arg(long, value_name = "FILE")]
        baseline: Option<PathBuf>,
    },
    /// Measure the first builds, each in a clean clone with an empty target folder, and rewrite their table in
    /// bench/RESULTS.md
    Builds {
        /// Measure only the builds whose name contains this; the results file is then left alone
        filter: Option<String>,
    },
    /// Observe which functions `kubewright cluster` calls at its start and at rest, and rewrite the linker script that
    /// places them together
    Order,
    /// Package the published crates from a clean clone, check them, test a project made of them, and publish
    Release {
        /// Do all of it but publish
        #[arg(long)]
        dry_run: bool,
        /// Don't compile each package separately, but only a project that depends on all of them
        #[arg(long, requires = "dry_run")]
        no_verify: bool,
    },
    /// Record the answers of a real API server, with which those of the embedded one are compared
    Corpus {
        #[command(subcommand)]
        chore: CorpusChore,
    },
    /// Send random input to the API server and its functions: patches, apply, selectors, CEL, schemas, protobuf,
    /// routes, stored files
    Fuzz {
        /// The targets, by default all
        targets: Vec<String>,
        /// The number of seconds for each target
        #[arg(long, default_value_t = 60)]
        time: u64,
        /// The seed of the first input; printed by each run
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Print the module rings that are allowed, and why; fail when there are others
    Invariants {
        /// Remove from the list the files that are in no large ring any more
        #[arg(long)]
        prune: bool,
    },
}

#[derive(Debug, Subcommand)]
enum CorpusChore {
    /// Generate the cases, send them, and rewrite crates/kubewright-apiserver/tests/corpus
    Record {
        /// The kubeconfig of a cluster for tests
        #[arg(long)]
        kubeconfig: PathBuf,
        /// Record only the files whose name contains this
        filter: Option<String>,
    },
    /// Send random requests to two API servers, and list the answers that differ
    Compare {
        /// The kubeconfig of a cluster for tests
        #[arg(long)]
        kubeconfig: PathBuf,
        /// The kubeconfig of the other server, such as that of `kubewright cluster --api-only`
        #[arg(long)]
        with: PathBuf,
        /// Further arguments: `--objects`, `--seed`, `--texts`, and a part of a definition's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn run(chore: Chore) -> Result<()> {
    std::env::set_current_dir(root()).with_context(|| format!("enter {}", root().display()))?;
    let mut steps = Steps::default();
    match chore {
        Chore::Test { all, time_limit } => return test::run(all, Steps::within(time_limit)),
        Chore::Generate { check } => generate::run(&mut steps, check),
        Chore::Pictures => {
            if steps.check("chromium", || CHROMIUM.ensure()) {
                steps.run("pictures", pictures());
            }
        }
        Chore::Book { tried: None } => {
            steps.check("book", book::build);
        }
        Chore::Book { tried: Some(page) } => {
            // All packages, as the tests have them: another selection would be compiled with other features.
            if steps.run("build of the programs", cargo(&["test", "--workspace", "--no-run"])) {
                steps.check("the book's commands", || book::commands::try_pages(&page));
            }
        }
        Chore::Clients { suite, kubeconfig } => clients::build_and_run(&mut steps, &suite, kubeconfig.as_deref()),
        Chore::Conformance { focus, skip } => conformance::build_and_run(&mut steps, &focus, &skip),
        Chore::Bench { filter, baseline } => bench(&mut steps, filter, baseline),
        Chore::Builds { filter } => return builds::run(filter.as_deref()),
        Chore::Order => order::record(&mut steps),
        Chore::Release { no_verify: true, .. } => release::run(&mut steps, Extent::Project),
        Chore::Release { dry_run: true, .. } => release::run(&mut steps, Extent::DryRun),
        Chore::Release { .. } => release::run(&mut steps, Extent::Publish),
        Chore::Corpus { chore: CorpusChore::Record { kubeconfig, filter } } => {
            let mut record = cargo(&["run", "-p", "kubewright-corpus", "--", "record", "--kubeconfig"]);
            record.arg(kubeconfig).args(filter);
            steps.run("record", record);
        }
        Chore::Corpus { chore: CorpusChore::Compare { kubeconfig, with, arguments } } => {
            let mut compare = cargo(&["run", "-p", "kubewright-corpus", "--", "compare", "--kubeconfig"]);
            compare.arg(kubeconfig).arg("--with").arg(with).args(arguments);
            steps.run("compare", compare);
        }
        Chore::Fuzz { targets, time, seed } => {
            let mut command = fuzz(time);
            command.args(targets);
            if let Some(seed) = seed {
                command.args(["--seed", &seed.to_string()]);
            }
            steps.run("random input", command);
        }
        Chore::Invariants { prune } => return invariants::rings::print(prune),
    }
    steps.finish()
}

/// Returns the command that sends random input to each target for some seconds.
fn fuzz(time: u64) -> Command {
    let mut command = cargo(&["run", "-p", "kubewright-fuzz", "--", "--time"]);
    command.arg(time.to_string());
    command
}

fn bench(steps: &mut Steps, filter: Option<String>, baseline: Option<PathBuf>) {
    build_peers(steps);
    // Some benchmarks measure programs from outside.
    let builds: [(&str, &[&str]); 2] = [
        ("release build", &["build", "--release", "-p", "kubewright-cli", "-p", "kubewright-bench"]),
        ("build as a project", &["build", "--profile", "project", "-p", "podset-operator", "-p", "podset-kube-rs"]),
    ];
    let built: Vec<_> = builds.into_iter().map(|(name, build)| steps.run(name, cargo(build))).collect();
    let mut shipped = PathBuf::new();
    let is_shipped = steps.check("build as shipped", || {
        shipped = build_as_shipped()?;
        Ok(())
    });
    if is_shipped && !built.contains(&false) {
        let mut bench = Command::new("target/release/kubewright-bench");
        bench.args(["--results", "bench/RESULTS.md"]).arg("--shipped").arg(shipped).args(filter);
        if let Some(baseline) = baseline {
            bench.arg("--baseline").arg(baseline);
        }
        steps.run("benchmarks", bench);
    }
}

/// Builds the five operators for an image, and returns the path of their program.
fn build_as_shipped() -> Result<PathBuf> {
    let mut build = Command::new(root().join("target/release/kubewright"));
    build.args(["build", "--profile", "dist"]).current_dir(root().join("bench/five-operators"));
    let output = build.stderr(Stdio::inherit()).output().with_context(|| format!("start {build:?}"))?;
    if !output.status.success() {
        bail!("{build:?} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Builds kube-apiserver, etcd, and the operators on controller-runtime where Go is installed, which takes some minutes
/// the first time.
fn build_peers(steps: &mut Steps) {
    if Command::new("go").arg("version").output().is_err() {
        return steps.skip("build of the peers in Go", "Go isn't installed");
    }
    let folder = root().join("target/control-plane");
    for (module, package) in
        [("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"), ("etcd", "kubewright.example/bench/etcd")]
    {
        let mut build = Command::new("go");
        build.args(["build", "-ldflags", "-s -w", "-o"]).arg(folder.join(module)).arg(package);
        build.current_dir(root().join("bench/peers").join(module));
        steps.run(&format!("build of {module}"), build);
    }
    let mut build = Command::new("go");
    build.args(["build", "-ldflags", "-s -w", "-o"]).arg(root().join("target/peers/")).arg("./...");
    build.current_dir(root().join("bench/peers/controller-runtime"));
    steps.run("build of the operators in Go", build);
}

/// The browser tests take the pictures anyway; the variable has them keep them.
fn pictures() -> Command {
    let packages = ["-p", "guestbook-operator", "-p", "kubewright-demo", "-p", "lolcow-operator"];
    let mut command = cargo(&["test", "--quiet", "--test", "it", "browser"]);
    command.args(packages).env("KUBEWRIGHT_PICTURES", "1");
    command
}
