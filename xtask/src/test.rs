//! `cargo xtask test`: the checks before a change is sent, and with `--all`, those before it lands.

use std::process::Command;

use anyhow::Result;

use crate::{
    book, clients, generate, release,
    steps::{Steps, cargo},
    tools::{CHROMIUM, IP, KUBECTL, NFT, is_root},
};

/// Packages that only `--all` builds and tests: the bank of bugs (minutes of searches), the golden projects, the
/// example of the book's chapter on a bug (a search, too), the benchmarks, and the browser.
const EXCLUDED: [&str; 12] = [
    "bug-bank",
    "migrations",
    "project",
    "project-conversion",
    "project-multigroup",
    "project-namespaced",
    "project-with-plugins",
    "kubewright-bench",
    "five-operators",
    "podset-kube-rs",
    "kubewright-browser",
    "kubewright-fuzz",
];
/// The tests that need Chromium are in modules of this name.
const BROWSER: &str = "browser::";
/// Tests that compile everything once more, in minutes: an operator by `kubewright dev`, and programs that must not
/// compile.
const COMPILING: [&str; 2] =
    ["edits_restart_the_operator_and_broken_ones_do_not", "mistakes_are_reported_where_they_are"];
/// The program of the benchmarks, and those that it measures.
const BENCHMARKED: [&str; 5] =
    ["kubewright-bench", "kubewright", "podset-operator", "podset-kube-rs", "five-operators"];
/// The number of seconds for which each target of `cargo xtask fuzz` gets random input.
const FUZZED: u64 = 5;
/// Set for `--all`: the operators' tests then try every fault at every write, and not one fault at each
/// (`kubewright::simulation::env`), and the tests of the simulator and the bank of bugs make more runs.
const EXHAUSTIVE: &str = "KUBEWRIGHT_EXHAUSTIVE";

/// The selection of the workspace's tests.
struct Selection {
    all: bool,
    chromium: bool,
}

impl Selection {
    /// Returns `cargo test` for the selected packages.
    fn cargo_test(&self, options: &[&str]) -> Command {
        let mut command = cargo(&["test", "--workspace"]);
        if !self.all {
            command.args(EXCLUDED.iter().flat_map(|package| ["--exclude", package]));
        }
        command.args(options);
        command
    }

    /// Returns the same command, with the options of the test programs.
    fn run(&self) -> Command {
        let mut command = self.cargo_test(&["--no-fail-fast", "--quiet", "--"]);
        if self.all {
            command.env(EXHAUSTIVE, "1");
        }
        if !(self.all && self.chromium) {
            command.args(["--skip", BROWSER]);
        }
        if !self.all {
            command.args(COMPILING.iter().flat_map(|test| ["--skip", test]));
        }
        command
    }
}

/// Runs the checks. A check that fails doesn't keep the others from running, unless they need what it makes.
pub(crate) fn run(all: bool, mut steps: Steps) -> Result<()> {
    steps.check("kubectl", || KUBECTL.ensure());
    // Without root, the tests of pods with network namespaces only look at the error.
    if cfg!(target_os = "linux") && is_root() {
        steps.check("ip", || IP.ensure());
        steps.check("nft", || NFT.ensure());
    }
    let chromium = all && steps.check("chromium", || CHROMIUM.ensure());
    let selection = Selection { all, chromium };
    steps.run("formatting", cargo(&["fmt", "--all", "--check"]));
    let built = steps.run("build of the tests", selection.cargo_test(&["--no-run"]));
    let build_failed = "the tests could not be built";
    if built {
        let name = if all { "all tests" } else { "tests" };
        steps.run_tests(name, selection.run());
    } else {
        steps.skip("tests", build_failed);
    }
    // The programs are those that the tests have built: another selection of packages would compile them with other
    // features.
    if built {
        steps.check("manifests of the operators", || generate::manifests_of_operators(true));
        if all {
            steps.check("manifests of the golden projects", || generate::manifests_of_golden_projects(true));
        }
        let mut demo = Command::new("target/debug/kubewright-demo");
        demo.arg("--once");
        steps.run("demo", demo);
    } else {
        steps.skip("manifests and demo", build_failed);
    }
    steps.run("lints", lints(&["--workspace"]));
    if all {
        the_rest(&mut steps, built);
    } else {
        eprintln!("==> cargo xtask test --all checks more; see CONTRIBUTING.md");
    }
    steps.finish()
}

