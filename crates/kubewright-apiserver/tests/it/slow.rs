//! Slow watches.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use kubewright_apiserver::{ApiServer, Lagged};
use serde_json::json;

const HISTORY: usize = 50;

async fn write(api: &Api<ConfigMap>, times: usize) {
    for number in 0..times {
        let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
}

fn start() -> (ApiServer, Api<ConfigMap>) {
    let api = ApiServer::builder().history(HISTORY).build();
    let client = api.client();
    (api, Api::default_namespaced(client))
}

async fn create(api: &Api<ConfigMap>) -> String {
    let config: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    api.create(&PostParams::default(), &config).await.unwrap().metadata.resource_version.unwrap()
}

#[tokio::test]
async fn a_slow_watch_ends_with_410() {
    let (_api, configs) = start();
    let version = create(&configs).await;
    let events = configs.watch(&WatchParams::default(), &version).await.unwrap();
    let mut events = std::pin::pin!(events);
    write(&configs, 1).await;
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Modified(_))));
    // Nothing is queued for the watcher meanwhile: it gets missed events only from the server's history.
    write(&configs, 2 * HISTORY).await;
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("no error") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(events.try_next().await.unwrap().is_none(), "the stream ends");
    // An old version gets the same answer at once.
    let mut late = std::pin::pin!(configs.watch(&WatchParams::default(), &version).await.unwrap());
    assert!(matches!(late.try_next().await.unwrap(), Some(WatchEvent::Error(status)) if status.code == 410));
}

#[tokio::test]
async fn a_slow_feed_restarts_with_a_snapshot() {
    let (api, configs) = start();
    let mut feed = api.feed();
    create(&configs).await;
    write(&configs, 2 * HISTORY).await;
    let mut lags = 0;
    let mut numbers = Vec::new();
    loop {
        match feed.try_next() {
            Ok(Some(change)) => numbers.push(change.object()["data"]["number"].clone()),
            Ok(None) => break,
            Err(Lagged) => {
                lags += 1;
                numbers.clear();
            }
        }
    }
    assert_eq!(lags, 1);
    assert!(feed.is_synced());
    assert!(numbers.contains(&json!((2 * HISTORY - 1).to_string())));
}
