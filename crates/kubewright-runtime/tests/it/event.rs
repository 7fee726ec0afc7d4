//! The event recorder with the embedded API server.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Event as CoreEvent},
    events::v1::Event as StoredEvent,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, ObjectMeta, PostParams},
};
use kubewright_apiserver::ApiServer;
use kubewright_runtime::{
    clock::SystemClock,
    event::{Broadcaster, Event},
    metrics::Metrics,
};

async fn object(client: &Client) -> anyhow::Result<ConfigMap> {
    let metadata = ObjectMeta { name: Some("run".into()), ..ObjectMeta::default() };
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    Ok(maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?)
}

#[tokio::test]
async fn events_are_stored_in_order_and_repeats_as_series() -> anyhow::Result<()> {
    let client = ApiServer::builder().build().client();
    let clock = SystemClock::shared();
    let metrics = Metrics::new(clock.clone());
    let broadcaster = Broadcaster::start(client.clone(), "pod-1", clock, metrics.clone());
    let recorder = broadcaster.recorder("at-controller");
    let regarding = object(&client).await?.object_ref(&());
    for note in ["PENDING", "RUNNING", "DONE", "DONE", "DONE"] {
        recorder.record(&regarding, Event::normal("PhaseChange", note));
    }
    recorder.record(&regarding, Event::warning("TooLong", "ß".repeat(2000)));
    broadcaster.shutdown(Duration::from_secs(10)).await;

    let stored = Api::<StoredEvent>::default_namespaced(client.clone()).list(&ListParams::default()).await?.items;
    let count = |event: &StoredEvent| event.series.as_ref().map_or(1, |series| series.count);
    let counts: Vec<_> = stored.iter().map(|event| (event.reason.as_deref(), count(event))).collect();
    let phase = Some("PhaseChange");
    assert_eq!(counts, [(phase, 1), (phase, 1), (phase, 3), (Some("TooLong"), 1)]);
    assert!(!metrics.encode()?.contains("events_discarded_total{"));
    Ok(())
}

/// The query and the output of `kubectl describe`.
#[tokio::test]
async fn events_are_found_by_the_query_of_kubectl_describe() -> anyhow::Result<()> {
    let client = ApiServer::builder().build().client();
    let clock = SystemClock::shared();
    let broadcaster = Broadcaster::start(client.clone(), "pod-1", clock.clone(), Metrics::new(clock));
    let regarding = object(&client).await?.object_ref(&());
    broadcaster.recorder("at-controller").record(&regarding, Event::normal("PhaseChange", "PENDING"));
    broadcaster.shutdown(Duration::from_secs(10)).await;

    let uid = regarding.uid.unwrap_or_default();
    let selector = format!("involvedObject.name=run,involvedObject.namespace=default,involvedObject.uid={uid}");
    let parameters = ListParams::default().fields(&selector);
    let events = Api::<CoreEvent>::default_namespaced(client.clone()).list(&parameters).await?.items;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].reporting_component.as_deref(), Some("at-controller"));
    assert_eq!(events[0].message.as_deref(), Some("PENDING"));
    assert!(events[0].event_time.is_some());
    Ok(())
}
