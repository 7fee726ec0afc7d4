//! Querying a program for its description: the kinds, permissions and webhooks of an operator.
//!
//! A program that does not support `KUBEWRIGHT_DESCRIBE` would start to run instead. It therefore gets a kubeconfig for
//! a cluster that never answers, and is killed after a timeout.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::description::{Description, VARIABLE};
use tokio::{process::Command, time::timeout};

/// The timeout for a program to describe itself.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A kubeconfig without a usable cluster: only root can listen on port 1, and nothing uses that port.
const NO_CLUSTER: &str = "\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: nobody, user: {}}]
";

/// The end of the error message for a program without a description.
const HINT: &str =
    "its main function must call Manager::run, of a kubewright version that supports KUBEWRIGHT_DESCRIBE";

/// Runs a program and returns its description.
pub(crate) async fn describe(program: &Path) -> Result<Description> {
    let directory = tempfile::tempdir().context("create a directory for the description")?;
    let (answer, kubeconfig) = (directory.path().join("description"), directory.path().join("kubeconfig"));
    fs::write(&kubeconfig, NO_CLUSTER).context("write a kubeconfig for the operator")?;
    let mut command = Command::new(program);
    command.env(VARIABLE, &answer).env("KUBECONFIG", &kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let name = program.display();
    let output = match timeout(TIMEOUT, command.output()).await {
        Err(_) => bail!("{name} did not describe itself within {}s: {HINT}", TIMEOUT.as_secs()),
        Ok(output) => output.with_context(|| format!("start {name}"))?,
    };
    let printed = String::from_utf8_lossy(&output.stderr);
    let printed = printed.trim_end();
    if !output.status.success() {
        bail!("{name} failed to describe itself ({}):\n{printed}", output.status);
    }
    let Ok(text) = fs::read_to_string(&answer) else {
        bail!("{name} did not describe itself: {HINT}; it printed:\n{printed}");
    };
    Description::read(&text).with_context(|| format!("read the description of {name}"))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;

    /// A shell script as a program.
    fn program(directory: &tempfile::TempDir, script: &str) -> PathBuf {
        let path = directory.path().join("cow");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    async fn error_of(script: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        format!("{:#}", describe(&program(&directory, script)).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_program_without_a_description_is_an_error() {
        assert!(error_of("echo hello >&2").await.contains("did not describe itself: its main function must"));
        let failed = error_of("echo 'no such file' >&2; exit 3").await;
        assert!(failed.contains("exit status: 3") && failed.ends_with("no such file"), "{failed}");
        let newer = error_of(r#"echo '{"version": 9}' > "$KUBEWRIGHT_DESCRIBE""#).await;
        assert!(newer.ends_with("use a newer kubewright"), "{newer}");
    }

    #[tokio::test]
    async fn a_program_has_no_cluster_while_it_describes_itself() {
        let directory = tempfile::tempdir().unwrap();
        let script = r#"grep -q 127.0.0.1:1 "$KUBECONFIG" && echo '{"version": 1}' > "$KUBEWRIGHT_DESCRIBE""#;
        assert_eq!(describe(&program(&directory, script)).await.unwrap().version, 1);
    }
}
