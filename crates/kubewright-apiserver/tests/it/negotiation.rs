//! Content negotiation, health, version and discovery.

use std::io::Read;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    raw::{get, send},
    start,
};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn with_pod() -> kubewright_apiserver::ApiServer {
    let (api, client) = start();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::default_namespaced(client).create(&PostParams::default(), &pod).await.unwrap();
    api
}

#[tokio::test]
async fn tables() {
    let api = with_pod().await;
    for path in [PODS.to_owned(), format!("{PODS}/p")] {
        let table = get(&api, &path, TABLE).await.json();
        assert_eq!(table["kind"], "Table", "{path}");
        assert_eq!(table["columnDefinitions"][0]["name"], "Name");
        assert_eq!(table["rows"][0]["cells"][0], "p");
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    }
    let watch = get(&api, &format!("{PODS}?watch=true&timeoutSeconds=1"), TABLE).await.text;
    let event: serde_json::Value = serde_json::from_str(watch.lines().next().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(get(&api, &format!("{PODS}?includeObject=All"), TABLE).await.code, 400);
}

#[tokio::test]
async fn a_large_table_has_all_rows() {
    let (api, _) = start();
    for number in 0..1001 {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number:04}")}});
        send(&api, "POST /api/v1/namespaces/default/configmaps", &[], body.to_string()).await;
    }
    let table = get(&api, "/api/v1/configmaps", TABLE).await.json();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[1000]["cells"][0]), (1001, &json!("c1000")));
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
}

#[tokio::test]
async fn metadata_only_and_yaml() {
    let (api, client) = start();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    let list = namespaces.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 4);
    let yaml = get(&api, "/api/v1/namespaces/default", "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text.contains("name: default\n"), "{}", yaml.text);
    let body = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: made\n";
    let made = send(&api, "POST /api/v1/namespaces", &["Content-Type: application/yaml"], body).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

#[tokio::test]
async fn empty_lists_of_metadata_and_tables_without_columns_of_the_kind_are_null() {
    let api = with_pod().await;
    let get = async |path: &str, shown: &str| {
        let accept = format!("Accept: application/json;as={shown};v=v1;g=meta.k8s.io");
        send(&api, &format!("GET {path}"), &[&accept], "").await.expect_code(200).json()
    };
    let pods = "/api/v1/namespaces/none/pods";
    assert_eq!(get(pods, "PartialObjectMetadataList").await["items"], Value::Null);
    assert_eq!(get(pods, "Table").await["rows"], json!([]));
    let ranges = get("/api/v1/limitranges", "Table").await;
    assert_eq!(
        (ranges.get("rows"), ranges["columnDefinitions"].as_array().map(Vec::len)),
        (Some(&Value::Null), Some(2))
    );
}

#[tokio::test]
async fn unsupported_media_types_are_refused() {
    let api = with_pod().await;
    assert_eq!(get(&api, PODS, "application/cbor").await.code, 406);
    assert_eq!(get(&api, PODS, "application/vnd.kubernetes.protobuf,application/json").await.code, 200);
    let protobuf = ["Content-Type: application/vnd.kubernetes.protobuf"];
    assert_eq!(send(&api, &format!("POST {PODS}"), &protobuf, "k8s\0").await.code, 400);
    let cbor = ["Content-Type: application/cbor"];
    assert_eq!(send(&api, &format!("POST {PODS}"), &cbor, "{}").await.code, 415);
    assert_eq!(send(&api, &format!("PATCH {PODS}/p"), &["Content-Type: text/plain"], "{}").await.code, 415);
    for (line, code) in [
        ("GET /api/v1/nothings", 404),
        ("GET /api/v2/pods", 404),
        ("GET /api/v1/pods/p", 404),
        ("GET /api/v1/namespaces/default/pods/p/nothing", 404),
        ("GET /api/v1/namespaces/default/namespaces", 404),
        ("POST /api/v1/pods", 405),
        ("PUT /api/v1/namespaces/default/pods", 405),
        ("POST /api/v1/namespaces/default/pods/p", 405),
        ("POST /version", 405),
        ("DELETE /api/v1/namespaces", 405),
    ] {
        let answer = send(&api, line, &[], "").await;
        assert_eq!((answer.code, &answer.json()["kind"]), (code, &json!("Status")), "{line}");
    }
}

#[tokio::test]
async fn health_version_and_discovery() {
    let api = with_pod().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(get(&api, path, "*/*").await.text, "ok");
        assert!(get(&api, &format!("{path}?verbose"), "*/*").await.text.contains("check passed"));
    }
    let excluded = get(&api, "/readyz?verbose&exclude=etcd&exclude=x", "*/*").await.text;
    let warning = "warn: some health checks cannot be excluded: no matches for \"x\"";
    assert!(excluded.starts_with("[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n"), "{excluded}");
    assert!(excluded.ends_with(&format!("[+]shutdown ok\n{warning}\nreadyz check passed\n")), "{excluded}");
    assert_eq!(get(&api, "/livez/etcd?verbose", "*/*").await.text, "ok");
    for (path, code) in [
        ("/livez/poststarthook/rbac/bootstrap-roles", 200),
        ("/readyz/informer-sync", 200),
        ("/livez/informer-sync", 404),
        ("/livez/", 404),
        ("/livez/ping/", 404),
        ("/metrics/", 404),
        ("/index.html", 200),
        ("/version/", 200),
    ] {
        assert_eq!(get(&api, path, "*/*").await.code, code, "{path}");
    }
    let version = get(&api, "/version", "*/*").await.json();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
    let resources = get(&api, "/api/v1", "application/json").await.json();
    assert!(resources["resources"].as_array().unwrap().iter().any(|resource| resource["name"] == "pods/status"));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let groups = get(&api, "/apis", accept).await;
    assert_eq!(groups.json()["kind"], "APIGroupDiscoveryList");
    let etag = format!("If-None-Match: {}", groups.header("etag"));
    assert_eq!(send(&api, "GET /apis", &[&format!("Accept: {accept}"), &etag], "").await.code, 304);
    assert_eq!(get(&api, "/apis", "application/json").await.json()["kind"], "APIGroupList");
    let index = get(&api, "/openapi/v3", "application/json").await.json();
    let version = index["paths"]["version"]["serverRelativeURL"].as_str().unwrap();
    assert!(get(&api, version, "application/json").await.json()["paths"]["/version/"].is_object());
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(get(&api, address, "application/json").await.json()["paths"].is_object());
    assert!(get(&api, "/openapi/v2", "application/json").await.json()["definitions"].is_object());
}

