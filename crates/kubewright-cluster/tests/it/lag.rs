//! Controllers that fall behind the feed restart from a snapshot and miss nothing.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;

use crate::{background, config_maps, is_running, pod, pods};

/// More changes at once than the server keeps.
const MANY: usize = 30;

async fn forgetful(pods: Pods) -> Cluster {
    Cluster::builder().pods(pods).history(8).start().await.expect("a cluster")
}

/// Creates pods owned by a config map without letting any other task run, and deletes the owner likewise.
async fn live_and_die(cluster: &Cluster, command: &str) {
    let owner: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}})).expect("a map");
    let owner = config_maps(cluster).create(&PostParams::default(), &owner).await.expect("created");
    let owned = |index: usize| {
        let mut pod = pod(&format!("p{index}"), command, json!({}));
        pod.metadata.owner_references = Some(vec![owner.owner_ref(&()).expect("a reference")]);
        pod
    };
    let (api, params) = (pods(cluster), PostParams::default());
    let all: Vec<_> = (0..MANY).map(owned).collect();
    for created in join_all(all.iter().map(|pod| api.create(&params, pod))).await {
        created.expect("created");
    }
    let run = |pods: &[&Pod]| pods.len() == MANY && pods.iter().all(|pod| is_running(pod));
    cluster.expect::<Pod>(run).await.expect("all run");
    let none = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let names: Vec<_> = all[..MANY / 2].iter().map(ResourceExt::name_any).collect();
    for deleted in join_all(names.iter().map(|name| api.delete(name, &none))).await {
        deleted.expect("deleted");
    }
    config_maps(cluster).delete("owner", &background()).await.expect("deleted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("all gone");
}

#[tokio::test(start_paused = true)]
async fn simulated_pods() {
    let cluster = forgetful(Pods::Simulate).await;
    live_and_die(&cluster, "sleep 1000").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn processes() {
    let cluster = forgetful(Pods::Run).await;
    let folder = tempfile::tempdir().expect("a folder");
    let command = format!("echo $$$$ > {}/$HOSTNAME; exec sleep 1000", folder.path().display());
    live_and_die(&cluster, &command).await;
    for entry in std::fs::read_dir(folder.path()).expect("the folder") {
        let id = std::fs::read_to_string(entry.expect("a file").path()).expect("an id");
        ended(id.trim()).await;
    }
    cluster.shutdown().await;
}

/// Waits until a process has ended.
async fn ended(id: &str) {
    let process = std::path::Path::new("/proc").join(id);
    for _ in 0..500 {
        if !process.exists() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the process {id} lives on");
}
