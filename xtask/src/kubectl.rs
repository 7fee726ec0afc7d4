//! Making sure that there is a kubectl: the one on the path, else Debian's.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The Debian package that holds kubectl.
const PACKAGE: &str = "kubernetes-client";

/// Succeeds once `kubectl version --client` runs.
pub(crate) fn ensure() -> Result<()> {
    if let Some(version) = version() {
        eprintln!("    {version}");
        return Ok(());
    }
    if !is_root() || !has("apt-get") {
        bail!(
            "kubectl is not on the path. Install it (https://kubernetes.io/docs/tasks/tools/), \
             or as root on Debian: apt-get install {PACKAGE}"
        );
    }
    eprintln!("    not on the path: installing Debian's {PACKAGE}");
    apt_get(&["update", "--quiet"])?;
    apt_get(&["install", "--yes", "--quiet", "--no-install-recommends", PACKAGE])?;
    let version = version().context("kubectl still does not run after its installation")?;
    eprintln!("    {version}");
    Ok(())
}

fn version() -> Option<String> {
    let output = Command::new("kubectl").args(["version", "--client"]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .context("start apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
