//! Versions of the past and the future, and parameters of lists that can't be understood.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{PostParams, WatchEvent, WatchParams},
};
use kubewright_apimachinery::clock::VirtualClock;
use kubewright_apiserver::ApiServer;
use serde_json::json;

use crate::{
    raw::{get, send},
    start,
};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_waits_for_it() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let version = api.create(&PostParams::default(), &config("a")).await.unwrap().metadata.resource_version.unwrap();
    let future = (version.parse::<u64>().unwrap() + 1).to_string();
    let params = WatchParams::default().timeout(30);
    let mut events = std::pin::pin!(api.watch(&params, &future).await.unwrap());
    let quiet = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    api.create(&PostParams::default(), &config("b")).await.unwrap();
    api.create(&PostParams::default(), &config("c")).await.unwrap();
    let Some(WatchEvent::Added(seen)) = events.try_next().await.unwrap() else { panic!("no event") };
    assert_eq!(seen.metadata.name.as_deref(), Some("c"), "b is at the version of the watch");
    // Without a change it ends quietly.
    let far = api.watch(&WatchParams::default().timeout(30), "1000000").await.unwrap();
    assert_eq!(far.try_collect::<Vec<_>>().await.unwrap().len(), 0);
}

#[tokio::test]
async fn the_beginning_of_the_server_has_been_compacted() {
    let (api, client) = start();
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    let mut events = std::pin::pin!(configs.watch(&WatchParams::default(), "1").await.unwrap());
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("no error") };
    assert!(status.code == 410 && status.message.starts_with("too old resource version: 1 ("), "{status:?}");
    let path = format!("{CONFIGS}?resourceVersion=1&resourceVersionMatch=Exact");
    let answer = get(&api, &path, "application/json").await.expect_code(410).json();
    assert_eq!(answer["message"], "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn continue_tokens_are_checked() {
    let (api, client) = start();
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c"] {
        configs.create(&PostParams::default(), &config(name)).await.unwrap();
    }
    let page = get(&api, &format!("{CONFIGS}?limit=1"), "application/json").await.json();
    let text = URL_SAFE_NO_PAD.decode(page["metadata"]["continue"].as_str().unwrap()).unwrap();
    let token: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&token["v"], &token["start"]), (&json!("meta.k8s.io/v1"), &json!("/a\0")));
    let all = get(&api, "/api/v1/configmaps?limit=1", "application/json").await.json();
    let next = format!("/api/v1/configmaps?continue={}", all["metadata"]["continue"].as_str().unwrap());
    assert_eq!(get(&api, &next, "application/json").await.json()["items"].as_array().unwrap().len(), 2);
    let check = async |token: &str, expect: &str| {
        let path = format!("{CONFIGS}?limit=1&continue={token}");
        let answer = get(&api, &path, "application/json").await.expect_code(400).json();
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("invalid continue token: continue key is not valid: {expect}")),
            "{message}"
        );
    };
    let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    check("!", "illegal base64 data at input byte 0").await;
    check(&URL_SAFE_NO_PAD.encode("x"), "").await;
    check(&encode(json!({"v": "v2"})), "server does not recognize this encoded version v2").await;
    check(&encode(json!({"v": "meta.k8s.io/v1"})), "incorrect encoded start resourceVersion").await;
    check(&encode(json!({"v": "meta.k8s.io/v1", "rv": 7})), "encoded start key empty").await;
    check(&encode(json!({"v": "meta.k8s.io/v1", "rv": 7, "start": "../x"})), "../x").await;
}

