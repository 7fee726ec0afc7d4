//! Passes options to the linker that make the program a tenth smaller and a quarter less resident, where the linker and
//! the system have them.

#![allow(clippy::print_stdout, reason = "build scripts talk to Cargo by standard output")]

use std::{
    env,
    ffi::OsString,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Functions with the same code are kept once. Rust doesn't promise that the addresses of functions differ.
const FOLD: &str = "-Wl,--icf=all";
/// The addresses that the system adjusts at the start are stored as a bitmap, which glibc reads since 2.36.
const PACK: &str = "-Wl,-z,pack-relative-relocs";
/// The script that places the functions together that `kubewright cluster` calls at its start and at rest.
/// `cargo xtask order` writes it.
const ORDER: &str = "order.ld";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let folds = pass(FOLD);
        pass(PACK);
        // GNU's linker, which can't fold functions, would place constants among the code.
        if let (true, Ok(folder)) = (folds, env::var("CARGO_MANIFEST_DIR")) {
            pass(&format!("-Wl,-T,{folder}/{ORDER}"));
        }
    }
}

/// Passes an option to the linker if it works. Returns whether it does.
fn pass(option: &str) -> bool {
    let works = works(option).unwrap_or_default();
    if works {
        println!("cargo::rustc-link-arg-bins={option}");
    }
    works
}

/// Returns whether an empty program that is linked with an option runs here. A program for another system doesn't.
fn works(option: &str) -> Option<bool> {
    let program = PathBuf::from(env::var_os("OUT_DIR")?).join("empty");
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.args(["-", "--crate-name=empty", "--target"]).arg(env::var_os("TARGET")?).arg("-o").arg(&program);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty())).arg(format!("-Clink-arg={option}"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("-Clinker=");
        argument.push(linker);
        rustc.arg(argument);
    }
    let mut child = rustc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    child.stdin.take()?.write_all(b"fn main() {}").ok()?;
    Some(child.wait().ok()?.success() && Command::new(program).status().ok()?.success())
}
