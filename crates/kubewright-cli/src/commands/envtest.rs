//! `kubewright envtest`: writes programs in the place of those that envtest starts.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use kubewright_apimachinery::clock::SharedClock;

use crate::{envtest, shell::Shell};

/// Arguments of `kubewright envtest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Run the tests of a Go project, which use envtest, on the embedded API server
  export KUBEBUILDER_ASSETS=$(kubewright envtest ~/.local/share/kubewright/envtest)
  go test ./...

The command writes etcd, kube-apiserver and kubectl into DIR, and prints its absolute path. Tests start and stop them as they do the programs
that setup-envtest downloads, with the same flags and certificates. kube-apiserver is the embedded API server, without controllers and nodes. It
keeps its objects in memory: they are gone when it stops. etcd only answers health checks. kubectl is the one in PATH.")]
pub(crate) struct Arguments {
    /// Directory for the programs; it is created if necessary
    #[arg(value_name = "DIR", required_unless_present = "run")]
    directory: Option<PathBuf>,

    /// Run a program, as the scripts in DIR do
    #[arg(long, value_name = "PROGRAM", conflicts_with = "directory", hide = true)]
    run: Option<Program>,

    /// Flags of the program
    #[arg(last = true, value_name = "FLAGS", requires = "run", hide = true)]
    flags: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    Etcd,
    KubeApiserver,
}

/// Writes the programs, or runs one.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let flags = arguments.flags.into_iter().map(|flag| flag.into_string().ok().context("a flag is not valid UTF-8"));
    let flags = flags.collect::<Result<Vec<_>>>()?;
    match arguments.run {
        Some(Program::Etcd) => envtest::run_etcd(flags, shell).await,
        Some(Program::KubeApiserver) => envtest::run_api_server(flags, clock, shell).await,
        None => {
            let directory = envtest::write(&arguments.directory.unwrap_or_default())?;
            shell.result(&directory.display().to_string());
            Ok(())
        }
    }
}
