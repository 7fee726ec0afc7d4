//! Limits of the memory and connections that clients can use.

use std::{sync::Arc, time::Duration};

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewright_apiserver::{ApiServer, ListenOptions, Listener, UserInfo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    raw::{RawResponse, send, send_as},
    start, wire,
};

const MERGE: &str = "Content-Type: application/merge-patch+json";
const LIMIT: usize = 3 << 19;

#[track_caller]
fn too_large(answer: RawResponse) {
    let status = answer.expect_code(500).json();
    assert_eq!((&status["message"], &status["code"]), (&json!("etcdserver: request is too large"), &json!(500)));
}

/// A kind whose objects may hold anything.
async fn define(api: &ApiServer) {
    let definition = json!({
        "metadata": {"name": "blobs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "blobs", "kind": "Blob"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(api, path, &[], definition.to_string()).await.expect_code(201);
}

const BLOBS: &str = "/apis/example.com/v1/blobs";

fn blob(name: &str, bytes: usize) -> String {
    json!({
        "apiVersion": "example.com/v1", "kind": "Blob", "metadata": {"name": name}, "data": "x".repeat(bytes),
    })
    .to_string()
}

#[tokio::test]
async fn an_object_larger_than_a_request_to_etcd_is_not_created() {
    let (api, _) = start();
    define(&api).await;
    send(&api, &format!("POST {BLOBS}"), &[], blob("fits", LIMIT - 1024)).await.expect_code(201);
    too_large(send(&api, &format!("POST {BLOBS}"), &[], blob("large", LIMIT)).await);
    send(&api, &format!("GET {BLOBS}/large"), &[], "").await.expect_code(404);
    // As in Kubernetes, a dry run writes nothing, and so nothing is too large.
    send(&api, &format!("POST {BLOBS}?dryRun=All"), &[], blob("large", LIMIT)).await.expect_code(201);
}

/// As in Kubernetes, an object without its managed fields isn't the result of an apply.
#[tokio::test]
async fn an_applied_object_is_stored_with_its_managed_fields_or_not_at_all() {
    let (api, _) = start();
    let data: serde_json::Map<String, Value> = (0..12_000).map(|index| (format!("k{index:059}"), "".into())).collect();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}).to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    let apply = format!("PATCH {path}/c?fieldManager=a");
    too_large(send(&api, &apply, &["Content-Type: application/apply-patch+yaml"], config.clone()).await);
    let created = send(&api, &format!("POST {path}"), &[], config).await.expect_code(201).json();
    assert_eq!(created["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn an_object_does_not_grow_past_the_limit_by_updates_patches_or_status() {
    let (api, _) = start();
    define(&api).await;
    send(&api, &format!("POST {BLOBS}"), &[], blob("a", LIMIT / 2)).await.expect_code(201);
    let more = |field: &str| json!({field: {"more": "y".repeat(LIMIT / 2)}}).to_string();
    too_large(send(&api, &format!("PATCH {BLOBS}/a"), &[MERGE], more("spec")).await);
    too_large(send(&api, &format!("PATCH {BLOBS}/a/status"), &[MERGE], more("status")).await);
    let copy =
        json!([{"op": "copy", "from": "/data", "path": "/copy"}, {"op": "copy", "from": "/data", "path": "/again"}]);
    let json_patch = ["Content-Type: application/json-patch+json"];
    too_large(send(&api, &format!("PATCH {BLOBS}/a"), &json_patch, copy.to_string()).await);
    let stored = send(&api, &format!("GET {BLOBS}/a"), &[], "").await.expect_code(200);
    assert!(stored.text.len() < LIMIT * 2 / 3, "the object is as it was");
    let version = stored.json()["metadata"]["resourceVersion"].clone();
    let mut update = stored.json();
    update["more"] = "y".repeat(LIMIT / 2).into();
    too_large(send(&api, &format!("PUT {BLOBS}/a"), &[], update.to_string()).await);
    let stored = send(&api, &format!("GET {BLOBS}/a"), &[], "").await.json();
    assert_eq!(stored["metadata"]["resourceVersion"], version);
}

#[tokio::test]
async fn an_object_that_is_too_large_loses_its_managed_fields() {
    let (api, _) = start();
    define(&api).await;
    // Many small fields: the managed fields take as much space again.
    let fields: serde_json::Map<String, Value> =
        (0..30_000).map(|number| (format!("field-number-{number:06}"), json!(1))).collect();
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Blob", "metadata": {"name": "a"},
        "many": fields, "data": "x".repeat(LIMIT / 2),
    });
    let stored = send(&api, &format!("POST {BLOBS}"), &[], object.to_string()).await.expect_code(201).json();
    assert!(stored["metadata"].get("managedFields").is_none(), "the object is stored without them");
}

#[tokio::test]
async fn the_record_of_denied_requests_is_bounded() {
    let (api, _) = start();
    let user = UserInfo::new("mallory", ["system:authenticated"]);
    for number in 0..3_000 {
        let path = format!("GET /secret/{number}/{}", "x".repeat(10_000));
        send_as(&api, &user, &path, &[], "").await.expect_code(403);
        let path = format!("GET /apis/group{number}.{}/v1/things", "x".repeat(10_000));
        send_as(&api, &user, &path, &[], "").await.expect_code(403);
    }
    let denied = api.usage("mallory").denied;
    assert!(denied.len() <= 1_000, "{} entries", denied.len());
    let bytes: usize = denied.keys().map(|attempt| attempt.path.len() + attempt.group.len()).sum();
    assert!(bytes < 300_000, "{bytes} bytes");
    let path = denied.iter().find(|(attempt, _)| !attempt.path.is_empty()).unwrap();
    assert_eq!((path.0.path.as_str(), *path.1), ("/secret/*", 3_000), "paths are known by their first segment");
}

#[tokio::test]
async fn the_record_of_users_is_bounded() {
    let (api, _) = start();
    for number in 0..1_500 {
        let user = UserInfo::new(format!("user-{number}"), ["system:authenticated"]);
        send_as(&api, &user, "GET /metrics", &[], "").await.expect_code(403);
        if number == 900 {
            let first = UserInfo::new("user-0", ["system:authenticated"]);
            send_as(&api, &first, "GET /metrics", &[], "").await.expect_code(403);
        }
    }
    assert_eq!(api.usage("user-1499").denied.len(), 1, "new users are remembered");
    assert_eq!(api.usage("user-0").denied.len(), 1, "so are those that were seen lately");
    assert_eq!(api.usage("user-1").denied.len(), 0, "the one seen least lately is forgotten");
}

#[tokio::test]
async fn connections_are_limited() {
    let (api, _) = start();
    let mut options = ListenOptions::default();
    options.max_connections = 2;
    let listener = api.listen(options).await.unwrap();
    let connect = || TcpStream::connect(listener.address());
    // Not TLS: the server answers each with an alert as soon as it has been accepted.
    let greeted = async |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        timeout(Duration::from_millis(300), stream.read_to_end(&mut answer)).await.is_ok()
    };
    let (first, second) = (connect().await.unwrap(), connect().await.unwrap());
    let mut third = connect().await.unwrap();
    assert!(!greeted(&mut third).await, "the third waits");
    drop(first);
    let mut rest = Vec::new();
    // The connection ends with an alert or a reset; either way the server has read and refused the request.
    let _ = timeout(Duration::from_secs(10), third.read_to_end(&mut rest)).await.expect("it is served by now");
    drop(second);
    listener.shutdown().await;
}

