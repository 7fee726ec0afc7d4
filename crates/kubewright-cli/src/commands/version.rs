//! `kubewright version`: prints the versions of this command and its components.

use anyhow::Result;
use clap::ValueEnum;
use kubewright_apiserver::VERSION;
use serde_json::json;

use crate::shell::Shell;

/// The version of kube-rs, which is the client library of operators.
const KUBE: &str = "5.0.0";

/// Arguments of `kubewright version`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright version
  kubewright version --output json")]
pub(crate) struct Arguments {
    /// Output format [default: text]
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Json,
}

/// Prints the versions. The version of Kubernetes is that of the embedded API server.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let kubernetes = VERSION.split('+').next().unwrap_or_default();
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
    fn the_version_of_kube_is_that_of_the_lock_file() {
        let lock = include_str!("../../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"kube\"\nversion = \"{KUBE}\"\n")));
    }
}