#[tokio::test]
async fn large_objects_and_lists_are_compressed_for_clients_that_accept_gzip() {
    let (api, _) = start();
    let gzip = "Accept-Encoding: deflate, gzip";
    let text = |place: usize| format!("{place} ").repeat(20_000);
    for place in 0..3 {
        let object = json!({"metadata": {"name": format!("large-{place}")}, "data": {"text": text(10 * place + 1)}});
        send(&api, &format!("POST {CONFIGS}"), &[], object.to_string()).await.expect_code(201);
    }
    let object = format!("GET {CONFIGS}/large-2");
    let (list, page) = (format!("GET {CONFIGS}"), format!("GET {CONFIGS}?limit=2"));
    let protobuf = "Accept: application/vnd.kubernetes.protobuf";
    let pretty = format!("GET {CONFIGS}?pretty=true");
    for (line, accept, is_large) in [
        (&list, "Accept: application/json", true),
        (&list, protobuf, true),
        (&list, "Accept: application/yaml", true),
        (&pretty, "Accept: application/json", true),
        (&page, "Accept: application/json", false),
        (&object, "Accept: application/json", false),
    ] {
        let plain = send(&api, line, &[accept], "").await.expect_code(200);
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", ""), "{line}");
        assert_eq!(plain.body.len() > 128 << 10, is_large, "{line}");
        let sent = send(&api, line, &[accept, gzip], "").await.expect_code(200);
        if !is_large {
            assert_eq!(sent.header("content-encoding"), "", "{line}");
            assert!(sent.body == plain.body, "{line}");
            continue;
        }
        assert_eq!((sent.header("content-encoding"), sent.header("vary")), ("gzip", "Accept-Encoding"), "{line}");
        let mut unpacked = Vec::new();
        GzDecoder::new(&*sent.body).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain.body && sent.body.len() < unpacked.len() / 10, "{line}");
    }
    // Another media type, and documents that are no objects.
    for line in ["GET /openapi/v2", "GET /metrics"] {
        assert_eq!(send(&api, line, &[gzip], "").await.header("content-encoding"), "", "{line}");
    }
}

