//! `kubewright build`: the program that goes into an image.

use anyhow::{Context, Result};

use crate::{
    operator::{self, Package, Target},
    project::current_folder,
    shell::Shell,
};

/// What to build, and for whom.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright build
  kubewright build --target aarch64-unknown-linux-musl

The program is static: for musl where that target and musl-gcc are installed, else with glibc in it.
Its path is printed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) recipe: Recipe,
}

/// How a program is built that can start where there is nothing else.
#[derive(Debug, clap::Args)]
pub(crate) struct Recipe {
    /// The target, as rustc names it
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,

    /// Cargo's profile
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,

    /// The operator among the programs of the project
    #[arg(long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
}

/// What was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) program: std::path::PathBuf,
    pub(crate) target: String,
}

impl Recipe {
    /// Builds the program of a package.
    pub(crate) fn build(&self, package: &Package, shell: &Shell) -> Result<Built> {
        let target = Target::find(self.target.as_deref())?;
        shell.detail("Target", &target.triple);
        let program = operator::build_static(package, &target, &self.profile, shell)
            .with_context(|| format!("for {}, whose C compiler may be missing", target.triple))?;
        Ok(Built { program, target: target.triple })
    }
}

/// Builds, and prints where the program is.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let package = Package::find(&current_folder()?, arguments.recipe.bin.as_deref())?;
    let built = arguments.recipe.build(&package, shell)?;
    shell.status("Finished", format!("{} for {}", package.program, built.target));
    shell.result(&built.program.display().to_string());
    Ok(())
}
