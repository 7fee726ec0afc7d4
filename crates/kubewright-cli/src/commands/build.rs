//! `kubewright build`: builds the static program for an image.

use anyhow::{Context, Result};

use crate::{
    operator::{self, Package, Target, install_hint},
    project::current_folder,
    shell::Shell,
};

/// Arguments of `kubewright build`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Build for this machine
  kubewright build

  # Build for another architecture
  kubewright build --target aarch64-unknown-linux-musl

The program is linked statically: with musl if that target and musl-gcc are installed, otherwise with glibc. Where the linker is lld, the functions
that run at rest are placed together, so that less of the program is resident. Its path is printed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) build: BuildOptions,
}

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildOptions {
    /// Target triple [default: musl or glibc on the architecture of this machine]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,

    /// Cargo profile
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,

    /// Binary target of the operator, if the package has several
    #[arg(long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
}

/// A built program.
#[derive(Debug)]
pub(crate) struct BuildOutput {
    pub(crate) program: std::path::PathBuf,
    pub(crate) target: String,
}

impl BuildOptions {
    /// Builds the static program of a package.
    pub(crate) fn build(&self, package: &Package, shell: &Shell) -> Result<BuildOutput> {
        self.build_for(self.target.as_deref(), package, shell)
    }

    /// Builds the static program of a package for a target.
    pub(crate) fn build_for(&self, target: Option<&str>, package: &Package, shell: &Shell) -> Result<BuildOutput> {
        let target = Target::find(target)?;
        shell.detail("Target", &target.triple);
        let program = operator::build_static(package, &target, &self.profile, shell)
            .with_context(|| format!("build for {}: {}", target.triple, install_hint(&target.triple)))?;
        Ok(BuildOutput { program, target: target.triple })
    }
}

/// Builds the program and prints its path.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let package = Package::find(&current_folder()?, arguments.build.bin.as_deref())?;
    let built = arguments.build.build(&package, shell)?;
    shell.status("Finished", format!("{} for {}", package.program, built.target));
    shell.result(&built.program.display().to_string());
    Ok(())
}