/// An HTTP/2 connection, and the task that ends with it.
struct Http2 {
    requests: SendRequest<Empty<Bytes>>,
    closed: JoinHandle<()>,
    token: String,
}

impl Http2 {
    async fn connect(listener: &Listener) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(listener.authority().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(listener.address()).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream);
        let stream = timeout(Duration::from_secs(10), stream).await.expect("the server accepts it").unwrap();
        let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let closed = tokio::spawn(async move { drop(connection.await) });
        Self { requests, closed, token: listener.token().to_owned() }
    }

    async fn get(&mut self, path: &str) -> Incoming {
        let request = Request::get(format!("https://localhost{path}"));
        let request = request.header("authorization", format!("Bearer {}", self.token)).body(Empty::new()).unwrap();
        let response = self.requests.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    }
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let (api, _) = start();
    let mut options = ListenOptions::default();
    (options.max_connections, options.idle_timeout) = (1, Duration::from_secs(2));
    let listener = api.listen(options).await.unwrap();
    let mut first = Http2::connect(&listener).await;
    let watch = first.get("/api/v1/namespaces?watch=true").await;
    let closed = timeout(Duration::from_secs(3), &mut first.closed).await.is_ok();
    assert!(!closed, "a connection with a watch was closed");
    let list = first.get("/api/v1/namespaces").await.collect().await.unwrap().to_bytes();
    assert!(list.starts_with(b"{"));
    drop(watch);
    timeout(Duration::from_secs(10), &mut first.closed).await.expect("an idle connection is closed").unwrap();
    // It no longer counts against the limit.
    drop(Http2::connect(&listener).await);
    listener.shutdown().await;
}

#[tokio::test]
async fn connections_with_incomplete_requests_are_closed() {
    let (api, _) = start();
    let mut options = ListenOptions::default();
    options.idle_timeout = Duration::from_secs(1);
    let listener = api.listen(options).await.unwrap();
    let mut stream = wire::connect(&listener).await;
    stream.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\nx-part: ").await.unwrap();
    let mut received = Vec::new();
    let end = timeout(Duration::from_secs(10), stream.read_to_end(&mut received)).await;
    assert!(end.is_ok(), "the connection is still open");
    assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
    listener.shutdown().await;
}

#[tokio::test]
async fn the_token_of_a_closed_listener_is_invalid() {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let other = api.listen(ListenOptions::default()).await.unwrap();
    let (token, kept) = (listener.token().to_owned(), other.token().to_owned());
    let review = async |token: &str| {
        let question = json!({"spec": {"token": token}}).to_string();
        let path = "POST /apis/authentication.k8s.io/v1/tokenreviews";
        send(&api, path, &[], question).await.expect_code(201).json()["status"]["authenticated"] == true
    };
    assert!(review(&token).await && review(&kept).await);
    listener.shutdown().await;
    assert!(!review(&token).await, "after a shutdown");
    assert!(review(&kept).await, "another listener goes on");
    drop(other);
    assert!(!review(&kept).await, "after a drop");
}
