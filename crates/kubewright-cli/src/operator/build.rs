//! Builds the program of an operator, unless it is up to date.
//!
//! In a large workspace, a `cargo build` takes a second even if there is nothing to do. The sources that cargo lists
//! for the program are therefore compared with it first. A change made while another cargo process is building can be
//! missed, but the next change is detected.
//!
//! The program is built with the same features as tests, so that `cargo test` and the commands share all compiled
//! dependencies; see [`cargo_build`].

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{
    Package,
    package::cargo,
    placement,
    target::{STATIC, Target},
};
use crate::shell::Shell;

/// A message of cargo about a build.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    target: BuildTarget,
    executable: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
struct BuildTarget {
    name: String,
}

/// Returns the path of an operator's program, which is built unless it is up to date.
pub(crate) fn build(package: &Package, shell: &Shell) -> Result<PathBuf> {
    match up_to_date(package) {
        Some(program) => Ok(program),
        None => run_cargo(package, cargo_build(package), shell),
    }
}

/// Returns the path of an operator's program, if it is up to date.
pub(crate) fn up_to_date(package: &Package) -> Option<PathBuf> {
    Some(package.debug_program()).filter(|program| is_up_to_date(package, program))
}

/// Returns the command that builds the program of an operator. It prints diagnostics to standard error, and the
/// messages for [`built_program`] to standard output.
///
/// If a build may include examples or tests, cargo enables the features that only dev-dependencies request, for the
/// whole build. `--examples` has that effect even for a package without examples, in which case nothing more is
/// compiled. Without it, tokio and everything that depends on it would be compiled once for `cargo test` and again for
/// the commands.
pub(crate) fn cargo_build(package: &Package) -> Command {
    let mut command = cargo(&package.folder);
    command.args(["build", MESSAGES, "--bin", &package.program]);
    if !package.has_examples {
        command.arg("--examples");
    }
    command
}

/// The flag that makes cargo print human-readable diagnostics, and everything else as JSON.
const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// Builds the optimised, static program of an operator, for an image. [Places](placement) its functions if the linker
/// accepts that.
pub(crate) fn build_static(package: &Package, target: &Target, profile: &str, shell: &Shell) -> Result<PathBuf> {
    let placement = placement::options(package, &target.triple, || static_cargo(package, target))?;
    if placement.is_empty() {
        shell.detail("Linker", "rejects the list of functions: those that run at rest are not placed together");
    }
    let mut command = static_cargo(package, target);
    // The target is set even if it is the host. Otherwise the flags would also apply to build scripts and procedural
    // macros.
    command.args(["rustc", MESSAGES, "--bin", &package.program, "--profile", profile, "--target", &target.triple]);
    command.arg("--").args(placement);
    run_cargo(package, command, shell)
}

/// Returns a cargo command without its subcommand, with the flags for static programs.
fn static_cargo(package: &Package, target: &Target) -> Command {
    let mut command = cargo(&package.folder);
    if target.needs_static_flag {
        // Cargo reads these flags from a single place, and prefers the environment.
        match (std::env::var("CARGO_ENCODED_RUSTFLAGS"), std::env::var("RUSTFLAGS")) {
            (Ok(flags), _) if !flags.is_empty() => {
                command.env("CARGO_ENCODED_RUSTFLAGS", format!("{flags}\x1f-C\x1f{STATIC}"));
            }
            (_, Ok(flags)) if !flags.is_empty() => {
                command.env("RUSTFLAGS", format!("{flags} -C {STATIC}"));
            }
            _ => {
                command.args(["--config", &format!("target.{}.rustflags=[\"-C\", \"{STATIC}\"]", target.triple)]);
            }
        }
    }
    command
}

/// Runs cargo, and returns the path of the program that it has built.
fn run_cargo(package: &Package, mut command: Command, shell: &Shell) -> Result<PathBuf> {
    shell.status("Building", &package.program);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("start cargo")?;
    if !output.status.success() {
        bail!("{} does not compile: see the errors above", package.program);
    }
    built_program(package, &output.stdout)
}

