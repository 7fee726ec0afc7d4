//! Resource quotas.

use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{bare, config_maps};

/// Requests with the answers of Kubernetes 1.36.3, and the status that a quota then had.
const RECORDED: &str = include_str!("../data/quotas.jsonl");

async fn send(cluster: &Cluster, line: &str, body: &Value) -> (u16, String) {
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let path = if path.starts_with('/') { path.into() } else { format!("/api/v1/namespaces/quota-cases/{path}") };
    let request = http::Request::builder().method(method).uri(path);
    let request = match method {
        "PATCH" => request.header("content-type", "application/merge-patch+json"),
        _ => request.header("content-type", "application/json"),
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match cluster.client().request::<Value>(request.body(body).expect("a valid request")).await {
        Ok(_) => (200, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{line}: {error}"),
    }
}

/// Waits until a quota has a status.
async fn settled(cluster: &Cluster, name: &str, status: &Value) {
    let has_status = |quotas: &[&ResourceQuota]| {
        let found = quotas.iter().find(|quota| quota.name_any() == name);
        found.is_some_and(|quota| serde_json::to_value(&quota.status).is_ok_and(|found| found == *status))
    };
    if let Err(unmet) = cluster.expect::<ResourceQuota>(has_status).await {
        panic!("{name} doesn't get {status}: {unmet}");
    }
}

/// Creates a quota, and waits until its status is set.
async fn limit(cluster: &Cluster, hard: Value, used: Value) {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client());
    let quota = serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let mut status = json!({"hard": hard});
    if !used.is_null() {
        status["used"] = used;
    }
    settled(cluster, "q", &status).await;
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn quotas_admit_and_count_as_in_kubernetes() {
    let cluster = bare().await;
    send(&cluster, "POST /api/v1/namespaces", &json!({"metadata": {"name": "quota-cases"}})).await;
    cluster
        .expect::<ConfigMap>(|maps| maps.iter().any(|map| map.namespace().as_deref() == Some("quota-cases")))
        .await
        .unwrap();
    let has_account = |accounts: &[&ServiceAccount]| {
        accounts.iter().any(|account| account.namespace().as_deref() == Some("quota-cases"))
    };
    cluster.expect(has_account).await.unwrap();
    for line in RECORDED.lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        if let Some(quota) = step["quota"].as_str() {
            settled(&cluster, quota, &step["status"]).await;
            continue;
        }
        let (code, message) = send(&cluster, step["request"].as_str().unwrap(), &step["body"]).await;
        let expected = step["code"].as_u64().unwrap();
        if expected < 300 {
            assert_eq!((code, message.as_str()), (200, ""), "{line}");
            continue;
        }
        // A generated name differs.
        let skip = |message: &str| match step["body"]["metadata"]["generateName"].is_null() {
            true => message.to_owned(),
            false => message.split_once("is forbidden").map(|(_, why)| why.to_owned()).unwrap_or_default(),
        };
        assert_eq!(u64::from(code), expected, "{line}: {message}");
        assert_eq!(skip(&message), skip(step["message"].as_str().unwrap()), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_creations_never_exceed_a_quota() {
    let cluster = bare().await;
    let before =
        cluster.expect::<ConfigMap>(|maps| maps.iter().any(|map| map.namespace().as_deref() == Some("default")));
    before.await.unwrap();
    limit(&cluster, json!({"configmaps": "11"}), json!({"configmaps": "1"})).await;
    let create = |index: usize| {
        let maps = config_maps(&cluster);
        tokio::spawn(
            async move { maps.create(&PostParams::default(), &config_map(&format!("c{index}"))).await.is_ok() },
        )
    };
    let created: Vec<_> = (0..60).map(create).collect();
    let mut admitted = 0;
    for one in created {
        admitted += usize::from(one.await.unwrap());
    }
    assert_eq!(admitted, 10);
    settled(&cluster, "q", &json!({"hard": {"configmaps": "11"}, "used": {"configmaps": "11"}})).await;
    // Deletions make place.
    let maps = config_maps(&cluster);
    let name = maps.list(&kube::api::ListParams::default()).await.unwrap().items[0].name_any();
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    settled(&cluster, "q", &json!({"hard": {"configmaps": "11"}, "used": {"configmaps": "10"}})).await;
    maps.create(&PostParams::default(), &config_map("last")).await.unwrap();
}

#[tokio::test]
async fn an_object_that_is_not_created_is_not_counted() {
    let cluster = bare().await;
    limit(&cluster, json!({"services": "5"}), json!({"services": "1"})).await;
    let service = json!({"metadata": {"name": "kubernetes"}, "spec": {"ports": [{"port": 80}]}});
    let (code, _) = send(&cluster, "POST /api/v1/namespaces/default/services", &service).await;
    assert_eq!(code, 409);
    settled(&cluster, "q", &json!({"hard": {"services": "5"}, "used": {"services": "1"}})).await;
}

#[tokio::test]
async fn custom_objects_are_counted() {
    let cluster = bare().await;
    let hard = json!({"count/things.example.com": "1"});
    limit(&cluster, hard.clone(), Value::Null).await;
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
    }});
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&cluster, path, &crd).await, (200, String::new()));
    settled(&cluster, "q", &json!({"hard": hard, "used": {"count/things.example.com": "0"}})).await;
    let path = "POST /apis/example.com/v1/namespaces/default/things";
    let thing = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
    assert_eq!(send(&cluster, path, &thing("a")).await, (200, String::new()));
    let why = "things.example.com \"b\" is forbidden: exceeded quota: q, requested: count/things.example.com=1, used: \
               count/things.example.com=1, limited: count/things.example.com=1";
    assert_eq!(send(&cluster, path, &thing("b")).await, (403, why.to_owned()));
    let path = "DELETE /apis/example.com/v1/namespaces/default/things/a";
    assert_eq!(send(&cluster, path, &Value::Null).await.0, 200);
    settled(&cluster, "q", &json!({"hard": hard, "used": {"count/things.example.com": "0"}})).await;
}