/// Returns clippy for a selection of packages, with warnings denied.
fn lints(selection: &[&str]) -> Command {
    let mut command = cargo(&["clippy", "--all-targets"]);
    command.args(selection).args(["--", "--deny", "warnings"]);
    command
}

/// Runs the steps that only `--all` has, after the tests.
fn the_rest(steps: &mut Steps, built: bool) {
    // No other step builds these features. The other packages have no code that depends on them.
    let packages = ["-p", "kubewright", "-p", "kubewright-connect", "-p", "kubewright-runtime"];
    let features = ["aws-lc-rs", "opentelemetry", "profiling"].map(|feature| format!("kubewright-runtime/{feature}"));
    let features = ["--features", &features.join(",")];
    steps.run("lints with the other features", lints(&[&packages[..], &features].concat()));
    let mut spans = cargo(&["test", "-p", "kubewright-runtime", "--test", "it"]);
    spans.args(features).args(["--", "profile::", "telemetry::", "webhook::"]);
    steps.run_tests("spans to a collector, profiles, and webhooks with aws-lc-rs", spans);
    if built {
        random_input(steps);
        smoke_of_the_benchmarks(steps);
    } else {
        steps.skip("random input and smoke of the benchmarks", "the tests could not be built");
    }
    let mut docs = cargo(&["doc", "--workspace", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "--deny warnings");
    steps.run("documentation", docs);
    steps.check("book", book::build);
    if built {
        steps.check("the book's commands", || book::commands::try_pages(""));
    } else {
        steps.skip("the book's commands", "the tests could not be built");
    }
    if built {
        clients::run(steps, "", None);
    } else {
        steps.skip("clients", "the tests could not be built");
    }
    release::run(steps, release::Extent::Project);
}

/// Sends some random input to each target, so that a target that no longer works is noticed.
fn random_input(steps: &mut Steps) {
    let mut build = cargo(&["build", "--workspace", "--tests"]);
    build.args(["--bin", "kubewright-fuzz"]);
    if steps.run("build of the targets for random input", build) {
        let mut input = Command::new("target/debug/kubewright-fuzz");
        input.args(["--time", &FUZZED.to_string()]);
        steps.run("random input", input);
    }
}

/// Runs every benchmark with small sizes, so that one that no longer works is noticed.
fn smoke_of_the_benchmarks(steps: &mut Steps) {
    // The tests' build leaves out programs of packages without integration tests. With `--tests`, the features are
    // those of the tests' build, so that only these programs are linked.
    let mut build = cargo(&["build", "--workspace", "--tests"]);
    build.args(BENCHMARKED.iter().flat_map(|program| ["--bin", program]));
    if steps.run("build of the benchmarks", build) {
        let mut smoke = Command::new("target/debug/kubewright-bench");
        smoke.arg("--smoke");
        steps.run("smoke of the benchmarks", smoke);
    } else {
        steps.skip("smoke of the benchmarks", "the benchmarks could not be built");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A renamed test would run without `--all` again, which only the duration would show.
    #[test]
    fn the_tests_that_are_left_out_exist() {
        let sources = ["crates/kubewright-cli/tests/it/dev.rs", "crates/kubewright-macros/tests/ui.rs"];
        let sources = sources.map(|path| fs::read_to_string(crate::root().join(path)).unwrap()).concat();
        for test in COMPILING {
            assert!(sources.contains(&format!("fn {test}(")), "no test is called {test}");
        }
        for package in ["guestbook", "lolcow"] {
            let path = crate::root().join("operators").join(package).join("tests/it/browser.rs");
            assert!(path.is_file(), "{}", path.display());
        }
        for package in EXCLUDED {
            let members = ["crates", "testdata", "bench", "bench/peers"].map(|parent| format!("{parent}/{package}"));
            let is_member = |path: &String| crate::root().join(path).join("Cargo.toml").is_file();
            assert!(
                matches!(package, "bug-bank" | "kubewright-bench" | "kubewright-fuzz") || members.iter().any(is_member),
                "no package is called {package}"
            );
        }
    }
}
