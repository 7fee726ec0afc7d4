//! Resource versions of lists, and kinds that are served in two groups.

use futures::TryStreamExt;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event as CoreEvent},
    events::v1::Event,
};
use kube::{
    Api,
    api::{ListParams, PostParams, VersionMatch, WatchEvent, WatchParams},
};
use kubewright_apiserver::ApiServer;
use serde_json::json;

use crate::{raw::send, refused, start};

async fn create(api: &Api<ConfigMap>, name: &str) -> String {
    let config = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    api.create(&PostParams::default(), &config).await.unwrap().metadata.resource_version.unwrap()
}

fn at(version: &str, matching: VersionMatch) -> ListParams {
    ListParams { resource_version: Some(version.into()), version_match: Some(matching), ..ListParams::default() }
}

#[tokio::test]
async fn a_list_has_the_requested_resource_version() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let first = create(&api, "a").await;
    create(&api, "b").await;
    let exact = api.list(&at(&first, VersionMatch::Exact)).await.unwrap();
    assert_eq!((exact.items.len(), exact.metadata.resource_version), (1, Some(first.clone())));
    assert_eq!(api.list(&at(&first, VersionMatch::NotOlderThan)).await.unwrap().items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_awaited_until_a_timeout() {
    let (api, client) = start();
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    let version: u64 = create(&configs, "a").await.parse().unwrap();
    let next = (version + 1).to_string();
    let not_older = at(&next, VersionMatch::NotOlderThan);
    let too_large = format!("Too large resource version: {next}, current: {version}");
    refused(configs.list(&not_older).await, 504, &too_large);
    let initial = WatchParams::default().initial_events();
    let mut events = std::pin::pin!(configs.watch(&initial, &next).await.unwrap());
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("no error") };
    assert_eq!((status.code, status.message), (504, format!("Timeout: {too_large}")));
    let path = format!("GET /api/v1/configmaps?resourceVersion={next}");
    let answer = send(&api, &path, &[], "").await;
    let details = &answer.json()["details"];
    assert_eq!((answer.header("retry-after"), &details["retryAfterSeconds"]), ("1", &json!(1)));
    assert_eq!(details["causes"][0]["reason"], "ResourceVersionTooLarge");
    let get = send(&api, &format!("GET /api/v1/namespaces/default/configmaps/a?resourceVersion={next}"), &[], "").await;
    assert_eq!(get.code, 504);
    let (listed, _) = tokio::join!(configs.list(&not_older), create(&configs, "b"));
    assert_eq!(listed.unwrap().items.len(), 2);
}

#[tokio::test]
async fn an_expired_token_continues_inconsistently() {
    let api = ApiServer::builder().history(3).build();
    let configs: Api<ConfigMap> = Api::default_namespaced(api.client());
    for name in ["a", "b", "c"] {
        create(&configs, name).await;
    }
    let page = configs.list(&ListParams::default().limit(1)).await.unwrap();
    for name in ["d", "e", "f", "g"] {
        create(&configs, name).await;
    }
    let token = page.metadata.continue_.unwrap();
    let path = |token: &str| format!("GET /api/v1/namespaces/default/configmaps?limit=10&continue={token}");
    let expired = send(&api, &path(&token), &[], "").await;
    let status = expired.json();
    assert_eq!((expired.code, &status["reason"]), (410, &json!("Expired")));
    let rest = send(&api, &path(status["metadata"]["continue"].as_str().unwrap()), &[], "").await.json();
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c", "d", "e", "f", "g"]);
}

#[tokio::test]
async fn a_large_list_has_all_items() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for number in 0..200 {
        let config = json!({"metadata": {"name": format!("c{number:03}")}, "data": {"a": "x".repeat(1000)}});
        api.create(&PostParams::default(), &serde_json::from_value(config).unwrap()).await.unwrap();
    }
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 200);
    assert!(list.items.iter().enumerate().all(|(at, item)| item.metadata.name == Some(format!("c{at:03}"))));
}

#[tokio::test]
async fn events_are_served_in_two_groups() {
    let (_, client) = start();
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Test",
        "reason": "Tested", "note": "it works", "reportingController": "example.com/test", "reportingInstance": "test-1",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"},
    });
    events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    let core: Api<CoreEvent> = Api::default_namespaced(client);
    let read = core.get("e").await.unwrap();
    assert_eq!((read.message.as_deref(), read.involved_object.name.as_deref()), (Some("it works"), Some("p")));
    assert_eq!(core.list(&ListParams::default().fields("involvedObject.name=p")).await.unwrap().items.len(), 1);
    assert_eq!(events.get("e").await.unwrap().note.as_deref(), Some("it works"));
}

/// Kubernetes has no cache of events, so that their lists have pages whatever the version is.
#[tokio::test]
async fn only_lists_of_events_have_pages_at_any_version() {
    let (api, _) = start();
    for (plural, object, items) in
        [("configmaps", json!({}), 3), ("events", json!({"involvedObject": {"namespace": "default"}}), 1)]
    {
        let path = format!("/api/v1/namespaces/default/{plural}");
        for name in ["a", "b", "c"] {
            let mut object = object.clone();
            object["metadata"] = json!({"name": name});
            send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201);
        }
        let list = send(&api, &format!("GET {path}?limit=1&resourceVersion=0"), &[], "").await.expect_code(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), items, "{plural}");
    }
}
