//! Rendering of a directory of manifests with kustomize.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// The first minor version of kubectl whose kustomize supports directories as resources, and patches with a target.
/// Earlier ones contain version 2.0.
const OLDEST_KUBECTL: u32 = 21;

/// Returns the output of `kustomize build`, or of `kubectl kustomize` if kustomize is not installed.
pub(crate) fn render(folder: &Path) -> Result<String> {
    if !folder.join("kustomization.yaml").is_file() {
        bail!("{} has no kustomization.yaml: restore it from version control", folder.display());
    }
    let mut by_kubectl = false;
    let output = match run("kustomize", &["build"], folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => match run("kubectl", &["kustomize"], folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "neither kustomize nor kubectl is installed: install one of them (https://kubernetes.io/docs/tasks/tools)"
                )
            }
            output => {
                by_kubectl = true;
                output.context("start kubectl")?
            }
        },
        output => output.context("start kustomize")?,
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let hint = if by_kubectl { kubectl_hint() } else { String::new() };
        bail!("cannot render {}:\n{}{hint}", folder.display(), text.trim_end());
    }
    String::from_utf8(output.stdout).context("read the output of kustomize")
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(program).args(arguments).arg(folder).stdin(Stdio::null()).output()
}

/// Returns a hint if kubectl is too old.
fn kubectl_hint() -> String {
    let version = Command::new("kubectl").args(["version", "--client"]).stdin(Stdio::null()).output();
    match version.ok().and_then(|output| minor(&String::from_utf8_lossy(&output.stdout))) {
        Some(minor) if minor < OLDEST_KUBECTL => format!(
            "\nkubectl 1.{minor} includes kustomize 2.0: install kubectl 1.{OLDEST_KUBECTL} or newer, or kustomize \
             (https://kubernetes.io/docs/tasks/tools)"
        ),
        _ => String::new(),
    }
}

/// Parses the minor version in the output of `kubectl version`.
fn minor(text: &str) -> Option<u32> {
    let (_, after) = text.split_once("v1.")?;
    after.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn the_minor_version_of_kubectl_is_parsed() {
        let old = r#"Client Version: version.Info{Major:"1", Minor:"20", GitVersion:"v1.20.2", GoVersion:"go1.19.8"}"#;
        for (text, expected) in
            [(old, Some(20)), ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", Some(32)), ("", None)]
        {
            assert_eq!(minor(text), expected, "{text}");
        }
    }
}
