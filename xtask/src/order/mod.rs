//! `cargo xtask order`: the functions that a program calls at its start and at rest, for the linker to place together.
//!
//! The system maps 64 KiB of a program around each address that it runs (`fault_around_bytes` of Linux). Where the
//! functions that run are spread over the program, nearly all of it becomes resident. They are listed by the names of
//! the sections of object files, of which each holds one function, without the hash at the end of a name, which other
//! versions of the compiler and of dependencies change. A name that no longer exists has no effect. A function that is
//! missing in the list costs memory only.

mod cluster;
mod observed;
mod operators;
mod sections;

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use self::sections::Sections;
use crate::{
    root,
    steps::{Steps, cargo},
    tools::{KUBECTL, VALGRIND},
};

/// The folder of everything that is written in between.
const FOLDER: &str = "target/order";
/// The number of observed starts. Each of them takes other branches: locks that are held or not, timers that expire
/// earlier or later.
const STARTS: usize = 3;

/// A build of a program that is linked with a map.
struct Build {
    package: &'static str,
    program: &'static str,
    profile: &'static str,
    /// Whether it is linked statically, as for images.
    is_static: bool,
}

impl Build {
    fn command(&self) -> Command {
        let mut build = cargo(&["rustc", "--profile", self.profile, "-p", self.package, "--bin", self.program]);
        if self.is_static {
            let target = target();
            // As `kubewright build` has it, so that dependencies are compiled once.
            let flags = format!("target.{target}.rustflags=[\"-C\", \"target-feature=+crt-static\"]");
            build.args(["--target", &target, "--config", &flags]);
        }
        build.arg("--").arg(format!("-Clink-arg=-Wl,-Map={}", self.map().display()));
        // Of functions with the same code, the linker would keep one of its choice, and another one once they are
        // placed otherwise.
        build.arg("-Clink-arg=-Wl,--icf=none");
        build
    }

    fn map(&self) -> PathBuf {
        root().join(FOLDER).join(format!("{}.map", self.program))
    }

    /// Returns the path of the program.
    fn path(&self) -> PathBuf {
        let folder = if self.is_static { root().join("target").join(target()) } else { root().join("target") };
        folder.join(self.profile).join(self.program)
    }

    /// Returns the sections of functions in the program.
    fn sections(&self) -> Result<Sections> {
        let map = self.map();
        let text = fs::read_to_string(&map).with_context(|| format!("read {}", map.display()))?;
        let sections = Sections::read(&text);
        if sections.is_empty() {
            bail!("{} has no sections of functions: the linker isn't lld", map.display());
        }
        Ok(sections)
    }
}

/// Returns the target of static programs.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Builds the programs, observes them, and rewrites the lists.
pub(crate) fn record(steps: &mut Steps) {
    if !cfg!(target_os = "linux") {
        return steps.skip("order of functions", "it is recorded on Linux only");
    }
    let ready = steps.check("valgrind", || VALGRIND.ensure())
        && steps.check("kubectl", || KUBECTL.ensure())
        && steps.check("folder", || fs::create_dir_all(FOLDER).with_context(|| format!("create {FOLDER}")));
    if ready && steps.run("release build", cluster::BUILD.command()) {
        steps.check("functions of the cluster", cluster::record);
        if steps.run("build of the operators", operators::BUILD.command()) {
            steps.check("functions of operators", operators::record);
        }
    }
}
