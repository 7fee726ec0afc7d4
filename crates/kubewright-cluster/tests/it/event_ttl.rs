//! The expiry of events.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kubewright_apimachinery::clock::VirtualClock;
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_their_last_change() {
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    let cluster = Cluster::builder().pods(Pods::None).clock(clock).start().await.expect("a cluster");
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    for name in ["once", "again"] {
        let event = json!({
            "metadata": {"name": name}, "reason": "Test", "type": "Normal", "lastTimestamp": "1970-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        });
        events
            .create(&PostParams::default(), &serde_json::from_value(event).expect("an event"))
            .await
            .expect("created");
    }
    let names = async || {
        let events = events.list(&ListParams::default()).await.expect("listed");
        events.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(50 * 60)).await;
    assert_eq!(names().await, ["again", "once"]);
    let counted = Patch::Merge(json!({"count": 2, "lastTimestamp": "1970-01-01T00:50:00Z"}));
    events.patch("again", &PatchParams::default(), &counted).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(50 * 60)).await;
    assert_eq!(names().await, ["again"]);
    tokio::time::sleep(Duration::from_secs(50 * 60)).await;
    assert_eq!(names().await, Vec::<String>::new());
}
