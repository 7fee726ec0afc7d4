//! The target of a static program, which runs in an image without any other files.
//!
//! musl is linked statically by default, and its licence allows any use. Where the musl target is not installed or has
//! no C compiler, glibc is linked statically. Since version 2.34 it contains the lookup of names in files and by DNS,
//! which is all that a pod needs; other modules of nsswitch.conf are not available.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The compiler flag that links glibc statically.
pub(crate) const STATIC: &str = "target-feature=+crt-static";

/// The target that a program is built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The target triple.
    pub(crate) triple: String,
    /// Whether the C library is only linked statically with [`STATIC`].
    pub(crate) needs_static_flag: bool,
}

impl Target {
    /// Returns the requested target, or the best installed one.
    pub(crate) fn find(wanted: Option<&str>) -> Result<Self> {
        let (triple, needs_static_flag) =
            choose(&host()?, wanted, |triple| is_installed(triple) && has_compiler(triple));
        if !is_installed(&triple) {
            bail!("target {triple} is not installed: {}", install_hint(&triple));
        }
        Ok(Self { triple, needs_static_flag })
    }
}

/// Returns instructions for installing a target.
pub(crate) fn install_hint(triple: &str) -> String {
    format!(
        "run rustup target add {triple}, and install a C compiler for it: {}, or set CC_{}",
        compiler(triple),
        triple.replace('-', "_")
    )
}

fn choose(host: &str, wanted: Option<&str>, is_ready: impl Fn(&str) -> bool) -> (String, bool) {
    if let Some(wanted) = wanted {
        return (wanted.to_owned(), wanted.ends_with("-linux-gnu"));
    }
    let processor = host.split('-').next().unwrap_or(host);
    let musl = format!("{processor}-unknown-linux-musl");
    if host.ends_with("-linux-gnu") && !is_ready(&musl) { (host.to_owned(), true) } else { (musl, false) }
}

/// Returns the name of the C compiler that the `cc` crate looks for.
fn compiler(triple: &str) -> String {
    let processor = triple.split('-').next().unwrap_or(triple);
    match processor {
        processor if processor == std::env::consts::ARCH && triple.ends_with("-linux-musl") => {
            "musl-gcc (Debian's package musl-tools)".into()
        }
        _ => format!("{processor}-linux-{}-gcc", triple.rsplit('-').next().unwrap_or("musl")),
    }
}

fn has_compiler(triple: &str) -> bool {
    let named = [format!("CC_{triple}"), format!("CC_{}", triple.replace('-', "_")), "TARGET_CC".into()];
    let processor = triple.split('-').next().unwrap_or(triple);
    let on_path = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    named.iter().any(|name| std::env::var_os(name).is_some())
        || on_path("musl-gcc")
        || on_path(&format!("{processor}-linux-musl-gcc"))
}

fn host() -> Result<String> {
    let output = rustc(&["-vV"])?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV prints no host triple")
}

fn is_installed(triple: &str) -> bool {
    let folder = rustc(&["--print", "target-libdir", "--target", triple]);
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let output = Command::new(&program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {}: install Rust from https://rustup.rs", program.display()))?;
    if !output.status.success() {
        bail!("{} {}: {}", program.display(), arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn musl_is_preferred_where_it_is_installed() {
        let check = |host, wanted, ready| choose(host, wanted, |_| ready);
        let (gnu, musl) = ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl");
        assert_eq!(check(gnu, None, true), (musl.into(), false));
        assert_eq!(check(gnu, None, false), (gnu.into(), true));
        assert_eq!(check(musl, None, false), (musl.into(), false));
        assert_eq!(check("aarch64-apple-darwin", None, false), ("aarch64-unknown-linux-musl".into(), false));
        assert_eq!(check(gnu, Some("aarch64-unknown-linux-gnu"), true), ("aarch64-unknown-linux-gnu".into(), true));
        assert_eq!(check(gnu, Some(musl), false), (musl.into(), false));
    }

    #[test]
    fn the_error_for_a_missing_target_says_how_to_install_it() {
        let refused = Target::find(Some("riscv64gc-unknown-linux-musl")).unwrap_err().to_string();
        assert!(refused.contains("run rustup target add riscv64gc-unknown-linux-musl"), "{refused}");
        assert!(refused.contains("riscv64gc-linux-musl-gcc, or set CC_riscv64gc_unknown_linux_musl"), "{refused}");
        Target::find(Some(&host().unwrap())).unwrap();
    }
}
