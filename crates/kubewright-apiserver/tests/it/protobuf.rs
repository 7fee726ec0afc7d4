//! Protobuf bodies, which kubectl and Go clients send for built-in kinds.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_apiserver::ApiServer;
use serde_json::Value;

use crate::raw::{RawResponse, send};

const PROTOBUF: &str = "Content-Type: application/vnd.kubernetes.protobuf";
const ACCEPT: &str = "Accept: application/json,application/vnd.kubernetes.protobuf";
const ACCEPT_PROTOBUF: &str = "Accept: application/vnd.kubernetes.protobuf, */*";

/// A server whose responses are the same in every run.
fn start() -> ApiServer {
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    ApiServer::builder().clock(clock).random(Random::seeded(1)).build()
}

async fn post(api: &ApiServer, path: &str, content: &str, body: impl Into<Vec<u8>>) -> RawResponse {
    send(api, &format!("POST {path}?fieldValidation=Strict"), &[content, ACCEPT], body).await
}

fn captured() -> Vec<Value> {
    serde_json::from_str(include_str!("../data/kubectl.json")).unwrap()
}

/// Runs on a paused clock, since the objects contain the time.
#[tokio::test(start_paused = true)]
async fn a_protobuf_body_makes_the_same_object_as_json() {
    for record in captured() {
        let (command, path) = (&record["command"], record["path"].as_str().unwrap());
        let body = STANDARD.decode(record["body"].as_str().unwrap()).unwrap();
        let made = post(&start(), path, PROTOBUF, body).await;
        assert_eq!((made.code, made.header("content-type")), (201, "application/json"), "{command}: {}", made.text);
        let twin = post(&start(), path, "Content-Type: application/json", record["object"].to_string()).await;
        assert_eq!(made.json(), twin.json(), "{command}");
    }
}

#[tokio::test]
async fn malformed_protobuf_is_refused() {
    let api = start();
    let namespace = captured().remove(0);
    let path = namespace["path"].as_str().unwrap();
    let body = STANDARD.decode(namespace["body"].as_str().unwrap()).unwrap();
    for body in
        [&body[..body.len() - 5], &body[4..], b"k8s\0", b"", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let answer = post(&api, path, PROTOBUF, body).await;
        assert_eq!((answer.code, &answer.json()["reason"]), (400, &"BadRequest".into()), "{}", answer.text);
    }
    let other = post(&api, "/api/v1/namespaces/default/pods", PROTOBUF, body.clone()).await;
    assert_eq!(other.code, 400, "{}", other.text);
    assert_eq!(send(&api, &format!("GET {path}/fixed"), &[], "").await.code, 404);
    let large = [&body[..], &vec![0; 3 << 20]].concat();
    assert_eq!(post(&api, path, PROTOBUF, large).await.code, 413);
    let only = [PROTOBUF, "Accept: application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"];
    assert_eq!(send(&api, &format!("POST {path}"), &only, body).await.code, 406);
    assert_eq!(send(&api, &format!("GET {path}/fixed"), &[], "").await.code, 404);
}

#[tokio::test]
async fn delete_options_may_be_protobuf() {
    let api = start();
    let record = captured().remove(1);
    let path = record["path"].as_str().unwrap();
    let made = post(&api, path, PROTOBUF, STANDARD.decode(record["body"].as_str().unwrap()).unwrap()).await;
    assert_eq!(made.code, 201, "{}", made.text);
    // The envelope of `v1` `DeleteOptions`, whose precondition names another uid.
    let options = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x05\x12\x03\x0a\x01u";
    let line = format!("DELETE {path}/fixed");
    assert_eq!(send(&api, &line, &[PROTOBUF], &options[..]).await.code, 409);
    let options = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x00";
    assert_eq!(send(&api, &line, &[PROTOBUF], &options[..]).await.code, 200);
}

