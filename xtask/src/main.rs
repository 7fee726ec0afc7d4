//! The project's own chores: `cargo xtask test`, `cargo xtask generate`, `cargo xtask pictures`, `cargo xtask book`,
//! `cargo xtask bench`.
//!
//! It depends on nothing of the project, so that it builds in seconds on a machine that has nothing yet.

#![allow(clippy::print_stderr, reason = "a command's progress belongs on standard error")]

mod book;
#[cfg(test)]
mod invariants;
mod steps;
mod tools;

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use steps::{Steps, cargo};
use tools::{CHROMIUM, KUBECTL};

/// Chores of the Kubewright project.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    after_help = "Examples:\n  cargo xtask test\n  cargo xtask generate --check\n  cargo xtask bench"
)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check everything: formatting, lints, tests, end-to-end tests with kubectl and Chromium, generated files, docs, the book, the demo.
    Test,
    /// Rewrite the generated files: CRDs and webhook configurations under operators/*/config, and the projects under testdata.
    Generate {
        /// Only compare; fail when a file differs from its source.
        #[arg(long)]
        check: bool,
    },
    /// Retake the pictures under docs/pictures, which the README shows, with Chromium.
    Pictures,
    /// Build the book into target/book, with mdbook, which is installed below target when missing.
    Book {
        /// Try the commands that its readers type, instead; of the pages only whose path contains this.
        #[arg(long = "try", value_name = "PAGE", num_args = 0..=1, default_missing_value = "")]
        tried: Option<String>,
    },
    /// Measure, print, and rewrite bench/RESULTS.md.
    Bench {
        /// Only the benchmarks whose name contains this.
        filter: Option<String>,
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

fn run(chore: Chore) -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?.to_owned();
    std::env::set_current_dir(&root).with_context(|| format!("enter {}", root.display()))?;
    match chore {
        Chore::Test => test(),
        Chore::Generate { check } => generate(&mut Steps::default(), check),
        Chore::Pictures => {
            let mut steps = Steps::default();
            steps.check("chromium", || CHROMIUM.ensure())?;
            steps.run("pictures", pictures())
        }
        Chore::Book { tried: None } => Steps::default().check("book", book::build),
        Chore::Book { tried: Some(page) } => try_book(&mut Steps::default(), &page),
        Chore::Bench { filter } => {
            let mut steps = Steps::default();
            // The command is measured from outside, so it has to be there.
            let mut build = cargo(&["build", "--quiet", "--release", "-p", "kubewright-cli", "-p", "kubewright-bench"]);
            build.args(["-p", "podset-operator", "-p", "podset-kube-rs"]);
            steps.run("release build", build)?;
            let shipped = ["build", "--quiet", "--profile", "dist", "-p", "five-operators"];
            steps.run("build of what is shipped", cargo(&shipped))?;
            let mut bench = Command::new("target/release/kubewright-bench");
            bench.args(["--results", "bench/RESULTS.md"]).args(filter);
            steps.run("bench", bench)
        }
    }
}

/// What is generated for each operator, by the command line: it asks the operator's own program.
const OPERATORS: [&str; 5] = ["at", "cronjob", "guestbook", "lolcow", "podset"];

/// The projects that the commands make, by their folders and packages.
const GOLDEN: [&str; 4] = ["project", "project-conversion", "project-multigroup", "project-namespaced"];

/// Generates on the binaries that the tests have built: those of other sets of packages would be built anew.
fn generate(steps: &mut Steps, check: bool) -> Result<()> {
    steps.run("binaries of the operators", cargo(&["test", "--workspace", "--no-run", "--quiet"]))?;
    // They compare the golden projects with what the commands make, and write them when told so.
    let mut golden = cargo(&["test", "--workspace", "--quiet", "--test", "scaffold", "golden"]);
    if !check {
        golden.env("KUBEWRIGHT_GENERATE", "1");
    }
    steps.run("golden projects", golden)?;
    let binaries = std::path::absolute("target/debug").context("find the binaries")?;
    let operators = OPERATORS.map(|name| (format!("operators/{name}"), format!("{name}-operator")));
    let golden = GOLDEN.map(|name| (format!("testdata/{name}"), name.to_owned()));
    for (folder, program) in operators.into_iter().chain(golden) {
        let mut command = Command::new(binaries.join("kubewright"));
        command.current_dir(&folder).args(["manifests", "--program"]).arg(binaries.join(program));
        command.args(check.then_some("--check"));
        steps.run(&format!("manifests of {folder}"), command)?;
    }
    Ok(())
}

/// The browser tests take the pictures anyway, and keep them when told so.
fn pictures() -> Command {
    let packages = ["-p", "guestbook-operator", "-p", "kubewright-demo", "-p", "lolcow-operator"];
    let mut command = cargo(&["test", "--quiet", "--test", "it", "browser"]);
    command.args(packages).env("KUBEWRIGHT_PICTURES", "1");
    command
}

/// Tries the book's commands on the binaries that the tests have built: those of other sets of packages would be built anew.
fn try_book(steps: &mut Steps, page: &str) -> Result<()> {
    steps.run("binaries for the book", cargo(&["test", "--workspace", "--no-run", "--quiet"]))?;
    steps.check("the book's commands", || book::commands::try_pages(page))
}

fn test() -> Result<()> {
    let mut steps = Steps::default();
    steps.check("kubectl", || KUBECTL.ensure())?;
    steps.check("chromium", || CHROMIUM.ensure())?;
    steps.run("formatting", cargo(&["fmt", "--all", "--check"]))?;
    steps.run("lints", cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"]))?;
    steps.run(
        "tests, with kubectl and Chromium end to end",
        cargo(&["test", "--workspace", "--no-fail-fast", "--quiet"]),
    )?;
    generate(&mut steps, true)?;
    // A feature that no other step builds: its lints on the same tree, and the one test that needs it.
    let feature = ["--features", "kubewright-runtime/opentelemetry"];
    let mut lints = cargo(&["clippy", "--workspace", "--all-targets", "--quiet"]);
    lints.args(feature).args(["--", "--deny", "warnings"]);
    steps.run("lints with OpenTelemetry", lints)?;
    let mut spans = cargo(&["test", "-p", "kubewright-runtime", "--quiet", "--test", "it"]);
    spans.args(feature).args(["--", "telemetry::"]);
    steps.run("spans to a collector", spans)?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "--deny warnings");
    steps.run("documentation", docs)?;
    steps.check("book", book::build)?;
    try_book(&mut steps, "")?;
    steps.run("demo", cargo(&["demo", "--once"]))?;
    steps.summary();
    Ok(())
}
