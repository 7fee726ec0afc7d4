//! Commands that others add: `kubewright foo` is the program `kubewright-foo` on the path.

use std::{ffi::OsString, io::ErrorKind, os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Error, Result, bail};

/// Where plugins find the command that called them.
const CALLER: &str = "KUBEWRIGHT";

/// Becomes the program of that name. It returns only if it can't.
pub(crate) fn run(line: &[OsString]) -> Result<()> {
    let Some((name, arguments)) = line.split_first() else { bail!("no command: see kubewright --help") };
    let name = name.to_string_lossy();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let unknown = || format!("there is no command {name:?}: see kubewright --help");
    if !is_name {
        bail!(unknown());
    }
    let program = format!("kubewright-{name}");
    let caller = std::env::current_exe().context("find this program")?;
    let error = Command::new(&program).args(arguments).env(CALLER, caller).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!("{}; a program {program} on the path would be one", unknown());
    }
    Err(Error::new(error).context(format!("run {program}")))
}
