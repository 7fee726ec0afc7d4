//! Helpers for a test in the role of the kubelet.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::TestEnv;

impl TestEnv {
    /// Returns all pods.
    pub async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    /// Makes a pod running and ready. Panics if it doesn't exist.
    pub async fn run_pod(&self, name: &str) {
        assert!(self.run_pod_if_there(name).await, "{name} can't run: it is gone");
    }

    /// Makes a pod running and ready, and returns whether it still exists.
    pub async fn run_pod_if_there(&self, name: &str) -> bool {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        self.write_pod_status(name, json!({"phase": "Running", "conditions": ready})).await
    }

    /// Ends the containers of a pod with an exit code. Panics if the pod doesn't exist.
    pub async fn end_pod(&self, name: &str, exit_code: i32) {
        assert!(self.end_pod_if_there(name, exit_code).await, "{name} can't end: it is gone");
    }

    /// Ends the containers of a pod with an exit code, and returns whether it still exists.
    pub async fn end_pod_if_there(&self, name: &str, exit_code: i32) -> bool {
        let Some(pod) = self.api::<Pod>().get_opt(name).await.unwrap() else { return false };
        let terminated = json!({"exitCode": exit_code, "finishedAt": self.now().strftime("%FT%TZ").to_string()});
        let statuses: Vec<_> = pod
            .spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .map(|container| {
                json!({
                    "name": container.name, "image": container.image, "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": terminated},
                })
            })
            .collect();
        let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
        self.write_pod_status(name, json!({"phase": phase, "conditions": [], "containerStatuses": statuses})).await
    }

    async fn write_pod_status(&self, name: &str, status: Value) -> bool {
        let patch = Patch::Merge(json!({"status": status}));
        match self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.is_not_found() => false,
            Err(error) => panic!("the status of {name}: {error}"),
        }
    }
}
