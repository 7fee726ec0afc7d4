//! `kubewright cluster --merge`: the context in the kubeconfig of the user.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::cluster::kubewright;

const OF_USER: &str = "\
# These lines are mine.
apiVersion: v1
kind: Config
current-context: work
clusters:
- name: work
  cluster: {server: \"https://127.0.0.1:1\"}
contexts:
- name: work
  context: {cluster: work, user: me}
users:
- name: me
  user: {token: secret}
";

/// A home directory with a kubeconfig.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.0.path().join(".kube")).unwrap();
        fs::write(home.config(), OF_USER).unwrap();
        home
    }

    fn config(&self) -> PathBuf {
        self.0.path().join(".kube/config")
    }

    /// Starts a cluster, and waits until it is ready.
    fn cluster(&self, arguments: &[&str]) -> Merged {
        let mut command = kubewright();
        command.args(["cluster", "--merge", "--pods", "simulate"]).args(arguments);
        let mut child = self.at_home(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("cluster ready in "), "{line:?}");
        Merged(child)
    }

    fn at_home(&self, mut command: Command) -> Command {
        command.env("HOME", self.0.path()).env("TMPDIR", self.0.path()).env_remove("KUBECONFIG");
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.args(arguments);
        let output = self.at_home(command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A running cluster.
struct Merged(Child);

impl Merged {
    fn stop(mut self) {
        let killed = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(killed.success() && self.0.wait().unwrap().success());
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter(|name| name != "cache").collect()
}

#[test]
fn kubectl_uses_the_cluster_until_it_ends() {
    let home = Home::new();
    let cluster = home.cluster(&[]);
    assert_eq!(home.kubectl(&["config", "current-context"]), "kubewright\n");
    assert_eq!(home.kubectl(&["get", "namespace", "default", "-o", "name"]), "namespace/default\n");
    cluster.stop();
    assert_eq!(fs::read_to_string(home.config()).unwrap(), OF_USER);
    assert_eq!(entries(&home.0.path().join(".kube")), ["config"]);
}

#[test]
fn changes_by_kubectl_survive() {
    let home = Home::new();
    let cluster = home.cluster(&["--context", "mine"]);
    home.kubectl(&["config", "set-context", "other", "--cluster=work", "--user=me"]);
    cluster.stop();
    assert_eq!(home.kubectl(&["config", "get-contexts", "-o", "name"]), "other\nwork\n");
    assert_eq!(home.kubectl(&["config", "current-context"]), "work\n");
    let cluster = home.cluster(&["--keep-context"]);
    assert_eq!(home.kubectl(&["config", "current-context"]), "work\n");
    home.kubectl(&["config", "use-context", "kubewright"]);
    home.kubectl(&["config", "use-context", "other"]);
    cluster.stop();
    assert_eq!(home.kubectl(&["config", "current-context"]), "other\n");
}

#[test]
fn the_next_cluster_removes_the_context_of_a_killed_one() {
    let home = Home::new();
    drop(home.cluster(&["--context", "killed"]));
    assert_eq!(home.kubectl(&["config", "current-context"]), "killed\n");
    let cluster = home.cluster(&["--context", "next"]);
    assert_eq!(home.kubectl(&["config", "get-contexts", "-o", "name"]), "next\nwork\n");
    cluster.stop();
    assert_eq!(home.kubectl(&["config", "current-context"]), "work\n");
    assert_eq!(home.kubectl(&["config", "get-contexts", "-o", "name"]), "work\n");
}

#[test]
fn the_context_of_another_cluster_is_not_replaced() {
    let home = Home::new();
    let cluster = home.cluster(&[]);
    for (name, says) in [("kubewright", "of a running cluster"), ("work", "that kubewright has not written")] {
        let mut command = kubewright();
        command.args(["cluster", "--merge", "--context", name]);
        let output = home.at_home(command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(says) && said.contains("choose another name with --context"), "{said}");
    }
    cluster.stop();
    assert_eq!(fs::read_to_string(home.config()).unwrap(), OF_USER);
}
