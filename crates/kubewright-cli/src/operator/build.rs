//! Building an operator's program, unless that was done.
//!
//! A `cargo build` that finds nothing to do takes a second in a large tree, so it is looked first whether there is something to do: whether
//! a file that cargo says the program was made of is younger than the program. What was changed while another cargo was building is missed
//! by that; the next change is not.

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
    target::{STATIC, Target},
};
use crate::shell::Shell;

/// A line of what cargo says of a build.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    target: Made,
    executable: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
struct Made {
    name: String,
}

/// The program of an operator, which is built unless it is up to date.
pub(crate) fn build(package: &Package, shell: &Shell) -> Result<PathBuf> {
    match fresh(package) {
        Some(program) => Ok(program),
        None => run_cargo(package, cargo_build(package), shell),
    }
}

/// The program of an operator, if it is up to date.
pub(crate) fn fresh(package: &Package) -> Option<PathBuf> {
    Some(package.usual()).filter(|program| is_fresh(package, program))
}

/// The command that builds the program of an operator. It tells people of it by standard error, and [`program_of`] by standard output.
pub(crate) fn cargo_build(package: &Package) -> Command {
    let mut command = cargo(&package.folder);
    command.args(["build", MESSAGES, "--bin", &package.program]);
    command
}

/// How cargo tells people what concerns them, and programs what concerns those.
const MESSAGES: &str = "--message-format=json-render-diagnostics";

/// The program of an operator, optimised and static: what an image is made of. Cargo decides whether there is something to do.
pub(crate) fn build_static(package: &Package, target: &Target, profile: &str, shell: &Shell) -> Result<PathBuf> {
    let mut command = cargo(&package.folder);
    if target.is_told {
        // Cargo takes flags from one place only, and from the environment first.
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
    // Said even for this machine's own target: else the flags would be those of build scripts and macros, too.
    command.args(["build", MESSAGES, "--bin", &package.program, "--profile", profile, "--target", &target.triple]);
    run_cargo(package, command, shell)
}

fn run_cargo(package: &Package, mut command: Command, shell: &Shell) -> Result<PathBuf> {
    shell.status("Building", &package.program);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("start cargo")?;
    if !output.status.success() {
        bail!("{} can't be built: see above", package.program);
    }
    program_of(package, &output.stdout)
}

/// Where cargo says that it has put a program.
pub(crate) fn program_of(package: &Package, said: &[u8]) -> Result<PathBuf> {
    let text = String::from_utf8_lossy(said);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let mut built = messages.filter(|message| message.reason == "compiler-artifact");
    let program = built.find_map(|message| message.executable.filter(|_| message.target.name == package.program));
    program.with_context(|| format!("cargo has built no program {}", package.program))
}

/// Whether a program is younger than all it was made of.
fn is_fresh(package: &Package, program: &Path) -> bool {
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
    /// Where its program is after a build for development, if cargo isn't told to put it elsewhere.
    fn usual(&self) -> PathBuf {
        self.target.join("debug").join(&self.program)
    }

    /// The files that its program was made of when it was built last; none if it never was.
    pub(crate) fn sources(&self) -> Vec<PathBuf> {
        sources(&self.usual()).unwrap_or_default()
    }
}

fn sources(program: &Path) -> Option<Vec<PathBuf>> {
    // Cargo keeps it beside the program, with the extension in the place of the program's own.
    fs::read_to_string(program.with_extension("d")).ok().map(|text| sources_of(&text))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// What a program was made of, as cargo writes it for make: one line, with blanks between, and those in names behind a backslash.
fn sources_of(text: &str) -> Vec<PathBuf> {
    let line = text.lines().next().unwrap_or_default();
    let Some((_, sources)) = line.split_once(": ") else { return Vec::new() };
    // No name has a NUL.
    let names = sources.trim_end().replace("\\ ", "\0");
    names.split(' ').filter(|name| !name.is_empty()).map(|name| PathBuf::from(name.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn names_with_blanks_are_read() {
        let found = sources_of("/t/debug/cow: /a/src/lib.rs /my\\ work/main.rs /c\n");
        assert_eq!(found, ["/a/src/lib.rs", "/my work/main.rs", "/c"].map(PathBuf::from));
        assert_eq!(sources_of("no such line"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_program_is_fresh_until_something_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let package = Package {
            folder: path("."),
            name: "cow".into(),
            version: "0.1.0".into(),
            program: "cow".into(),
            root: path("."),
            target: path("target"),
        };
        let program = path("cow");
        assert!(!is_fresh(&package, &program), "there is none");
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
        assert!(!is_fresh(&package, &program), "nobody knows what of");
        fs::write(path("cow.d"), format!("{}: {}\n", program.display(), path("main.rs").display())).unwrap();
        assert!(is_fresh(&package, &program));
        age("cow", 10);
        assert!(!is_fresh(&package, &program), "a source is younger");
        age("cow", 0);
        fs::write(path("Cargo.lock"), "").unwrap();
        File::options()
            .write(true)
            .open(path("Cargo.lock"))
            .unwrap()
            .set_modified(now + Duration::from_secs(9))
            .unwrap();
        assert!(!is_fresh(&package, &program), "a dependency is another");
        fs::remove_file(path("Cargo.lock")).unwrap();
        fs::remove_file(path("main.rs")).unwrap();
        assert!(!is_fresh(&package, &program), "a source is gone");
    }
}
