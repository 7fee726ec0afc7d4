//! Priority classes.

use serde_json::json;

use crate::{raw::send, start};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    let (api, _) = start();
    let classes = send(&api, &format!("GET {CLASSES}"), &[], "").await.json();
    let values: Vec<_> = classes["items"].as_array().unwrap().iter().map(|class| class["value"].clone()).collect();
    assert_eq!(values, [2_000_000_000, 2_000_001_000]);
    let pod = |class: &str| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "priorityClassName": class});
        json!({"metadata": {"name": "p"}, "spec": spec}).to_string()
    };
    let line = "POST /api/v1/namespaces/default/pods?dryRun=All";
    let created = send(&api, line, &[], pod("system-node-critical")).await.expect_code(201).json();
    assert_eq!(created["spec"]["priority"], 2_000_001_000);
    let refused = send(&api, line, &[], pod("gold")).await.expect_code(403).json();
    assert_eq!(refused["message"], "pods \"p\" is forbidden: no PriorityClass with name gold was found");
    let default = json!({"metadata": {"name": "gold"}, "value": 7, "globalDefault": true, "preemptionPolicy": "Never"});
    let class = send(&api, &format!("POST {CLASSES}"), &[], default.to_string()).await.expect_code(201).json();
    assert_eq!(class["metadata"]["generation"], 1);
    let created = send(&api, line, &[], pod("")).await.expect_code(201).json();
    let spec = &created["spec"];
    assert_eq!((&spec["priorityClassName"], &spec["priority"]), (&json!("gold"), &json!(7)));
    assert_eq!(spec["preemptionPolicy"], "Never");
    let line = format!("DELETE {CLASSES}/system-node-critical");
    send(&api, &line, &[], "").await.expect_code(403);
    // As in Kubernetes, they are deleted with all others.
    let deleted = send(&api, &format!("DELETE {CLASSES}?dryRun=All"), &[], "").await.expect_code(200).json();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 3);
    send(&api, &format!("GET {CLASSES}/system-node-critical"), &[], "").await.expect_code(200);
    send(&api, &format!("DELETE {CLASSES}"), &[], "").await.expect_code(200);
    send(&api, &format!("GET {CLASSES}/system-node-critical"), &[], "").await.expect_code(404);
}
