//! Plugins: `kubewright foo` runs the program `kubewright-foo` in `PATH`.

use std::{ffi::OsString, io::ErrorKind, os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Error, Result, bail};

/// The environment variable with the path of the command that runs a plugin.
const CALLER: &str = "KUBEWRIGHT";

/// Replaces this process with the plugin. Only returns if that fails.
pub(crate) fn run(line: &[OsString]) -> Result<()> {
    let Some((name, arguments)) = line.split_first() else { bail!("no command given: see kubewright --help") };
    let name = name.to_string_lossy();
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let unknown = || format!("unknown command {name:?}: see kubewright --help");
    if !is_name {
        bail!(unknown());
    }
    let program = format!("kubewright-{name}");
    let caller = std::env::current_exe().context("get the path of this program")?;
    let error = Command::new(&program).args(arguments).env(CALLER, caller).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!("{}; there is no plugin {program} in PATH either", unknown());
    }
    Err(Error::new(error).context(format!("run {program}")))
}
