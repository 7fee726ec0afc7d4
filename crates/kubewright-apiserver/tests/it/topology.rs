//! The topology labels of pods.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn create(api: &ApiServer, name: &str, node: Option<&str>) -> Value {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "x", ZONE: "old"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    send(api, &format!("POST {PODS}"), &[], pod.to_string()).await.expect_code(201).json()
}

async fn bind(api: &ApiServer, name: &str, mut metadata: Value, target: Value) -> u16 {
    metadata["name"] = name.into();
    let binding = json!({"metadata": metadata, "target": target});
    send(api, &format!("POST {PODS}/{name}/binding"), &[], binding.to_string()).await.code
}

async fn stored(api: &ApiServer, name: &str) -> Value {
    send(api, &format!("GET {PODS}/{name}"), &[], "").await.expect_code(200).json()
}

#[tokio::test]
async fn pods_get_the_topology_labels_of_their_node() {
    let (api, _) = start();
    let node = json!({"metadata": {"name": "n", "labels": {ZONE: "a", REGION: "b", "disk": "ssd"}}});
    send(&api, "POST /api/v1/nodes", &[], node.to_string()).await.expect_code(201);

    create(&api, "bound", None).await;
    let metadata = json!({"labels": {"own": "y", REGION: "wrong"}, "annotations": {"example.com/why": "z"}});
    assert_eq!(bind(&api, "bound", metadata, json!({"kind": "Node", "name": "n"})).await, 201);
    let bound = stored(&api, "bound").await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["labels"], json!({"app": "x", "own": "y", ZONE: "a", REGION: "b"}));
    assert_eq!(bound["metadata"]["annotations"], json!({"example.com/why": "z"}));

    let direct = create(&api, "direct", Some("n")).await;
    assert_eq!(direct["metadata"]["labels"], json!({"app": "x", ZONE: "a", REGION: "b"}));

    // As in Kubernetes, a binding without a kind, and a node that doesn't exist, leave the labels.
    for (name, target) in [("plain", json!({"name": "n"})), ("lost", json!({"kind": "Node", "name": "gone"}))] {
        create(&api, name, None).await;
        assert_eq!(bind(&api, name, json!({}), target).await, 201, "{name}");
        assert_eq!(stored(&api, name).await["metadata"]["labels"], json!({"app": "x", ZONE: "old"}), "{name}");
    }
}

#[tokio::test]
async fn a_binding_has_preconditions() {
    let (api, _) = start();
    let created = create(&api, "p", None).await;
    let target = || json!({"kind": "Node", "name": "n"});
    assert_eq!(bind(&api, "p", json!({"resourceVersion": "1"}), target()).await, 409);
    assert_eq!(bind(&api, "p", json!({"uid": "other"}), target()).await, 409);
    let metadata =
        json!({"resourceVersion": created["metadata"]["resourceVersion"], "uid": created["metadata"]["uid"]});
    assert_eq!(bind(&api, "p", metadata, target()).await, 201);
}

#[tokio::test]
async fn a_new_node_keeps_its_status_and_is_tainted() {
    let (api, _) = start();
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    let created = send(&api, "POST /api/v1/nodes", &[], node.to_string()).await.expect_code(201).json();
    assert_eq!(created["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(created["status"]["conditions"][0]["status"], "True");
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert_eq!(created["spec"]["taints"], json!([{"key": "a", "effect": "NoSchedule"}, not_ready]));
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*fields, json!({"f:spec": {"f:taints": {}}}), "the status has no owner");
    // The status is otherwise written as that of other kinds.
    let changed = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}});
    let updated = send(&api, "PUT /api/v1/nodes/n", &[], changed.to_string()).await.expect_code(200).json();
    assert_eq!(updated["status"], created["status"]);
}
