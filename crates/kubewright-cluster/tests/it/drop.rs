//! Dropped and shut-down clusters leave nothing behind.

use std::path::{Path, PathBuf};

use kube::api::LogParams;
use kubewright_cluster::Cluster;
use serde_json::json;

use crate::{create, is_running, pod, pods, running, until};

/// Starts a pod with two children, one of which leaves the process group, and returns the processes and the node's
/// directory.
async fn inhabited() -> (Cluster, Vec<PathBuf>, PathBuf) {
    let cluster = running().await;
    let command =
        "sleep 1000 & a=$!; setsid sleep 1000 & echo $$$$ $a $!; pwd; trap '' TERM; while true; do sleep 0.05; done";
    create(&cluster, &pod("web", command, json!({}))).await;
    until(&cluster, "web", is_running).await;
    let log = loop {
        let log = pods(&cluster).logs("web", &LogParams::default()).await.expect("a log");
        if log.lines().count() == 2 {
            break log;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let (ids, directory) = log.split_once('\n').expect("two lines");
    let processes: Vec<_> = ids.split_whitespace().map(|id| Path::new("/proc").join(id)).collect();
    assert!(processes.len() == 3 && processes.iter().all(|process| process.exists()));
    let directory = Path::new(directory.trim()).ancestors().nth(2).expect("the node's directory").to_owned();
    assert!(directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubewright-")));
    (cluster, processes, directory)
}

/// Returns whether a process runs. A zombie doesn't.
fn runs(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_leaves_nothing() {
    let (cluster, processes, directory) = inhabited().await;
    let endpoint = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
    let address = endpoint.address();
    drop(cluster);
    assert!(!runs(&processes[0]), "the process is killed before the drop returns");
    assert!(!directory.exists(), "and so is its directory");
    for _ in 0..500 {
        let closed = tokio::net::TcpStream::connect(address).await.is_err();
        if closed && !processes.iter().any(|process| runs(process)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("something is left");
}

#[tokio::test]
async fn shutting_down_leaves_nothing() {
    let (cluster, processes, directory) = inhabited().await;
    cluster.shutdown().await;
    assert!(!runs(&processes[0]));
    assert!(!directory.exists());
    all_end(&processes);
}

#[test]
fn dropping_after_the_runtime_leaves_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (cluster, processes, directory) = runtime.block_on(inhabited());
    drop(runtime);
    drop(cluster);
    assert!(!runs(&processes[0]));
    assert!(!directory.exists());
    all_end(&processes);
}

/// Waits until killed processes have ended; those that aren't children of the node take a moment.
fn all_end(processes: &[PathBuf]) {
    for _ in 0..500 {
        if !processes.iter().any(|process| runs(process)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("a process lives on");
}
