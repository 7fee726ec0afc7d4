//! `kubewright version`: what this command and what it brings are versions of.

use anyhow::{Context, Result};
use clap::ValueEnum;
use kubewright_apiserver::ApiServer;
use serde_json::json;

use crate::shell::Shell;

/// The client that operators talk to a cluster by: that of kube-rs.
const KUBE: &str = "5.0.0";

/// How it is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// For programs, in this format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Json,
}

/// Prints them. The version of Kubernetes is what the embedded cluster's own server says.
pub(crate) async fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let server = ApiServer::builder().build().client().apiserver_version().await;
    let server = server.context("ask the embedded API server for its version")?;
    let kubernetes = server.git_version.split('-').next().unwrap_or_default();
    let (own, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    match arguments.output {
        Some(Format::Json) => {
            let all = json!({"kubewright": own, "kubernetes": kubernetes, "kube": KUBE, "os": os, "arch": arch});
            shell.result(&all.to_string());
        }
        None => shell.result(&format!(
            "kubewright {own}\nKubernetes {kubernetes} (the embedded cluster)\nkube {KUBE} (the operators' client)\n{os}/{arch}"
        )),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_the_one_in_use() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"kube\"\nversion = \"{KUBE}\"\n")));
    }
}
