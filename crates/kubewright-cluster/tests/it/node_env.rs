//! The environment, arguments and directories of a container's process.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use kubewright_cluster::{Cluster, ImageTable, Pods, Program};
use serde_json::{Value, json};

use crate::{
    address, config_maps, create, eventually, is_running, phase, player, playing, pod, pods, running, until,
    waiting_reason,
};

/// Runs a container to its end, and returns its output.
async fn printed(cluster: &Cluster, name: &str, container: Value) -> String {
    let mut container = container;
    container["name"] = json!("main");
    container["image"] = json!("busybox");
    create(cluster, &pod(name, "", json!({"containers": [container]}))).await;
    until(cluster, name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    pods(cluster).logs(name, &LogParams::default()).await.expect("a log")
}

#[tokio::test]
async fn variables() {
    let cluster = running().await;
    let map = serde_json::from_value(json!({"metadata": {"name": "settings"}, "data": {"COLOR": "red", "SIZE": "L"}}));
    config_maps(&cluster).create(&PostParams::default(), &map.expect("a map")).await.expect("created");
    let secret = serde_json::from_value(json!({"metadata": {"name": "keys"}, "stringData": {"token": "s3cret"}}));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    secrets.create(&PostParams::default(), &secret.expect("a secret")).await.expect("created");
    let text = printed(
        &cluster,
        "variables",
        json!({
            "command": ["sh", "-c", "echo $GREETING $COLOR $TOKEN $P_SIZE $NAME $HOSTNAME; echo $(GREETING); env | grep -c CARGO"],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
            "env": [
                {"name": "WHO", "value": "cow"},
                {"name": "GREETING", "value": "hello-$(WHO)"},
                {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOR"}}},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }),
    )
    .await;
    assert_eq!(text, "hello-cow red s3cret L variables variables\nhello-cow\n0\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn missing_configuration_is_waited_for() {
    let cluster = running().await;
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", "test $COLOR = blue"],
        "env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "COLOR"}}}],
    });
    create(&cluster, &pod("waits", "", json!({"containers": [container]}))).await;
    let found = until(&cluster, "waits", |pod| waiting_reason(pod) == "CreateContainerConfigError").await;
    let message = crate::state(&found).waiting.and_then(|waiting| waiting.message);
    assert_eq!(message.as_deref(), Some("configmap \"later\" not found"));
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "data": {"COLOR": "blue"}})).expect("a map");
    config_maps(&cluster).create(&PostParams::default(), &map).await.expect("created");
    until(&cluster, "waits", |pod| phase(pod) == "Succeeded").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn directories() {
    let cluster = running().await;
    let text = printed(&cluster, "own", json!({"command": ["sh", "-c", "test $PWD = $HOME && ls -A | wc -l"]})).await;
    assert_eq!(text.trim(), "0", "its own, and empty");
    let text = printed(&cluster, "given", json!({"command": ["pwd"], "workingDir": "/"})).await;
    assert_eq!(text, "/\n");
    let text = printed(&cluster, "made", json!({"command": ["pwd"], "workingDir": "/no/such/place"})).await;
    assert!(text.ends_with("/main/no/such/place\n"), "{text}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn images_are_extensible() {
    let images = ImageTable::default()
        .with("example.com/cow", Program::executable("/bin/sh").arguments(["-c", "echo $SOUND"]).env("SOUND", "moo"));
    let cluster = Cluster::builder().pods(Pods::Run).images(images).start().await.expect("a cluster");
    let container = json!({"name": "main", "image": "example.com/cow:v2"});
    create(&cluster, &pod("cow", "", json!({"containers": [container]}))).await;
    until(&cluster, "cow", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(pods(&cluster).logs("cow", &LogParams::default()).await.expect("a log"), "moo\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn two_pods_of_one_image_listen_side_by_side() {
    let cluster = playing().await;
    let container = json!({"name": "main", "image": "web", "ports": [{"containerPort": 8080}]});
    for name in ["one", "two"] {
        create(&cluster, &pod(name, "", json!({"containers": [container]}))).await;
    }
    for name in ["one", "two"] {
        let pod = until(&cluster, name, is_running).await;
        let place = format!("{}:8080", address(&pod));
        let (code, said) = eventually("an answer", async || player::ask(&place, "/").await).await;
        assert_eq!((code, said.as_str()), (200, name));
    }
    cluster.shutdown().await;
}
