//! Rendering a folder of a project by kustomize, which users have to keep their own changes in.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// What `kustomize build` prints of a folder; that of kubectl if kustomize isn't there.
pub(crate) fn render(folder: &Path) -> Result<String> {
    if !folder.join("kustomization.yaml").is_file() {
        bail!("there is no kustomization.yaml in {}: take it from your version control", folder.display());
    }
    let output = match run("kustomize", &["build"], folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => match run("kubectl", &["kustomize"], folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "neither kustomize nor kubectl is there: install one of them (https://kubernetes.io/docs/tasks/tools)"
                )
            }
            output => output.context("start kubectl")?,
        },
        output => output.context("start kustomize")?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} can't be rendered:\n{}", folder.display(), said.trim_end());
    }
    String::from_utf8(output.stdout).context("understand what was rendered")
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(program).args(arguments).arg(folder).stdin(Stdio::null()).output()
}
