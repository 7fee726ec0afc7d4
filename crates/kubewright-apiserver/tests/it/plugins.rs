//! Admission plugins that are off.

use kubewright_apiserver::{AdmissionPlugin, ApiServer};
use serde_json::{Value, json};

use crate::raw::send;

async fn post(api: &ApiServer, path: &str, object: Value) -> (u16, Value) {
    let response = send(api, &format!("POST {path}"), &[], object.to_string()).await;
    (response.code, response.json())
}

#[tokio::test]
async fn plugins_that_are_off_neither_change_nor_refuse_objects() {
    let objects = [
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": {"name": "a"}, "value": 1, "globalDefault": true}),
        ),
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}),
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}),
        ),
    ];
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "runtimeClassName": "none", "priority": 7},
    });
    let pods = "/api/v1/namespaces/default/pods";
    let node = json!({"metadata": {"name": "n"}});
    let mut builder = ApiServer::builder();
    for plugin in AdmissionPlugin::ALL {
        assert_eq!(AdmissionPlugin::from_name(plugin.name()), Some(plugin));
        builder = builder.without_admission_plugin(plugin);
    }
    let (off, on) = (builder.build(), ApiServer::builder().build());
    for api in [&off, &on] {
        for (path, object) in &objects {
            assert_eq!(post(api, path, object.clone()).await.0, 201, "{object}");
        }
    }
    let (code, made) = post(&off, pods, pod.clone()).await;
    assert_eq!(code, 201, "{made}");
    let spec = &made["spec"];
    assert_eq!((&spec["priority"], spec.get("priorityClassName"), spec.get("tolerations")), (&json!(7), None, None));
    assert_eq!(spec["containers"][0]["resources"], json!({}));
    let (code, second) =
        post(&off, objects[0].0, json!({"metadata": {"name": "b"}, "value": 2, "globalDefault": true})).await;
    assert_eq!(code, 201, "{second}");
    assert_eq!(post(&off, "/api/v1/nodes", node.clone()).await.1["spec"].get("taints"), None);

    assert_eq!(post(&on, pods, pod).await.0, 403);
    assert_eq!(post(&on, "/api/v1/nodes", node).await.1["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
}
