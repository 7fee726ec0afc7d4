//! Asking a program what it would do.
//!
//! A program that doesn't know the question would begin to work. So it is given a cluster at which nobody answers, and little time.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::description::{Description, VARIABLE};
use tokio::{process::Command, time::timeout};

/// How long a program may take to describe itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nobody answers there: port 1 of this machine is for the superuser alone, and nothing uses it.
const NOWHERE: &str = "\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: nobody, user: {}}]
";

/// What to do about a program that says nothing.
const REMEDY: &str = "its main must come to Manager::run, of a kubewright that knows KUBEWRIGHT_DESCRIBE";

/// What an operator's program says of itself.
pub(crate) async fn ask(program: &Path) -> Result<Description> {
    let folder = tempfile::tempdir().context("make a folder for the description")?;
    let (answer, kubeconfig) = (folder.path().join("description"), folder.path().join("kubeconfig"));
    fs::write(&kubeconfig, NOWHERE).context("write a kubeconfig for the operator")?;
    let mut command = Command::new(program);
    command.env(VARIABLE, &answer).env("KUBECONFIG", &kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let name = program.display();
    let output = match timeout(PATIENCE, command.output()).await {
        Err(_) => bail!("{name} has not described itself within {} s: {REMEDY}", PATIENCE.as_secs()),
        Ok(output) => output.with_context(|| format!("start {name}"))?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim_end();
    if !output.status.success() {
        bail!("{name} failed when it was to describe itself ({}); it said:\n{said}", output.status);
    }
    let Ok(text) = fs::read_to_string(&answer) else {
        bail!("{name} has not described itself: {REMEDY}. It said:\n{said}");
    };
    Description::read(&text).with_context(|| format!("read the description of {name}"))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;

    /// A program that does this.
    fn program(folder: &tempfile::TempDir, script: &str) -> PathBuf {
        let path = folder.path().join("cow");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    async fn refused(script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        format!("{:#}", ask(&program(&folder, script)).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_program_that_says_nothing_is_told_of() {
        assert!(refused("echo hello >&2").await.contains("has not described itself: its main must"));
        let failed = refused("echo 'no such file' >&2; exit 3").await;
        assert!(failed.contains("exit status: 3") && failed.ends_with("no such file"), "{failed}");
        let newer = refused(r#"echo '{"version": 9}' > "$KUBEWRIGHT_DESCRIBE""#).await;
        assert!(newer.ends_with("use a newer kubewright"), "{newer}");
    }

    #[tokio::test]
    async fn a_program_finds_no_cluster_while_it_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"grep -q 127.0.0.1:1 "$KUBECONFIG" && echo '{"version": 1}' > "$KUBEWRIGHT_DESCRIBE""#;
        assert_eq!(ask(&program(&folder, script)).await.unwrap().version, 1);
    }
}
