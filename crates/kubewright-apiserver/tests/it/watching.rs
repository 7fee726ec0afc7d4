//! Watches.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::{raw::send, start};

fn config(name: &str, app: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": app}}})).unwrap()
}

fn shown(event: &WatchEvent<ConfigMap>) -> String {
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
    match event {
        WatchEvent::Added(object) => format!("added {}", name(object)),
        WatchEvent::Modified(object) => format!("modified {}", name(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(object)),
        WatchEvent::Bookmark(mark) => format!("bookmark {}", mark.metadata.annotations.len()),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_watched_selection() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config("old", "x")).await.unwrap();
    let params = WatchParams::default().labels("app=x").disable_bookmarks();
    let mut events = api.watch(&params, "0").await.unwrap().boxed();
    let label = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
    api.create(&PostParams::default(), &config("other", "y")).await.unwrap();
    api.patch("other", &PatchParams::default(), &label("x")).await.unwrap();
    api.patch("old", &PatchParams::default(), &label("y")).await.unwrap();
    api.delete("other", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(shown(&events.try_next().await.unwrap().unwrap()));
    }
    assert_eq!(seen, ["added old", "added other", "deleted old", "deleted other"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_a_bookmark() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let version =
        api.create(&PostParams::default(), &config("a", "x")).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().timeout(90);
    let events: Vec<_> = api.watch(&params, &version).await.unwrap().try_collect().await.unwrap();
    let seen: Vec<_> = events.iter().map(shown).collect();
    assert_eq!(seen, ["bookmark 0", "bookmark 0"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config("a", "x")).await.unwrap();
    let params = WatchParams::default().initial_events().timeout(10);
    let events: Vec<_> = api.watch(&params, "0").await.unwrap().try_collect().await.unwrap();
    let seen: Vec<_> = events.iter().map(shown).collect();
    assert_eq!(seen, ["added a", "bookmark 1", "bookmark 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_any_version_marks_the_end_of_its_initial_events() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config("a", "x")).await.unwrap();
    // It is too short for another bookmark.
    let params = WatchParams::default().timeout(1);
    let events: Vec<_> = api.watch(&params, "0").await.unwrap().try_collect().await.unwrap();
    assert_eq!(events.iter().map(shown).collect::<Vec<_>>(), ["added a", "bookmark 1"]);
}

#[tokio::test]
async fn a_watch_with_a_negative_timeout_ends_before_its_first_event() {
    let (api, client) = start();
    Api::default_namespaced(client).create(&PostParams::default(), &config("a", "x")).await.unwrap();
    let watch = "GET /api/v1/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=-1";
    assert_eq!(send(&api, watch, &[], "").await.expect_code(200).text, "");
}
