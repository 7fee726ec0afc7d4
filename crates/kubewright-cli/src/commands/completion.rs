//! `kubewright completion`: prints completion scripts for shells.

use anyhow::{Context, Result};
use clap_complete::Shell as Kind;

use crate::shell::Shell;

/// Arguments of `kubewright completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(kubewright completion bash)
  kubewright completion zsh > ~/.zfunc/_kubewright
  kubewright completion fish > ~/.config/fish/completions/kubewright.fish")]
pub(crate) struct Arguments {
    /// Shell to complete in
    shell: Kind,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command, shell: &Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "kubewright", &mut script);
    shell.result(String::from_utf8(script).context("generate the script")?.trim_end());
    Ok(())
}
