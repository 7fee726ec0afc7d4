//! The content and paths of a container's volumes.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{config_maps, create, phase, pod, pods, running, until, waiting_reason};

fn container(name: &str, command: &str, mounts: Value) -> Value {
    json!({"name": name, "image": "busybox", "command": ["sh", "-c", command], "volumeMounts": mounts})
}

async fn config_map(cluster: &Cluster, name: &str) {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"COLOR": "red"}})).expect("a map");
    config_maps(cluster).create(&PostParams::default(), &map).await.expect("created");
}

async fn wait_for_event(cluster: &Cluster, reason: &str, message: &str) {
    let says = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.message.as_deref().unwrap_or_default().contains(message)
    };
    cluster.expect::<Event>(|events| events.iter().any(|event| says(event))).await.expect("an event");
}

#[tokio::test]
async fn files_are_found_below_the_root() {
    let cluster = running().await;
    config_map(&cluster, "settings").await;
    let secret = serde_json::from_value(json!({"metadata": {"name": "keys"}, "stringData": {"token": "s3cret"}}));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    secrets.create(&PostParams::default(), &secret.expect("a secret")).await.expect("created");
    let field = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let sources = json!([{"configMap": {"name": "settings"}}, {"downwardAPI": {"items": [field]}}]);
    let command = "cd $KUBEWRIGHT_ROOT && cat etc/config/COLOR && echo && cat run/keys/token && echo && cat all/* && echo && \
                   cat color";
    let mounts = json!([{"name": "config", "mountPath": "/etc/config"}, {"name": "keys", "mountPath": "/run/keys"},
        {"name": "all", "mountPath": "/all"}, {"name": "config", "mountPath": "/color", "subPath": "COLOR"}]);
    let spec = json!({
        "containers": [container("main", command, mounts)],
        "volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "all", "projected": {"sources": sources}}],
    });
    create(&cluster, &pod("reader", "", spec)).await;
    until(&cluster, "reader", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    let text = pods(&cluster).logs("reader", &LogParams::default()).await.expect("a log");
    assert_eq!(text, "red\ns3cret\nredreader\nred\n");
    wait_for_event(&cluster, "VolumesElsewhere", "Container main has /etc/config, /run/keys, /all, /color below ")
        .await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_empty_directory_is_shared_and_outlives_a_container() {
    let cluster = running().await;
    let at = |path: &str| json!([{"name": "shared", "mountPath": path}]);
    let main = "test -e $KUBEWRIGHT_ROOT/in/second && cat $KUBEWRIGHT_ROOT/in/* && exit 0; touch $KUBEWRIGHT_ROOT/in/second; exit 1";
    let spec = json!({
        "restartPolicy": "OnFailure",
        "initContainers": [container("before", "echo hello > $KUBEWRIGHT_ROOT/out/first", at("/out"))],
        "containers": [container("main", main, at("/in"))],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    create(&cluster, &pod("sharing", "", spec)).await;
    let ended = until(&cluster, "sharing", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(crate::node::container(&ended).restart_count, 1);
    let log = LogParams { container: Some("main".into()), ..LogParams::default() };
    assert_eq!(pods(&cluster).logs("sharing", &log).await.expect("a log"), "hello\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn missing_sources_are_waited_for_and_unsupported_volumes_are_reported() {
    let cluster = running().await;
    let mounts = || json!([{"name": "v", "mountPath": "/v"}]);
    let spec = json!({"containers": [container("main", "test $(cat $KUBEWRIGHT_ROOT/v/COLOR) = red", mounts())],
        "volumes": [{"name": "v", "configMap": {"name": "later"}}]});
    create(&cluster, &pod("waits", "", spec)).await;
    let gone = "MountVolume.SetUp failed for volume \"v\" : configmap \"later\" not found";
    wait_for_event(&cluster, "FailedMount", gone).await;
    until(&cluster, "waits", |pod| waiting_reason(pod) == "ContainerCreating").await;
    config_map(&cluster, "later").await;
    until(&cluster, "waits", |pod| phase(pod) == "Succeeded").await;

    let remote = json!({"name": "v", "nfs": {"server": "s", "path": "/"}});
    let spec = json!({"containers": [container("main", "true", mounts())], "volumes": [remote]});
    create(&cluster, &pod("remote", "", spec)).await;
    wait_for_event(&cluster, "FailedMount", "this node has no volumes of the type nfs").await;
    cluster.shutdown().await;
}
