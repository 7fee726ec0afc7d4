//! The `kubewright` command: commands parse, operations act, one shell prints.

mod cluster;
mod commands;
mod dev;
mod explain;
mod external;
mod kubeconfig;
mod oci;
mod operator;
mod project;
mod remote;
mod render;
mod shell;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kubewright_apimachinery::clock::SystemClock;

use crate::{
    commands::{
        alpha, build, cluster as alone, completion, create, deploy, dev as develop, edit, explain as why, image, init,
        install, installer, manifests, plugin, run, version,
    },
    shell::{Shell, Verbosity},
};

/// The operator SDK for Rust.
#[derive(Debug, Parser)]
#[command(
    name = "kubewright",
    version,
    after_help = "Another command `foo` may be added by a program `kubewright-foo` on the path."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Print results and errors only.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Print each step.
    #[arg(long, short, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Begin a project in this folder.
    Init(init::Arguments),
    /// Add a kind or its webhooks to the project.
    #[command(subcommand)]
    Create(create::Command),
    /// Change what the project is.
    Edit(edit::Arguments),
    /// Run an embedded Kubernetes cluster on this machine until Ctrl-C.
    Cluster(alone::Arguments),
    /// Run the operator beside an embedded cluster, built and started again when a file changes.
    Dev(develop::Arguments),
    /// Write the CustomResourceDefinitions, roles and webhook configurations of the operator.
    Manifests(manifests::Arguments),
    /// Build the operator as an optimised, static program.
    Build(build::Arguments),
    /// Make an image of the operator, and push it.
    Image(image::Arguments),
    /// Install the CustomResourceDefinitions in the cluster of the current context.
    Install(install::Arguments),
    /// Take the CustomResourceDefinitions away again, and all objects of their kinds.
    Uninstall(install::UninstallArguments),
    /// Run the operator on this machine against the cluster of the current context.
    Run(run::Arguments),
    /// Deploy the operator to the cluster of the current context, and wait until it is ready.
    Deploy(deploy::Arguments),
    /// Take the operator away again, and all objects of its kinds.
    Undeploy(deploy::UndeployArguments),
    /// Write dist/install.yaml: all that is to be applied, in one file.
    BuildInstaller(installer::Arguments),
    /// Write dist/chart: a Helm chart.
    Helm(installer::HelmArguments),
    /// Say why an object is as it is.
    Explain(why::Arguments),
    /// Print what a shell needs to complete this command's line.
    Completion(completion::Arguments),
    /// Print the versions of this command and of what it brings.
    Version(version::Arguments),
    /// Try what may still change.
    #[command(subcommand)]
    Alpha(alpha::Command),
    /// What others add: `kubewright foo` runs `kubewright-foo`.
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
        Command::Edit(arguments) => edit::run(arguments, &shell),
        Command::Cluster(arguments) => alone::run(arguments, clock, &shell).await,
        Command::Dev(arguments) => develop::run(arguments, clock, &shell).await,
        Command::Manifests(arguments) => manifests::run(arguments, &shell).await,
        Command::Build(arguments) => build::run(&arguments, &shell),
        Command::Image(arguments) => image::run(arguments, &shell).await,
        Command::Install(arguments) => install::run(arguments, &clock, &shell).await,
        Command::Uninstall(arguments) => install::uninstall(arguments, &clock, &shell).await,
        Command::Run(arguments) => run::run(arguments, &shell).await,
        Command::Deploy(arguments) => deploy::run(arguments, &clock, &shell).await,
        Command::Undeploy(arguments) => deploy::undeploy(arguments, &clock, &shell).await,
        Command::BuildInstaller(arguments) => installer::run(&arguments, &shell),
        Command::Helm(arguments) => installer::helm(arguments, &shell),
        Command::Explain(arguments) => why::run(arguments, clock, &shell).await,
        Command::Completion(arguments) => completion::run(&arguments, Arguments::command(), &shell),
        Command::Version(arguments) => version::run(&arguments, &shell).await,
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