#[tokio::test]
async fn the_results_of_health_checks_are_metrics() {
    let (api, _) = start();
    let metrics = async || get(&api, "/metrics/slis", "*/*").await.expect_code(200).text;
    assert_eq!(metrics().await, "");
    for _ in 0..2 {
        get(&api, "/readyz", "*/*").await.expect_code(200);
    }
    let text = metrics().await;
    assert!(text.contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\n"), "{text}");
    let total = "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 2\n";
    assert!(text.contains(total) && !text.contains("livez"), "{text}");
    assert_eq!(send(&api, "DELETE /metrics/slis", &[], "").await.text, "metrics reset\n");
    assert_eq!(metrics().await, "");
}

#[tokio::test]
async fn pages_about_the_server_are_text_or_objects() {
    let (api, _) = start();
    for (path, kind) in [("/statusz", "Statusz"), ("/flagz", "Flagz")] {
        for accept in ["*/*", "text/plain", "text/html, */*;q=0.1"] {
            let page = get(&api, path, accept).await.expect_code(200);
            assert_eq!(page.header("content-type"), "text/plain; charset=utf-8");
            let title = format!("\napiserver {}\nWarning: This endpoint is not meant", kind.to_lowercase());
            assert!(page.text.starts_with(&title), "{}", page.text);
        }
        let accept = |version: &str| format!("application/json;as={kind};g=config.k8s.io;v={version}");
        let page = get(&api, path, &accept("v1beta1")).await.expect_code(200);
        assert_eq!(page.header("content-type"), format!("application/json;g=config.k8s.io;v=v1beta1;as={kind}"));
        let document = page.json();
        assert_eq!((&document["kind"], &document["apiVersion"]), (&json!(kind), &json!("config.k8s.io/v1beta1")));
        assert_eq!(document["metadata"], json!({"name": "apiserver"}));
        let old = get(&api, path, &accept("v1alpha1")).await.expect_code(200);
        assert!(old.header("warning").contains("endpoint is deprecated"), "{:?}", old.headers);
        for accept in ["application/json", "text/html", "application/yaml", &accept("v1")] {
            let refused = get(&api, path, accept).await.expect_code(406).text;
            assert!(refused.contains("application/json, application/yaml, text/plain"), "{refused}");
        }
    }
    let status = get(&api, "/statusz", "application/json;as=Statusz;g=config.k8s.io;v=v1beta1").await.json();
    assert_eq!(status["binaryVersion"], "1.36");
    assert!(status["uptimeSeconds"].as_u64().is_some_and(|seconds| seconds < 600), "{status}");
    let nobody = kubewright_apiserver::UserInfo::new("nobody", ["system:authenticated"]);
    for path in ["/statusz", "/flagz", "/metrics/slis"] {
        assert_eq!(crate::raw::send_as(&api, &nobody, &format!("GET {path}"), &[], "").await.code, 403, "{path}");
    }
}

#[tokio::test]
async fn open_id_documents_have_one_media_type() {
    let (api, _) = start();
    let (keys, configuration) = ("/openid/v1/jwks", "/.well-known/openid-configuration");
    for (path, accept, code) in [
        (keys, "*/*", 200),
        (keys, "application/jwk-set+json", 200),
        (keys, "application/json", 406),
        (configuration, "application/json", 200),
        (configuration, "text/plain", 406),
    ] {
        assert_eq!(get(&api, path, accept).await.code, code, "{path} {accept}");
    }
}
