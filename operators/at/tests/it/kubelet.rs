//! The test as kubelet, and what is to be known of pods.
//!
//! Nothing here knows a particular operator.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::kit::{World, minutes};

impl World {
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    /// As the kubelet: the pod runs and is ready.
    pub(crate) async fn run_pod(&self, name: &str) {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        self.edit_status::<Pod>(name, json!({"phase": "Running", "conditions": ready})).await;
    }

    /// As the kubelet: the pod ends with this exit code.
    pub(crate) async fn end_pod(&self, name: &str, exit_code: i32) {
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

/// Every pod there ever was, in a world that this watches from its beginning.
pub(crate) struct PodHistory {
    feed: kubewright_apiserver::Feed,
    uids: BTreeMap<String, BTreeSet<String>>,
}

impl PodHistory {
    pub(crate) fn of(world: &World) -> Self {
        Self { feed: world.cluster.api().feed(), uids: BTreeMap::new() }
    }

    /// How many pods of this label value `app` were created so far.
    pub(crate) fn created(&mut self, app: &str) -> usize {
        while let Some(change) = self.feed.try_next().unwrap() {
            let object = &change.object;
            if object["kind"] == "Pod" {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let uids = self.uids.entry(text(&object["metadata"]["labels"]["app"])).or_default();
                uids.insert(text(&object["metadata"]["uid"]));
            }
        }
        self.uids.get(app).map_or(0, BTreeSet::len)
    }
}

/// For tests on real time: that it takes less than a minute.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(minutes(1), work).await.expect("it should take less than a minute")
}