#[tokio::test]
async fn a_full_page_has_a_token_if_any_object_follows() {
    let (api, _) = start();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")] {
        let body = json!({"metadata": {"name": name, "labels": {"of": label}}}).to_string();
        send(&api, &format!("POST {CONFIGS}"), &["Content-Type: application/json"], body).await.expect_code(201);
    }
    for (selector, limit, has_token) in [("x", 2, true), ("y", 2, false), ("x", 3, false), ("y", 1, true)] {
        let path = format!("{CONFIGS}?labelSelector=of%3D{selector}&limit={limit}");
        let page = get(&api, &path, "application/json").await.json();
        let token = page["metadata"]["continue"].as_str();
        assert_eq!((token.is_some(), page["metadata"].get("remainingItemCount")), (has_token, None), "{path}");
        if let (Some(token), 2) = (token, limit) {
            let rest = get(&api, &format!("{path}&continue={token}"), "application/json").await.json();
            assert_eq!((rest["items"].as_array().unwrap().len(), rest["metadata"].get("continue")), (0, None));
        }
    }
}

/// A state that has been replaced can be read for five to ten minutes.
#[tokio::test(start_paused = true)]
async fn old_states_are_compacted() {
    let api = ApiServer::builder().clock(VirtualClock::starting_at(Timestamp::UNIX_EPOCH)).build();
    let create = async |name: &str| {
        let line = format!("POST {CONFIGS}");
        let body = json!({"metadata": {"name": name}}).to_string();
        send(&api, &line, &["Content-Type: application/json"], body).await.expect_code(201);
    };
    create("a").await;
    create("b").await;
    let page = get(&api, &format!("{CONFIGS}?limit=1"), "application/json").await.json();
    let next = format!("{CONFIGS}?limit=1&continue={}", page["metadata"]["continue"].as_str().unwrap());
    let version = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let exact = format!("{CONFIGS}?resourceVersion={version}&resourceVersionMatch=Exact");
    create("bb").await;
    for minutes in [4, 5] {
        tokio::time::advance(Duration::from_secs(minutes * 60)).await;
        assert_eq!(
            get(&api, &next, "application/json").await.expect_code(200).json()["metadata"]["resourceVersion"],
            version
        );
        get(&api, &exact, "application/json").await.expect_code(200);
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    get(&api, &exact, "application/json").await.expect_code(410);
    let expired = get(&api, &next, "application/json").await.expect_code(410).json();
    // The token of the response continues with the objects as they are.
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = get(&api, &format!("{CONFIGS}?continue={token}"), "application/json").await.expect_code(200).json();
    let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "bb"]);
}

#[tokio::test]
async fn versions_that_are_no_numbers_are_refused() {
    let (api, _) = start();
    let why = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    let listed = format!("invalid resource version: {why}");
    for (path, code, expect) in [("?watch=1&", 500, why), ("?", 400, &listed), ("/a?", 500, why)] {
        let answer = get(&api, &format!("{CONFIGS}{path}resourceVersion=abc"), "application/json").await;
        assert_eq!((answer.code, &answer.json()["message"]), (code, &json!(expect)));
    }
    let answer = get(&api, &format!("{CONFIGS}?limit=abc"), "application/json").await.expect_code(400);
    assert_eq!(answer.json()["message"], "strconv.ParseInt: parsing \"abc\": invalid syntax");
}

#[tokio::test]
async fn unknown_fields_of_selectors_are_refused_in_the_words_of_the_kind() {
    let (api, _) = start();
    let check = async |path: &str, selector: &str, expect: &str| {
        let line = format!("GET {path}?fieldSelector={selector}");
        let answer = send(&api, &line, &[], "").await.expect_code(400).json();
        assert_eq!(answer["message"], expect);
    };
    let generic = "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    check(CONFIGS, "data.k%3Dx", generic).await;
    let generic = "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    check("/apis/apps/v1/replicasets", "status.replicas%3D1", generic).await;
    check("/api/v1/pods", "spec.x%3Dx", "field label not supported: spec.x").await;
    check("/api/v1/nodes", "metadata.namespace%3Dx", "field label not supported: metadata.namespace").await;
    let slices = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x";
    check("/apis/resource.k8s.io/v1/resourceslices", "spec.x%3Dx", slices).await;
    check("/apis/batch/v1/jobs", "spec.x%3Dx", "field label \"spec.x\" not supported for Job").await;
}
