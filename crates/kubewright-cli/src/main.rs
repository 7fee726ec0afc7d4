//! The `kubewright` command: commands parse, operations act, one shell prints.

mod commands;
mod kubeconfig;
mod shell;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kubewright_apimachinery::clock::SystemClock;

use crate::{commands::cluster, shell::Shell};

/// The operator SDK for Rust.
#[derive(Debug, Parser)]
#[command(name = "kubewright", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an embedded Kubernetes cluster on this machine until Ctrl-C.
    Cluster(cluster::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let clock = SystemClock::shared();
    let arguments = Arguments::parse();
    let shell = Shell::new();
    let result = match arguments.command {
        Command::Cluster(arguments) => cluster::run(arguments, clock, &shell).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell.error(&error);
            ExitCode::FAILURE
        }
    }
}
