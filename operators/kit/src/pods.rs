//! The test as kubelet.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::World;

impl World {
    /// All pods.
    pub async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    /// As the kubelet: the pod runs and is ready.
    pub async fn run_pod(&self, name: &str) {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        self.edit_status::<Pod>(name, json!({"phase": "Running", "conditions": ready})).await;
    }

    /// As the kubelet: the pod ends with this exit code.
    pub async fn end_pod(&self, name: &str, exit_code: i32) {
        let terminated = json!({"exitCode": exit_code, "finishedAt": self.now().strftime("%FT%TZ").to_string()});
        let container = json!({
            "name": "busybox", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        });
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        let status = json!({"phase": phase, "conditions": [], "containerStatuses": [container]});
        self.edit_status::<Pod>(name, status).await;
    }
}