/// Returns the path of the program that cargo built, from cargo's messages.
pub(crate) fn built_program(package: &Package, messages: &[u8]) -> Result<PathBuf> {
    let text = String::from_utf8_lossy(messages);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let mut built = messages.filter(|message| message.reason == "compiler-artifact");
    let program = built.find_map(|message| message.executable.filter(|_| message.target.name == package.program));
    program.with_context(|| format!("cargo did not build the binary target {}", package.program))
}

/// Returns whether a program is newer than all files that it was built from.
fn is_up_to_date(package: &Package, program: &Path) -> bool {
    let Some(built) = modified(program) else { return false };
    let Some(sources) = sources(program) else { return false };
    let settings = [
        package.folder.join("Cargo.toml"),
        package.root.join("Cargo.toml"),
        package.root.join("Cargo.lock"),
        package.root.join("rust-toolchain.toml"),
        package.root.join(".cargo/config.toml"),
        package.folder.join(".cargo/config.toml"),
    ];
    let settings = settings.into_iter().filter(|path| path.exists());
    sources.into_iter().chain(settings).all(|path| modified(&path).is_some_and(|time| time < built))
}

impl Package {
    /// Returns the path of the program after a development build.
    fn debug_program(&self) -> PathBuf {
        self.target.join("debug").join(&self.program)
    }

    /// Returns the files that the program was last built from. The list is empty if it was never built.
    pub(crate) fn sources(&self) -> Vec<PathBuf> {
        sources(&self.debug_program()).unwrap_or_default()
    }
}

fn sources(program: &Path) -> Option<Vec<PathBuf>> {
    // Cargo writes the dep-info file next to the program.
    fs::read_to_string(program.with_extension("d")).ok().map(|text| sources_of(&text))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Parses a dep-info file: a rule for make, in which spaces within names are escaped by a backslash.
fn sources_of(text: &str) -> Vec<PathBuf> {
    let line = text.lines().next().unwrap_or_default();
    let Some((_, sources)) = line.split_once(": ") else { return Vec::new() };
    // A path contains no NUL.
    let names = sources.trim_end().replace("\\ ", "\0");
    names.split(' ').filter(|name| !name.is_empty()).map(|name| PathBuf::from(name.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn names_with_spaces_are_read() {
        let found = sources_of("/t/debug/cow: /a/src/lib.rs /my\\ work/main.rs /c\n");
        assert_eq!(found, ["/a/src/lib.rs", "/my work/main.rs", "/c"].map(PathBuf::from));
        assert_eq!(sources_of("no such line"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_program_is_up_to_date_until_a_source_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let package = Package {
            folder: path("."),
            name: "cow".into(),
            version: "0.1.0".into(),
            program: "cow".into(),
            root: path("."),
            target: path("target"),
            has_examples: false,
            local: vec!["cow".into()],
        };
        let program = path("cow");
        assert!(!is_up_to_date(&package, &program), "there is no program");
        for name in ["cow", "main.rs", "Cargo.toml"] {
            File::create(path(name)).unwrap();
        }
        let now = modified(&program).unwrap();
        let age = |name: &str, seconds: u64| {
            File::options()
                .write(true)
                .open(path(name))
                .unwrap()
                .set_modified(now - Duration::from_secs(seconds))
                .unwrap();
        };
        age("main.rs", 9);
        age("Cargo.toml", 9);
        assert!(!is_up_to_date(&package, &program), "its sources are unknown");
        fs::write(path("cow.d"), format!("{}: {}\n", program.display(), path("main.rs").display())).unwrap();
        assert!(is_up_to_date(&package, &program));
        age("cow", 10);
        assert!(!is_up_to_date(&package, &program), "a source is newer");
        age("cow", 0);
        fs::write(path("Cargo.lock"), "").unwrap();
        File::options()
            .write(true)
            .open(path("Cargo.lock"))
            .unwrap()
            .set_modified(now + Duration::from_secs(9))
            .unwrap();
        assert!(!is_up_to_date(&package, &program), "a dependency changed");
        fs::remove_file(path("Cargo.lock")).unwrap();
        fs::remove_file(path("main.rs")).unwrap();
        assert!(!is_up_to_date(&package, &program), "a source was removed");
    }
}
