//! The placement of functions in the program of an operator: those that an operator calls at its start and at rest come
//! first.
//!
//! The system maps 64 KiB of a program around each address that runs (`fault_around_bytes` of Linux). Where the
//! functions that run are spread over the program, nearly all of it becomes resident. `functions.txt` lists them for
//! the linker, if that is lld.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::Package;

/// The beginnings of the names of functions, and members of the C library. Written by `cargo xtask order`.
const FUNCTIONS: &str = include_str!("functions.txt");
/// The prefix of lines that name members of the C library.
const LIBRARY: &str = "libc.a:";
/// The option by which addresses that the system adjusts at the start are stored as a bitmap. glibc reads it since
/// 2.36, musl since 1.2.4.
const PACK: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// The default of lld, which GNU's linker rejects: with the script, that one would place constants among the functions.
const LLD_ONLY: &str = "-Clink-arg=-Wl,--icf=none";
/// The manifest of the program that is linked to find out which options the linker accepts.
const MANIFEST: &str = "[package]\nname = \"empty\"\nedition = \"2024\"\n[workspace]\n";

/// Returns the options of the compiler that place the functions and pack relocations. Omits those that the project's
/// linker rejects, or with which a program doesn't run.
///
/// `build` returns a cargo command without its subcommand, with the flags for the target.
pub(super) fn options(package: &Package, target: &str, build: impl Fn() -> Command) -> Result<Vec<String>> {
    let folder = package.target.join("kubewright");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let script = script(&package.local);
    // Cargo links a program again if its options change. It doesn't look into files.
    let mut hasher = DefaultHasher::new();
    script.hash(&mut hasher);
    let file = folder.join(format!("functions-{:016x}.ld", hasher.finish()));
    fs::write(&file, script).with_context(|| format!("write {}", file.display()))?;
    let place = format!("-Clink-arg=-Wl,-T,{}", file.display());
    let empty = EmptyProgram::create()?;
    let place = vec![LLD_ONLY.to_owned(), place];
    let both = place.iter().cloned().chain([PACK.to_owned()]).collect();
    for options in [both, place] {
        if empty.runs(build(), target, &options)? {
            return Ok(options);
        }
    }
    Ok(Vec::new())
}

/// Returns a script that places the functions before the others, and after them those of the project's crates and of
/// the C library.
fn script(local: &[String]) -> String {
    let lines = || FUNCTIONS.lines().filter(|line| !line.starts_with('#'));
    let mut text = String::from("SECTIONS {\n  .text : {\n    *(\n");
    for name in lines().filter(|line| !line.starts_with(LIBRARY)) {
        text += &format!("      .text.{name}*\n");
    }
    text += "    )\n    *(\n";
    for name in local.iter().filter(|name| !name.starts_with("kubewright")) {
        // In a path, a crate's name has a length before it, and another length or a letter behind it; among types, `$`
        // and dots.
        let name = name.replace('-', "_");
        text += &format!("      .text.*[0-9]{name}[0-9A-Z]*\n      .text.*${name}..*\n");
    }
    // Cryptography in assembly has no section for each function.
    text += "    )\n    *libring-*(.text)\n";
    for member in lines().filter(|line| line.starts_with(LIBRARY)) {
        text += &format!("    *{member}(.text .text.*)\n");
    }
    text + "    *(.text .text.*)\n  }\n} INSERT AFTER .eh_frame;\n"
}

/// A package with an empty program, in a directory of its own.
struct EmptyProgram(tempfile::TempDir);

impl EmptyProgram {
    fn create() -> Result<Self> {
        let folder = tempfile::tempdir().context("create a temporary directory")?;
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        write("Cargo.toml", MANIFEST)
            .and_then(|()| fs::create_dir(folder.path().join("src")))
            .context("create a package")?;
        write("src/main.rs", "fn main() {}\n").context("create a package")?;
        Ok(Self(folder))
    }

    /// Builds the program with the configuration of the project. Returns whether that succeeds, and whether the program
    /// runs unless it is one for another processor.
    fn runs(&self, mut cargo: Command, target: &str, options: &[String]) -> Result<bool> {
        let folder = self.0.path();
        cargo
            .args(["rustc", "--quiet", "--offline", "--target", target, "--manifest-path"])
            .arg(folder.join("Cargo.toml"));
        cargo.arg("--target-dir").arg(folder.join("target")).arg("--").args(options);
        let quiet = |command: &mut Command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        if !quiet(&mut cargo) {
            return Ok(false);
        }
        let program = folder.join("target").join(target).join("debug/empty");
        Ok(!is_for_this_machine(target) || quiet(&mut Command::new(program)))
    }
}

fn is_for_this_machine(target: &str) -> bool {
    cfg!(target_os = "linux") && target.contains("-linux-") && target.starts_with(std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_functions_and_the_crates_of_the_project() {
        let local = ["my-operator", "kubewright-runtime"].map(str::to_owned);
        let script = script(&local);
        assert!(script.contains("\n      .text._ZN18kubewright_runtime7manager"), "functions of the runtime");
        assert!(
            script.contains(
                "\n    )\n    *(\n      .text.*[0-9]my_operator[0-9A-Z]*\n      .text.*$my_operator..*\n    )\n"
            ),
            "its own crates, without the SDK's"
        );
        assert!(script.contains("\n    *libc.a:malloc.o(.text .text.*)\n"), "members of the C library");
        assert!(!script.contains('#'), "no comments of the list");
    }
}
