//! `kubewright cluster`: its output, its help, its exit and its errors.

use std::{fs, net::TcpStream, process::Stdio, thread, time::Duration};

use crate::cluster::{TestCluster, kubewright};

/// `seconds` distinguishes the pods of concurrent tests.
fn check_end(signal: &str, seconds: &str) {
    let mut cluster = TestCluster::start(&["--pods", "run"]);
    let address = cluster.address();
    let command_line = format!("sleep\0{seconds}");
    cluster.kubectl(&["run", "sleeper", "--image=busybox", "--restart=Never", "--", "sleep", seconds]);
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "pod/sleeper"]);
    assert_eq!(processes(&command_line).len(), 1, "the pod is a process");

    let status = cluster.terminate(signal);
    assert!(status.success(), "{status}");
    assert!(!cluster.kubeconfig().exists(), "the kubeconfig is gone");
    assert!(TcpStream::connect(&address).is_err(), "the port is free");
    assert_eq!(processes(&command_line), Vec::<String>::new(), "no process is left");
}

/// Returns the command lines of all processes that start with `needle`, with NUL between the words.
fn processes(needle: &str) -> Vec<String> {
    let of_process = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("cmdline")).ok();
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| of_process(entry.ok()?));
    all.filter(|line| line.starts_with(needle)).collect()
}

#[test]
fn sigterm_leaves_nothing_behind() {
    check_end("-TERM", "4321");
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    check_end("-INT", "4322");
}

#[test]
fn closing_the_terminal_leaves_nothing_behind() {
    check_end("-HUP", "4323");
}

#[test]
fn the_next_cluster_removes_what_a_killed_one_left() {
    let temporary = tempfile::tempdir().unwrap();
    let inhabited = |seconds: &str| {
        let cluster = TestCluster::start_in(temporary.path(), &["--pods", "run"]);
        cluster.kubectl(&["run", "sleeper", "--image=busybox", "--restart=Never", "--", "sleep", seconds]);
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "pod/sleeper"]);
        cluster
    };
    let folders = || fs::read_dir(temporary.path()).unwrap().count();
    let _living = inhabited("4324");
    let mut killed = inhabited("4325");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_eq!((processes("sleep\x004325").len(), folders()), (1, 2), "SIGKILL leaves everything");

    let _next = TestCluster::start_in(temporary.path(), &["--pods", "run"]);
    for _ in 0..1000 {
        if processes("sleep\x004325").is_empty() && folders() == 2 {
            assert_eq!(processes("sleep\x004324").len(), 1, "who lives is left alone");
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("something is left: {} processes, {} folders", processes("sleep\x004325").len(), folders());
}

#[test]
fn the_first_line_has_the_start_time_and_the_kubeconfig() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    let line = cluster.ready_line.trim_end();
    let milliseconds = line.strip_prefix("cluster ready in ").and_then(|rest| rest.split_once(" ms ")).unwrap().0;
    assert!(milliseconds.parse::<u64>().is_ok(), "{line}");
    assert!(line.ends_with(&format!("KUBECONFIG={}", cluster.kubeconfig().display())), "{line}");
}

#[test]
fn a_cluster_without_a_node_has_controllers_alone() {
    let script = "kubectl get nodes --output name; kubectl get serviceaccount default --output name";
    let output = kubewright().args(["cluster", "--pods", "none", "--wait", "--", "sh", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "serviceaccount/default\n");
}

#[test]
fn a_port_in_use_is_an_error_with_a_hint() {
    let cluster = TestCluster::start(&[]);
    let output = kubewright().args(["cluster", "--listen", &cluster.address()]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with(&format!("error: listen on {}", cluster.address())), "{stderr}");
    assert!(stderr.contains("--listen"), "{stderr}");
}

#[test]
fn a_foreign_kubeconfig_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
    let output = kubewright().args(["cluster", "--kubeconfig"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("was not written by kubewright"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\nkind: Config\n");
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let status = kubewright().args(["cluster", "--pods", "maybe"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn ranges_of_addresses_need_a_network_that_has_them() {
    for (flag, range, code) in
        [("--pod-network-cidr", "10.244.0.0/16", 1), ("--service-cidr", "10.96.0.0/12", 1), ("--service-cidr", "10", 2)]
    {
        let output = kubewright().args(["cluster", flag, range]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(flag) && (code == 2 || stderr.contains("--pod-network namespaces")), "{stderr}");
    }
}

#[test]
fn only_loopback_addresses_are_served() {
    for (address, says) in [
        ("0.0.0.0:0", "serves loopback addresses only: use 127.0.0.1"),
        ("6443", "such as 127.0.0.1:6443"),
        ("", "such as"),
    ] {
        let output = kubewright().args(["cluster", "--listen", address]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && stderr.contains("--listen") && stderr.contains(says), "{stderr}");
    }
    let cluster = TestCluster::start(&["--listen", "localhost:0"]);
    assert!(cluster.address().starts_with("127.0.0.1:"), "{}", cluster.address());
}

#[test]
fn help_has_examples() {
    let output = kubewright().args(["cluster", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && help.contains("Examples:") && help.contains("kubectl get pods"), "{help}");
}