#[tokio::test]
async fn objects_lists_and_errors_are_sent_as_protobuf() {
    const PATH: &str = "/api/v1/namespaces/default/configmaps";
    let api = start();
    let body = r#"{"metadata": {"name": "a"}, "data": {"k": "v"}}"#;
    let json = ["Content-Type: application/json", ACCEPT_PROTOBUF];
    let created = send(&api, &format!("POST {PATH}"), &json, body).await.expect_code(201);
    assert_eq!(created.header("content-type"), "application/vnd.kubernetes.protobuf");
    // What is sent back changes nothing, so nothing was lost.
    let before = send(&api, &format!("GET {PATH}/a"), &[], "").await.json();
    let both = [PROTOBUF, "Accept: application/json"];
    let after = send(&api, &format!("PUT {PATH}/a"), &both, created.body).await.expect_code(200).json();
    assert_eq!(after, before);
    let found = |answer: &RawResponse, text: &str| answer.body.windows(text.len()).any(|part| part == text.as_bytes());
    let list = send(&api, &format!("GET {PATH}"), &[ACCEPT_PROTOBUF], "").await.expect_code(200);
    assert_eq!(list.header("content-type"), "application/vnd.kubernetes.protobuf");
    assert!(list.body.starts_with(b"k8s\0") && found(&list, "ConfigMapList") && found(&list, r#"{"f:data""#));
    let missing = send(&api, &format!("GET {PATH}/b"), &[ACCEPT_PROTOBUF], "").await.expect_code(404);
    assert_eq!(missing.header("content-type"), "application/vnd.kubernetes.protobuf");
    assert!(missing.body.starts_with(b"k8s\0") && found(&missing, "configmaps \"b\" not found"));
    // There are no tables in protobuf, and the version is always JSON, so the next media type applies.
    let table = "Accept: application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
    let table = send(&api, &format!("GET {PATH}/a"), &[table], "").await.expect_code(200);
    assert_eq!((table.header("content-type"), &table.json()["kind"]), ("application/json", &"ConfigMap".into()));
    let version = send(&api, "GET /version", &[ACCEPT_PROTOBUF], "").await.expect_code(200);
    assert_eq!(version.header("content-type"), "application/json");
    let partial = "Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let partial = send(&api, &format!("GET {PATH}/a"), &[partial], "").await.expect_code(200);
    assert!(found(&partial, "PartialObjectMetadata") && !found(&partial, "ConfigMap"));
}

#[tokio::test]
async fn discovery_is_sent_as_protobuf() {
    const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let api = start();
    for (path, kind, part) in [
        ("/api", "APIVersions", "0.0.0.0/0"),
        ("/apis", "APIGroupList", "apps/v1"),
        ("/apis/apps", "APIGroup", "apps/v1"),
        ("/api/v1", "APIResourceList", "configmaps"),
        ("/apis/apps/v1", "APIResourceList", "deployments/scale"),
    ] {
        let answer = send(&api, &format!("GET {path}"), &[ACCEPT_PROTOBUF], "").await.expect_code(200);
        assert_eq!(answer.header("content-type"), "application/vnd.kubernetes.protobuf", "{path}");
        let found = |text: &str| answer.body.windows(text.len()).any(|found| found == text.as_bytes());
        assert!(answer.body.starts_with(b"k8s\0") && found(kind) && found(part), "{path}");
    }
    // Recorded on kube-apiserver 1.36.3. The verbs are a message in it, and the empty content type is the default one.
    let resources = "0a147363686564756c696e672e6b38732e696f2f7631128c010a0f7072696f72697479636c617373657310001a0d5072696f72697479436c\
                     61737322430a066372656174650a0664656c6574650a1064656c657465636f6c6c656374696f6e0a036765740a046c6973740a0570617463\
                     680a067570646174650a0577617463682a027063320d7072696f72697479636c61737342004a00520c3151776a79615a6a6a33593d";
    let answer = send(&api, "GET /apis/scheduling.k8s.io/v1", &[ACCEPT_PROTOBUF], "").await.expect_code(200);
    let hex: String = answer.body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(hex.contains(resources), "{hex}");
    for media_type in ["application/vnd.kubernetes.protobuf", "application/yaml"] {
        let accept = format!("Accept: {media_type}{AGGREGATED},application/json");
        let answer = send(&api, "GET /apis", &[&accept], "").await.expect_code(200);
        assert_eq!(answer.header("content-type"), format!("{media_type}{AGGREGATED}"));
        // A group by itself has no aggregated form.
        let answer = send(&api, "GET /apis/apps", &[&accept], "").await.expect_code(200);
        assert_eq!(answer.header("content-type"), "application/json");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_are_sent_as_protobuf() {
    const PATH: &str = "/api/v1/namespaces/default/configmaps";
    let api = start();
    let json = ["Content-Type: application/json"];
    send(&api, &format!("POST {PATH}"), &json, r#"{"metadata": {"name": "a"}}"#).await.expect_code(201);
    let watch = format!(
        "GET {PATH}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let answer = send(&api, &watch, &["Accept: application/vnd.kubernetes.protobuf;stream=watch, */*"], "").await;
    assert_eq!((answer.code, answer.header("content-type")), (200, "application/vnd.kubernetes.protobuf;stream=watch"));
    let mut rest = &answer.body[..];
    let mut events = Vec::new();
    while let Some((length, content)) = rest.split_first_chunk::<4>() {
        let (event, after) = content.split_at(u32::from_be_bytes(*length).try_into().unwrap());
        let end = 2 + usize::from(event[1]);
        events.push((String::from_utf8(event[2..end].to_vec()).unwrap(), event[end..].to_vec()));
        rest = after;
    }
    let changes: Vec<_> = events.iter().map(|(change, _)| change.as_str()).collect();
    assert_eq!(&changes[..2], ["ADDED", "BOOKMARK"]);
    let has = |index: usize, text: &[u8]| events[index].1.windows(text.len()).any(|part| part == text);
    assert!(has(0, b"k8s\0") && has(0, b"ConfigMap") && has(1, b"k8s.io/initial-events-end"));
}
