//! The generated files: the merge keys of built-in types, the golden projects below `testdata`, and the manifests of
//! those and of the operators.

mod merge_keys;

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::steps::{Steps, cargo};

/// The operators, by folder. The command line asks each operator's own program for its manifests.
const OPERATORS: [&str; 5] = ["at", "cronjob", "guestbook", "lolcow", "podset"];
/// The golden projects, by folder and package.
const GOLDEN: [&str; 5] =
    ["project", "project-conversion", "project-multigroup", "project-namespaced", "project-with-plugins"];

/// Writes the generated files, or with `check` compares them with their sources.
pub(crate) fn run(steps: &mut Steps, check: bool) {
    steps.check("merge keys", || merge_keys::run(Path::new("."), check));
    // All packages, as the tests have them: another selection would be compiled with other features.
    if !steps.run("build of the programs", cargo(&["test", "--workspace", "--no-run"])) {
        return steps.skip("generated files", "the programs could not be built");
    }
    // These tests compare the golden projects with what the commands make, or write them.
    let mut golden = cargo(&["test", "--workspace", "--quiet", "--test", "scaffold", "golden"]);
    if !check {
        golden.env("KUBEWRIGHT_GENERATE", "1");
    }
    steps.run("golden projects", golden);
    if !check {
        // The commands write Rust in the style of a new project, and the operators have this project's.
        steps.run("formatting", cargo(&["fmt", "--all"]));
    }
    steps.check("manifests of the operators", || manifests_of_operators(check));
    steps.check("manifests of the golden projects", || manifests_of_golden_projects(check));
}

/// Writes or compares the manifests of the operators, by the programs that the tests have built.
pub(crate) fn manifests_of_operators(check: bool) -> Result<()> {
    each(OPERATORS.map(|name| (format!("operators/{name}"), format!("{name}-operator"))), check)
}

/// Writes or compares the manifests of the golden projects, by the programs that the tests have built.
pub(crate) fn manifests_of_golden_projects(check: bool) -> Result<()> {
    each(GOLDEN.map(|name| (format!("testdata/{name}"), name.to_owned())), check)
}

fn each(projects: impl IntoIterator<Item = (String, String)>, check: bool) -> Result<()> {
    let binaries = std::path::absolute("target/debug")?;
    let mut failed = Vec::new();
    for (folder, program) in projects {
        let mut command = Command::new(binaries.join("kubewright"));
        command.current_dir(&folder).args(["manifests", "--program"]).arg(binaries.join(program));
        command.args(check.then_some("--check"));
        if let Err(error) = crate::steps::run(&mut command) {
            eprintln!("    {folder}: {error:#}");
            failed.push(folder);
        }
    }
    if !failed.is_empty() {
        bail!("{} (cargo xtask generate writes them)", failed.join(", "));
    }
    Ok(())
}
