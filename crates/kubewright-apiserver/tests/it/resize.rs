//! Resizes of pods on nodes.

use serde_json::{Value, json};

use crate::{raw::send, start};

const STRATEGIC: &str = "Content-Type: application/strategic-merge-patch+json";

#[tokio::test]
async fn a_resize_beyond_the_node_is_forbidden() {
    let (api, _) = start();
    send(&api, "POST /api/v1/nodes", &[], json!({"metadata": {"name": "n"}}).to_string()).await.expect_code(201);
    let status = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
    send(&api, "PATCH /api/v1/nodes/n/status", &[STRATEGIC], status.to_string()).await.expect_code(200);
    let pods = "/api/v1/namespaces/default/pods";
    let container = |requests: &Value| json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
    let small = json!({"cpu": "100m", "memory": "64Mi"});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": container(&small)}});
    send(&api, &format!("POST {pods}"), &[], pod.to_string()).await.expect_code(201);

    let resize = async |requests: Value| {
        let body = json!({"spec": {"containers": container(&requests)}}).to_string();
        send(&api, &format!("PATCH {pods}/p/resize"), &[STRATEGIC], body).await
    };
    resize(json!({"cpu": "2", "memory": "1Gi"})).await.expect_code(200);
    let refused = resize(json!({"cpu": "2500m", "memory": "2Gi"})).await.expect_code(403).json();
    let why = "cpu, requested: 2500, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824";
    let message = format!("pods \"p\" is forbidden: node didn't have enough allocatable resources: {why}");
    assert_eq!(refused["message"], message);
    assert_eq!(refused["details"]["causes"], json!([{"reason": "NodeCapacity"}]));
}
