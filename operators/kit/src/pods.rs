//! The test as kubelet.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::World;

impl World {
    /// All pods.
    pub async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    /// As the kubelet: the pod runs and is ready.
    pub async fn run_pod(&self, name: &str) {
        assert!(self.run_pod_if_there(name).await, "{name} can't run: it is gone");
    }

    /// [`World::run_pod`], unless it has been deleted since it was looked for; tells whether it is there.
    pub async fn run_pod_if_there(&self, name: &str) -> bool {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        self.tell_of_pod(name, json!({"phase": "Running", "conditions": ready})).await
    }

    /// As the kubelet: the pod ends with this exit code.
    pub async fn end_pod(&self, name: &str, exit_code: i32) {
        assert!(self.end_pod_if_there(name, exit_code).await, "{name} can't end: it is gone");
    }

    /// [`World::end_pod`], unless it has been deleted since it was looked for; tells whether it is there.
    pub async fn end_pod_if_there(&self, name: &str, exit_code: i32) -> bool {
        let terminated = json!({"exitCode": exit_code, "finishedAt": self.now().strftime("%FT%TZ").to_string()});
        let container = json!({
            "name": "busybox", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        });
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        self.tell_of_pod(name, json!({"phase": phase, "conditions": [], "containerStatuses": [container]})).await
    }

    async fn tell_of_pod(&self, name: &str, status: Value) -> bool {
        let patch = Patch::Merge(json!({"status": status}));
        match self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.is_not_found() => false,
            Err(error) => panic!("the status of {name}: {error}"),
        }
    }
}
