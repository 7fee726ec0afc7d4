//! Rendering a folder of a project by kustomize, which users have to keep their own changes in.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// The first kubectl whose kustomize knows folders among the resources, and patches with a target: before, it was 2.0.
const OLDEST: u32 = 21;

/// What `kustomize build` prints of a folder; that of kubectl if kustomize isn't there.
pub(crate) fn render(folder: &Path) -> Result<String> {
    if !folder.join("kustomization.yaml").is_file() {
        bail!("there is no kustomization.yaml in {}: take it from your version control", folder.display());
    }
    let mut by_kubectl = false;
    let output = match run("kustomize", &["build"], folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => match run("kubectl", &["kustomize"], folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "neither kustomize nor kubectl is there: install one of them (https://kubernetes.io/docs/tasks/tools)"
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
        let said = String::from_utf8_lossy(&output.stderr);
        let old = if by_kubectl { too_old() } else { String::new() };
        bail!("{} can't be rendered:\n{}{old}", folder.display(), said.trim_end());
    }
    String::from_utf8(output.stdout).context("understand what was rendered")
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(program).args(arguments).arg(folder).stdin(Stdio::null()).output()
}

/// What to do if that is what is wrong with kubectl.
fn too_old() -> String {
    let version = Command::new("kubectl").args(["version", "--client"]).stdin(Stdio::null()).output();
    match version.ok().and_then(|output| minor(&String::from_utf8_lossy(&output.stdout))) {
        Some(minor) if minor < OLDEST => format!(
            "\nkubectl 1.{minor} renders by a kustomize of 2019: install kubectl 1.{OLDEST} or newer, or kustomize \
             (https://kubernetes.io/docs/tasks/tools)"
        ),
        _ => String::new(),
    }
}

/// The number behind `v1.` in what kubectl says of its version.
fn minor(said: &str) -> Option<u32> {
    let (_, after) = said.split_once("v1.")?;
    after.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn versions_are_read_as_kubectl_has_told_them() {
        let old = r#"Client Version: version.Info{Major:"1", Minor:"20", GitVersion:"v1.20.2", GoVersion:"go1.19.8"}"#;
        for (said, expected) in
            [(old, Some(20)), ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", Some(32)), ("", None)]
        {
            assert_eq!(minor(said), expected, "{said}");
        }
    }
}
