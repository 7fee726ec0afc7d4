//! Passes options to the linker that make the program a tenth smaller and a third less resident, where the linker and the system have them.

#![allow(clippy::print_stdout, reason = "build scripts talk to Cargo by standard output")]

use std::{
    env,
    ffi::OsString,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

const OPTIONS: [&str; 2] = [
    // Functions with the same code are kept once. Rust doesn't promise that the addresses of functions differ.
    "-Wl,--icf=all",
    // The addresses that the system adjusts at the start are stored as a bitmap, which glibc reads since 2.36.
    "-Wl,-z,pack-relative-relocs",
];

/// The script that places the functions together that `kubewright cluster` calls at its start and at rest. `cargo xtask order` writes it.
const ORDER: &str = "order.ld";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let order = env::var("CARGO_MANIFEST_DIR").map(|folder| format!("-Wl,-T,{folder}/{ORDER}"));
    for option in OPTIONS.into_iter().map(str::to_owned).chain(order) {
        if is_release && works(&option).unwrap_or_default() {
            println!("cargo::rustc-link-arg-bins={option}");
        }
    }
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
