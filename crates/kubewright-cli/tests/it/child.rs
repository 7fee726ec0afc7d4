//! `kubewright cluster -- COMMAND`: a command with a cluster of its own.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::cluster::{kubewright, line_until, lines_of};

/// Runs a shell script beside a cluster.
fn run(script: &str) -> Output {
    kubewright().args(["cluster", "--wait", "--", "sh", "-c", script]).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_command_has_a_cluster_that_is_ready() {
    let script = "kubectl get serviceaccount default -o name
        kubectl get node -o jsonpath='{.items[0].status.conditions[?(@.type==\"Ready\")].status} '
        kubectl config current-context
        echo ${KUBERNETES_SERVICE_HOST:-unset} $KUBECONFIG";
    let said = stdout(&run(script));
    let (lines, kubeconfig) = said.trim_end().rsplit_once(' ').unwrap();
    assert_eq!(lines, "serviceaccount/default\nTrue kubewright\nunset");
    assert!(!Path::new(kubeconfig).parent().unwrap().exists(), "{kubeconfig} is removed");
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    for (script, code) in [("true", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        assert_eq!(run(script).status.code(), Some(code), "{script}");
    }
    let output = kubewright().args(["cluster", "--", "/nowhere/at-all"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("error: run /nowhere/at-all: "), "{said}");
}

#[test]
fn signals_reach_the_command_and_the_cluster_outlives_it() {
    for signal in ["TERM", "INT", "HUP", "USR1"] {
        let script =
            format!("trap 'kubectl get node -o name; exit 9' {signal}; echo ready; while :; do sleep 0.05; done");
        // A session of its own: without a terminal every signal is forwarded. SIGHUP is reset, as nohup ignores it.
        let mut child = Command::new("setsid")
            .args(["--wait", "env", "--default-signal=HUP,INT"])
            .args(["sh", "-c", "echo $$; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kubewright"), "cluster", "--"])
            .args(["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let id = line_until(&lines, |line| line == "ready").remove(0);
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        let said = line_until(&lines, |line| line.starts_with("node/"));
        assert_eq!(said.len(), 1, "{signal}: {said:?}");
        assert_eq!(child.wait().unwrap().code(), Some(9), "{signal}");
    }
}

#[test]
fn a_namespace_is_created_for_the_command() {
    let script = "kubectl get serviceaccount default -o jsonpath={.metadata.namespace}; kubectl config view \
        --minify -o jsonpath='{\" \"}{.contexts[0].name}'";
    let output = kubewright()
        .args(["cluster", "--namespace", "shop", "--context", "mine", "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "shop mine");
    let output = kubewright().args(["cluster", "--namespace", "No_Name", "--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("error: create the namespace No_Name") && said.contains("--namespace"), "{said}");
}

#[test]
fn help_has_an_example_of_a_command() {
    let help = stdout(&kubewright().args(["cluster", "--help"]).output().unwrap());
    assert!(help.contains("kubewright cluster --wait -- pytest"), "{help}");
}

#[test]
fn an_api_server_alone_has_no_node() {
    let script =
        "kubectl get nodes,pods,serviceaccounts --all-namespaces --output name; kubectl get namespaces --output name";
    let output = kubewright().args(["cluster", "--api-only", "--wait", "--", "sh", "-c", script]).output().unwrap();
    let namespaces =
        ["default", "kube-node-lease", "kube-public", "kube-system"].map(|name| format!("namespace/{name}"));
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), namespaces);
    let output = kubewright().args(["cluster", "--controllers=-jobs", "--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("no controller is called \"jobs\"") && said.contains("job-controller"), "{said}");
}
