//! `kubewright bundle`: bundles for the Operator Lifecycle Manager. This file has the checks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::olm::{Finding, Suite, validate};
use serde_json::json;

use super::{bundle_run, scorecard};
use crate::{directory::entry_names, shell::Shell};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the files of a bundle
    Validate(Validate),
    /// Run the tests of a bundle, as operator-sdk's scorecard
    Scorecard(scorecard::Arguments),
    /// Install an operator by its bundle, as operator-sdk run bundle
    Run(bundle_run::Run),
    /// Replace an installed operator by that of another bundle, as operator-sdk run bundle-upgrade
    Upgrade(bundle_run::Upgrade),
    /// Delete an operator that was installed by its bundle, as operator-sdk cleanup
    Cleanup(bundle_run::Cleanup),
}

/// Arguments of `kubewright bundle validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Check the bundle of the project
  kubewright bundle validate ./bundle

  # Check also what OperatorHub.io requires, and good practices
  kubewright bundle validate ./bundle --select-optional suite=operatorframework

  # List the optional checks
  kubewright bundle validate --list-optional

Each mistake is printed with its file and field. The exit code is 1 if there are errors; warnings alone do not fail. Bundles are directories:
images are not pulled. The checks are kubewright's own, by the rules of the published schemas.")]
pub(crate) struct Validate {
    /// Directory of the bundle
    #[arg(value_name = "DIR", required_unless_present = "list_optional")]
    bundle: Option<PathBuf>,

    /// Optional checks: name=operatorhub, name=good-practices, or suite=operatorframework for both
    #[arg(long, value_name = "SELECTOR", value_parser = suites)]
    select_optional: Option<Suites>,

    /// List the optional checks, and check nothing
    #[arg(long)]
    list_optional: bool,

    /// Output format
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Debug)]
struct Suites(Vec<Suite>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line for each mistake
    Text,
    /// One object, as of operator-sdk
    JsonAlpha1,
}

fn suites(text: &str) -> Result<Suites, String> {
    match text {
        "suite=operatorframework" => Ok(Suites(vec![Suite::OperatorHub, Suite::GoodPractices])),
        "name=operatorhub" => Ok(Suites(vec![Suite::OperatorHub])),
        "name=good-practices" => Ok(Suites(vec![Suite::GoodPractices])),
        _ => Err("use name=operatorhub, name=good-practices or suite=operatorframework".into()),
    }
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command, clock: SharedClock, shell: &Shell) -> Result<()> {
    match command {
        Command::Validate(arguments) => run_validate(arguments, shell),
        Command::Scorecard(arguments) => scorecard::run(arguments, clock, shell).await,
        Command::Run(arguments) => bundle_run::run(arguments, &clock, shell).await,
        Command::Upgrade(arguments) => bundle_run::upgrade(arguments, &clock, shell).await,
        Command::Cleanup(arguments) => bundle_run::cleanup(arguments, &clock, shell).await,
    }
}

fn run_validate(arguments: Validate, shell: &Shell) -> Result<()> {
    if arguments.list_optional {
        shell.result("NAME            SUITE              DESCRIPTION");
        shell.result("operatorhub     operatorframework  what OperatorHub.io requires");
        shell.result("good-practices  operatorframework  advice on resources and descriptions");
        return Ok(());
    }
    let bundle = arguments.bundle.context("name the directory of a bundle")?;
    let suites = arguments.select_optional.map(|suites| suites.0).unwrap_or_default();
    let found = validate(&files(&bundle)?, &suites);
    let errors = found.iter().filter(|finding| !finding.is_warning).count();
    match arguments.output {
        Format::JsonAlpha1 => {
            let output = |finding: &Finding| json!({"type": if finding.is_warning { "warning" } else { "error" }, "message": finding.to_string()});
            let outputs: Vec<_> = found.iter().map(output).collect();
            shell.result(&format!("{:#}", json!({"passed": errors == 0, "outputs": outputs})));
        }
        Format::Text => {
            for finding in &found {
                if finding.is_warning {
                    shell.warning(&finding.to_string());
                } else {
                    shell.error(&anyhow::Error::msg(finding.to_string()));
                }
            }
        }
    }
    if errors > 0 {
        bail!("{} has {errors} errors", bundle.display());
    }
    shell.status("Finished", format!("{} is valid", bundle.display()));
    Ok(())
}

/// Reads the files of a bundle, by path in its directory.
pub(super) fn files(bundle: &Path) -> Result<BTreeMap<String, String>> {
    if !bundle.join("manifests").is_dir() {
        bail!("{} has no directory manifests: name the directory of a bundle, such as ./bundle", bundle.display());
    }
    let mut files = BTreeMap::new();
    for part in ["manifests", "metadata"] {
        let folder = bundle.join(part);
        let names = if folder.is_dir() { entry_names(&folder)? } else { Vec::new() };
        for name in names.into_iter().filter(|name| [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))) {
            let path = folder.join(&name);
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            files.insert(format!("{part}/{name}"), text);
        }
    }
    Ok(files)
}
