//! The `kubewright` command.
//!
//! [`commands`] parses arguments, the other modules do the work, and only [`shell`] prints. The exit code is 0 for
//! success, 1 for an error, 2 for a usage error, and 3 if `kubewright simulate` found something;
//! `kubewright cluster -- COMMAND` ends with that of the command.

mod audit;
mod child;
mod cluster;
mod commands;
mod dev;
mod directory;
mod envtest;
mod event;
mod explain;
mod external;
mod images;
mod kubeconfig;
mod oci;
mod olm;
mod operator;
mod project;
mod remote;
mod render;
mod scorecard;
mod shell;
mod webhook;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kubewright_apimachinery::clock::SystemClock;

use crate::{
    commands::{
        alpha, build, bundle, cluster as cluster_command, completion, create, delete, deploy, dev as dev_command, edit,
        envtest as envtest_command, explain as explain_command, generate, image, init, install, installer, manifests,
        plugin, run, simulate, version,
    },
    shell::{Shell, Verbosity},
};

/// A request of the embedded API server consists of small allocations: with that of glibc it takes half as long again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubewright, the operator SDK for Rust: scaffolds, runs and deploys Kubernetes operators
#[derive(Debug, Parser)]
#[command(
    name = "kubewright",
    version,
    after_help = "\
Examples:
  # Create a project with one kind
  kubewright init --domain example.com
  kubewright create api --group shop --version v1 --kind Order

  # Run its operator beside an embedded cluster, and restart it on each change
  kubewright dev

Exit codes:
  0  success
  1  error, described on standard error
  2  wrong usage

A program kubewright-NAME in PATH adds the command kubewright NAME."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Print only results, warnings and errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Print each step and each changed file
    #[arg(long, short, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a project in the current directory
    Init(init::Arguments),
    /// Add an API or a webhook to the project
    #[command(subcommand)]
    Create(create::Command),
    /// Remove an API or a webhook from the project
    #[command(subcommand)]
    Delete(delete::Command),
    /// Change the settings of the project
    Edit(edit::Arguments),
    /// Run an embedded Kubernetes cluster on this machine
    Cluster(cluster_command::Arguments),
    /// Write etcd, kube-apiserver and kubectl for tests that use envtest
    Envtest(envtest_command::Arguments),
    /// Run the operator beside an embedded cluster, and restart it when a file changes
    Dev(dev_command::Arguments),
    /// Generate the CustomResourceDefinitions, roles and webhook configurations
    Manifests(manifests::Arguments),
    /// Build the operator as an optimized, static program
    Build(build::Arguments),
    /// Build an image of the operator, and push it
    Image(image::Arguments),
    /// Install the CustomResourceDefinitions into the cluster of the current context
    Install(install::Arguments),
    /// Delete the CustomResourceDefinitions, and all objects of their kinds
    Uninstall(install::UninstallArguments),
    /// Run the operator on this machine against the cluster of the current context
    Run(run::Arguments),
    /// Search for bugs of the operator with faults on a simulated cluster
    Simulate(simulate::Arguments),
    /// Deploy the operator to the cluster of the current context
    Deploy(deploy::Arguments),
    /// Delete the operator, its CustomResourceDefinitions, and all objects of its kinds
    Undeploy(deploy::UndeployArguments),
    /// Generate dist/install.yaml, one file that installs the operator
    BuildInstaller(installer::Arguments),
    /// Generate a Helm chart in dist/chart
    Helm(installer::HelmArguments),
    /// Generate a bundle for the Operator Lifecycle Manager
    #[command(subcommand)]
    Generate(generate::Command),
    /// Check, test and install a bundle for the Operator Lifecycle Manager
    #[command(subcommand)]
    Bundle(bundle::Command),
    /// Explain the state of an object, and what its operator did with it
    Explain(explain_command::Arguments),
    /// Print a completion script for a shell
    Completion(completion::Arguments),
    /// Print the version of kubewright and of its components
    Version(version::Arguments),
    /// Experimental commands
    #[command(subcommand)]
    Alpha(alpha::Command),
    /// Run a kubewright-NAME plugin
    #[command(external_subcommand)]
    Plugin(Vec<OsString>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let clock = SystemClock::shared();
    let line: Vec<OsString> = std::env::args_os().collect();
    let matches = external::extend(Arguments::command(), &line).get_matches_from(line);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let shell = Shell::new(match (arguments.quiet, arguments.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    });
    let result = match arguments.command {
        Command::Init(arguments) => init::run(&arguments, &shell),
        Command::Create(command) => create::run(command, &shell),
        Command::Delete(command) => delete::run(command, &shell),
        Command::Edit(arguments) => edit::run(arguments, &shell),
        Command::Cluster(arguments) => match cluster_command::run(arguments, clock, &shell).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Envtest(arguments) => envtest_command::run(arguments, clock, &shell).await,
        Command::Dev(arguments) => dev_command::run(arguments, clock, &shell).await,
        Command::Manifests(arguments) => manifests::run(arguments, &shell).await,
        Command::Build(arguments) => build::run(&arguments, &shell),
        Command::Image(arguments) => image::run(arguments, &shell).await,
        Command::Install(arguments) => install::run(arguments, &clock, &shell).await,
        Command::Uninstall(arguments) => install::uninstall(arguments, &clock, &shell).await,
        Command::Run(arguments) => run::run(arguments, &shell).await,
        Command::Simulate(arguments) => match simulate::run(arguments, clock, &shell).await {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Deploy(arguments) => deploy::run(arguments, &clock, &shell).await,
        Command::Undeploy(arguments) => deploy::undeploy(arguments, &clock, &shell).await,
        Command::BuildInstaller(arguments) => installer::run(&arguments, &shell),
        Command::Helm(arguments) => installer::helm(arguments, &shell),
        Command::Generate(command) => generate::run(command, &shell).await,
        Command::Bundle(command) => bundle::run(command, clock, &shell).await,
        Command::Explain(arguments) => explain_command::run(arguments, clock, &shell).await,
        Command::Completion(arguments) => completion::run(&arguments, Arguments::command(), &shell),
        Command::Version(arguments) => version::run(&arguments, &shell),
        Command::Alpha(command) => alpha::run(command, &shell),
        Command::Plugin(line) => plugin::run(&line),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell.error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the visible commands below a command, with the words that invoke them.
    fn commands(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let below = command.get_subcommands().filter(|command| command.get_name() != "help");
        let all = below.flat_map(|below| {
            let words = format!("{words} {}", below.get_name());
            [vec![(words.clone(), below.clone())], commands(below, &words)].concat()
        });
        all.collect()
    }

    #[test]
    fn commands_have_examples_and_arguments_have_help() {
        let mut command = Arguments::command();
        command.build();
        for (words, command) in commands(&command, "kubewright") {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.starts_with(char::is_uppercase) && !about.ends_with('.'), "{words}: {about:?}");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_group = command.has_subcommands();
            assert!(is_group || help.starts_with("Examples:\n"), "{words} has no examples");
            assert!(is_group || help.contains(&words), "the examples of {words} don't call it");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let id = argument.get_id();
                assert!(help.starts_with(char::is_uppercase) && !help.ends_with('.'), "{words} {id}: {help:?}");
            }
        }
    }
}
