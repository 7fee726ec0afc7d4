//! Clusters that are kept in a data directory.

use std::path::Path;

use kubewright_cluster::{Cluster, StartError};
use serde_json::json;

use crate::{create, is_running, pod, pods, until};

async fn start(path: &Path) -> Cluster {
    Cluster::builder().data_dir(path).start().await.expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_continues_like_a_machine_that_was_restarted() {
    let directory = tempfile::tempdir().expect("a folder");
    let cluster = start(directory.path()).await;
    let endpoint = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
    create(&cluster, &pod("web", "sleep 1000", json!({"restartPolicy": "Always"}))).await;
    create(&cluster, &pod("once", "sleep 1000", json!({}))).await;
    let before = until(&cluster, "web", is_running).await;
    until(&cluster, "once", is_running).await;
    let error = Cluster::builder().data_dir(directory.path()).start().await.expect_err("it is in use");
    assert!(matches!(error, StartError::DataDir(_)) && error.to_string().contains("in use by process"), "{error}");
    cluster.shutdown().await;

    let cluster = start(directory.path()).await;
    let again = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
    assert_eq!((again.address(), again.token()), (endpoint.address(), endpoint.token()));
    assert_eq!(again.kubeconfig(), endpoint.kubeconfig());
    let restarted = |pod: &k8s_openapi::api::core::v1::Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        is_running(pod) && statuses.into_iter().all(|status| status.restart_count == 1)
    };
    let after = until(&cluster, "web", restarted).await;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    let ended = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    until(&cluster, "once", ended).await;
    assert_eq!(pods(&cluster).list(&Default::default()).await.expect("a list").items.len(), 2);
    cluster.shutdown().await;
}
