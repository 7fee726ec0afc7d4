//! What HTTP defines for every path: methods, headers, unknown paths, large bodies.

use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewright_apiserver::{ListenOptions, UserInfo, VERSION};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::{
    raw::{get, send, send_as},
    start,
    wire::{self, connect, connect_with, head, request, rest},
};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const FLOW: [&str; 2] = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];

#[tokio::test]
async fn heads_have_no_body() {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let paths = [
        ("/healthz", 200),
        ("/livez?verbose", 200),
        ("/openapi/v2", 200),
        ("/openapi/v3/api/v1", 200),
        ("/metrics", 200),
        ("/api", 405),
        ("/apis/apps/v1", 405),
        ("/version", 405),
        (CONFIGS, 405),
        ("/api/v1/nothings", 404),
        ("/nothing", 404),
    ];
    for (path, code) in paths {
        let answer = send(&api, &format!("HEAD {path}"), &[], "").await;
        assert_eq!((answer.code, answer.text.as_str()), (code, ""), "{path}");
    }
    // On one connection, so that a body would be taken for the next response.
    let mut connection = connect(&listener).await;
    for (path, code) in paths {
        let head = request(&mut connection, &listener, &format!("HEAD {path}"), &[]).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")) && head.contains("content-length: "), "{path}: {head}");
    }
    let connection = TokioIo::new(connect_with(&listener, "h2").await);
    let (mut sender, task) = hyper::client::conn::http2::handshake(TokioExecutor::new(), connection).await.unwrap();
    let task = tokio::spawn(task);
    for (path, code) in paths {
        let request = Request::head(format!("https://localhost{path}"))
            .header("Authorization", format!("Bearer {}", listener.token()))
            .body(Full::<bytes::Bytes>::default());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), code, "{path}");
        assert!(answer.headers().contains_key("content-length"), "{path}");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 0, "{path}");
    }
    drop(sender);
    task.await.unwrap().unwrap();
    listener.shutdown().await;
}

#[tokio::test]
async fn other_methods_are_refused() {
    let (api, _) = start();
    for method in ["OPTIONS", "TRACE"] {
        for path in [CONFIGS, "/api/v1", "/version"] {
            let answer = send(&api, &format!("{method} {path}"), &[], "").await.expect_code(405).json();
            assert_eq!((&answer["reason"], &answer["details"]), (&json!("MethodNotAllowed"), &json!({})), "{path}");
        }
        send(&api, &format!("{method} /healthz"), &[], "").await.expect_code(200);
        send(&api, &format!("{method} /nothing"), &[], "").await.expect_code(404);
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let (api, _) = start();
    let index = get(&api, "/", "*/*").await.expect_code(200).json();
    assert!(index["paths"].as_array().unwrap().contains(&json!("/apis/apps/v1")), "{index}");
    for path in ["/nothing", "/logs", "/debug/pprof/", "/apis/none.example.com", "/apis/none.example.com/v1/things"] {
        let answer = get(&api, path, "application/json").await.expect_code(404);
        assert_eq!(
            (answer.text.as_str(), answer.header("content-type")),
            ("404 page not found\n", "text/plain; charset=utf-8")
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    for path in ["/api/v1/nothings", "/api/v2/pods", "/api/v2", "/apis/apps/v9", "/apis/apps/v1/nothings", "/version/x"]
    {
        let answer = get(&api, path, "*/*").await.expect_code(404).json();
        assert_eq!(answer["message"], "the server could not find the requested resource", "{path}");
        assert_eq!((&answer["reason"], &answer["details"]), (&json!("NotFound"), &json!({})), "{path}");
    }
}

/// Custom resources are served by another handler in Kubernetes.
#[tokio::test]
async fn names_that_are_no_segment_of_a_path_are_refused() {
    let (api, _) = start();
    for (name, code, message) in [
        ("a%2Fb", 404, "the server could not find the requested resource"),
        ("..", 400, "Name parameter invalid: \"..\": may not be '..'"),
        ("%2E", 400, "Name parameter invalid: \".\": may not be '.'"),
        ("a%25b", 400, "Name parameter invalid: \"a%b\": may not contain '%'"),
    ] {
        let answer = get(&api, &format!("{CONFIGS}/{name}"), "application/json").await;
        assert_eq!((answer.code, answer.json()["message"].as_str()), (code, Some(message)), "{name}");
    }
}

#[tokio::test]
async fn custom_resources_differ_from_built_in_ones() {
    let (api, _) = start();
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    });
    let path = "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, path, &[], definition.to_string()).await.expect_code(201);
    let group = "/apis/example.com/v1";
    for (line, code, text) in [
        (format!("HEAD {group}/things"), 200, ""),
        (format!("HEAD {group}"), 200, ""),
        (format!("GET {group}/nothings"), 404, "404 page not found\n"),
        ("GET /apis/example.com/v9".into(), 404, "404 page not found\n"),
        (format!("POST {group}/things"), 404, "404 page not found\n"),
        (format!("PUT {group}/things"), 404, "404 page not found\n"),
        (format!("OPTIONS {group}/things"), 404, "404 page not found\n"),
        (format!("GET {group}/namespaces/default/things/x/y"), 404, "things.example.com \\\"x\\\" not found"),
    ] {
        let answer = send(&api, &line, &[], "{}").await.expect_code(code);
        assert!(answer.text.contains(text), "{line}: {}", answer.text);
    }
    let patch = format!("PATCH {group}/namespaces/default/things/x");
    let answer = send(&api, &patch, &["Content-Type: text/plain"], "{}").await.expect_code(415).json();
    assert!(answer["message"].as_str().unwrap().ends_with("application/apply-patch+yaml"), "{answer}");
    let answer = send(&api, &format!("PATCH {CONFIGS}/x"), &["Content-Type: text/plain"], "{}").await.expect_code(415);
    let status = answer.json();
    assert_eq!((&status["message"], &status["details"]), (&json!("415: Unsupported Media Type"), &json!({})));
}

#[tokio::test]
async fn unsupported_representations_are_not_acceptable() {
    let (api, _) = start();
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = get(&api, CONFIGS, "text/plain").await.expect_code(406).json();
    assert!(answer["message"].as_str().unwrap().starts_with("406: Not Acceptable\n\n"), "{answer}");
    let answer = get(&api, CONFIGS, "application/json;as=Table;v=v2;g=meta.k8s.io").await.expect_code(406).json();
    assert!(answer["message"].as_str().unwrap().starts_with("only the following media types are accepted"), "{answer}");
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
    let path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (accept, code) in [(TABLE.to_owned(), 406), (format!("{TABLE},application/json"), 201)] {
        send(&api, path, &[&format!("Accept: {accept}")], review.clone()).await.expect_code(code);
    }
}

#[tokio::test]
async fn resource_versions_are_numbers() {
    let (api, _) = start();
    let why = |text: &str, why: &str| {
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {why}")
    };
    let syntax = why("abc", "invalid syntax");
    for (query, code, message) in [
        ("?resourceVersion=abc", 400, format!("invalid resource version: {syntax}")),
        ("?resourceVersion=-1", 400, format!("invalid resource version: {}", why("-1", "invalid syntax"))),
        ("?watch=1&resourceVersion=abc", 500, syntax.clone()),
        ("/a?resourceVersion=abc", 500, syntax.clone()),
    ] {
        let status = get(&api, &format!("{CONFIGS}{query}"), "*/*").await.expect_code(code).json();
        assert_eq!(status["message"], message, "{query}");
        assert_eq!(status.get("reason").is_some(), code == 400, "{query}");
    }
}

#[tokio::test]
async fn responses_name_the_request_and_its_flow() {
    let (api, _) = start();
    let staff = UserInfo::new("jane", ["system:authenticated"]);
    let uids = |answer: &crate::raw::RawResponse| FLOW.map(|name| answer.header(name).to_owned());
    let answer = get(&api, "/version", "*/*").await;
    let exempt = uids(&answer);
    assert!(exempt.iter().all(|uid| uid.len() == 36), "{exempt:?}");
    assert_eq!((answer.header("audit-id").len(), answer.header("cache-control")), (36, "no-cache, private"));
    for path in [CONFIGS, "/nothing", "/api/v1/nothings", "/openapi/v2", "/metrics"] {
        let again = get(&api, path, "*/*").await;
        assert_eq!(uids(&again), exempt, "{path}: all requests of administrators are in one flow");
        assert_ne!(again.header("audit-id"), answer.header("audit-id"));
        assert_eq!(again.header("cache-control"), "no-cache, private", "{path}");
    }
    let denied = send_as(&api, &staff, &format!("GET {CONFIGS}"), &["Audit-ID: mine"], "").await.expect_code(403);
    assert_eq!((denied.header("audit-id"), denied.header("x-content-type-options")), ("mine", "nosniff"));
    assert!(uids(&denied).iter().all(|uid| uid.len() == 36) && uids(&denied) != exempt);
    // Neither requests without a user nor those that last as long as the client wants have a flow.
    let unauthorized = Request::get("/version").header("Authorization", "Bearer x").body(Full::from("")).unwrap();
    let unauthorized = api.handle(unauthorized).await;
    assert_eq!(unauthorized.status(), 401);
    assert!(unauthorized.headers().contains_key("audit-id") && !unauthorized.headers().contains_key(FLOW[0]));
    // Credentials of an unknown scheme are those of nobody.
    let basic = Request::get(CONFIGS).header("Authorization", "Basic YTpi").body(Full::from("")).unwrap();
    assert_eq!(api.handle(basic).await.status(), 403);
    let log = get(&api, "/api/v1/namespaces/default/pods/p/log", "*/*").await;
    assert_eq!(uids(&log), ["", ""]);
}

#[tokio::test]
async fn a_large_body_is_read_before_the_response() {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let mut connection = connect(&listener).await;
    let body = vec![b' '; 4 << 20];
    let head_sent = format!(
        "POST {CONFIGS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        listener.token(),
        body.len()
    );
    connection.write_all(head_sent.as_bytes()).await.unwrap();
    // The client reads nothing until it has sent everything.
    connection.write_all(&body).await.unwrap();
    let answer = head(&mut connection).await;
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    connection.shutdown().await.unwrap();
    let body = String::from_utf8(rest(&mut connection).await).unwrap();
    assert!(body.contains("Request entity too large: limit is 3145728"), "{body}");
    listener.shutdown().await;
}

#[tokio::test]
async fn the_version_is_a_release() {
    let (api, _) = start();
    let version = get(&api, "/version", "*/*").await.json();
    assert_eq!((&version["gitVersion"], VERSION), (&json!("v1.36.3+kubewright"), "v1.36.3+kubewright"));
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
}

#[tokio::test]
async fn deprecated_paths_watch() {
    let (api, _) = start();
    for name in ["a", "b"] {
        let config = json!({"metadata": {"name": name}}).to_string();
        send(&api, &format!("POST {CONFIGS}"), &[], config).await.expect_code(201);
    }
    let names = async |path: &str| {
        let text = get(&api, &format!("{path}?timeoutSeconds=1"), "*/*").await.expect_code(200).text;
        let name = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["object"]["metadata"]["name"].as_str().unwrap().to_owned()
        };
        text.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("/api/v1/watch/configmaps").await, ["a", "b"]);
    assert_eq!(names("/api/v1/watch/namespaces/default/configmaps").await, ["a", "b"]);
    assert_eq!(names("/api/v1/watch/namespaces/default/configmaps/b").await, ["b"]);
    assert_eq!(names("/api/v1/watch/namespaces/default").await, ["default"]);
    send(&api, "DELETE /api/v1/watch/configmaps", &[], "").await.expect_code(405);
    get(&api, "/api/v1/watch/nothings", "*/*").await.expect_code(404);
    let staff = UserInfo::new("jane", ["system:authenticated"]);
    let denied = send_as(&api, &staff, "GET /api/v1/watch/namespaces/default/configmaps/b", &[], "").await;
    assert!(denied.text.contains("cannot watch resource \\\"configmaps\\\""), "{}", denied.text);
}

#[tokio::test]
async fn metrics_count_requests() {
    let (api, _) = start();
    let staff = UserInfo::new("jane", ["system:authenticated"]);
    send_as(&api, &staff, "GET /metrics", &[], "").await.expect_code(403);
    send_as(&api, &UserInfo::new("prometheus", ["system:monitoring"]), "GET /metrics", &[], "").await.expect_code(200);
    get(&api, "/api/v1/configmaps", "*/*").await.expect_code(200);
    get(&api, &format!("{CONFIGS}/a"), "*/*").await.expect_code(404);
    let watch = api.handle(
        Request::get("/api/v1/configmaps?watch=true")
            .extension(Arc::new(UserInfo::admin()))
            .body(Full::from(""))
            .unwrap(),
    );
    let watch = watch.await;
    let answer = get(&api, "/metrics", "*/*").await.expect_code(200);
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let has = |text: &str, start: &str, parts: &[&str], end: &str| {
        let fits = |line: &&str| {
            line.starts_with(start) && parts.iter().all(|part| line.contains(part)) && line.ends_with(end)
        };
        assert!(text.lines().any(|line| fits(&line)), "{start} {parts:?} {end}\n{text}");
    };
    let total = "apiserver_request_total{";
    has(
        &answer.text,
        total,
        &[r#"verb="LIST""#, r#"resource="configmaps""#, r#"scope="cluster""#, r#"code="200""#],
        " 1",
    );
    has(
        &answer.text,
        total,
        &[r#"verb="GET""#, r#"resource="configmaps""#, r#"scope="resource""#, r#"code="404""#],
        " 1",
    );
    has(&answer.text, total, &[r#"subresource="/metrics""#, r#"code="200""#], " 1");
    has(&answer.text, "apiserver_request_duration_seconds_count{", &[r#"verb="LIST""#], " 1");
    has(&answer.text, "apiserver_longrunning_requests{", &[r#"verb="WATCH""#, r#"resource="configmaps""#], " 1");
    has(&answer.text, "apiserver_current_inflight_requests{", &[r#"request_kind="readOnly""#], " 1");
    has(&answer.text, "apiserver_storage_objects{", &[r#"resource="namespaces""#], " 4");
    has(&answer.text, "apiserver_resource_objects{", &[r#"resource="clusterroles""#, "rbac"], "");
    has(&answer.text, "process_start_time_seconds ", &[], "");
    drop(watch);
    let text = get(&api, "/metrics", "*/*").await.text;
    has(&text, "apiserver_longrunning_requests{", &[r#"verb="WATCH""#, r#"resource="configmaps""#], " 0");
}

#[tokio::test]
async fn the_issuer_of_tokens_is_discovered() {
    let (api, _) = start();
    let answer = send(&api, "GET /.well-known/openid-configuration", &["Host: example.com:6443"], "").await;
    assert_eq!((answer.code, answer.header("content-type")), (200, "application/json"));
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    let configuration = answer.json();
    assert_eq!(configuration["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(configuration["jwks_uri"], "https://example.com:6443/openid/v1/jwks");
    let answer = get(&api, "/openid/v1/jwks", "*/*").await.expect_code(200);
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    assert_eq!(answer.json()["keys"][0]["alg"], configuration["id_token_signing_alg_values_supported"][0]);
    send(&api, "POST /openid/v1/jwks", &[], "").await.expect_code(405);
    let account = UserInfo::service_account("default", "default");
    send_as(&api, &account, "GET /openid/v1/jwks", &[], "").await.expect_code(200);
    send_as(&api, &UserInfo::anonymous(), "GET /openid/v1/jwks", &[], "").await.expect_code(403);
}

#[tokio::test]
async fn component_statuses_are_computed() {
    let api = kubewright_apiserver::ApiServer::builder().component("scheduler").build();
    let path = "/api/v1/componentstatuses";
    let answer = get(&api, path, "application/json").await.expect_code(200);
    assert_eq!(answer.header("warning"), "299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
    let list = answer.json();
    assert_eq!((&list["kind"], &list["metadata"]), (&json!("ComponentStatusList"), &json!({})));
    let table = get(&api, path, "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect_code(200).json();
    let cells = |row: &serde_json::Value| (row["cells"][0].clone(), row["cells"][1].clone());
    let rows: Vec<_> = table["rows"].as_array().unwrap().iter().map(cells).collect();
    let expect = [("controller-manager", "Unhealthy"), ("etcd-0", "Healthy"), ("scheduler", "Healthy")];
    assert_eq!(rows, expect.map(|(name, status)| (json!(name), json!(status))));
    let one = get(&api, &format!("{path}/etcd-0"), "application/json").await.expect_code(200).json();
    assert_eq!(one["metadata"], json!({"name": "etcd-0"}));
    assert_eq!(one["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    let missing = get(&api, &format!("{path}/none"), "application/json").await.expect_code(404).json();
    assert_eq!(missing["message"], "componentstatus \"none\" not found");
    let few = get(&api, &format!("{path}?fieldSelector=metadata.name%3Detcd-0"), "application/json").await.json();
    assert_eq!(few["items"].as_array().unwrap().len(), 1);
    for line in [format!("POST {path}"), format!("DELETE {path}/etcd-0"), format!("GET {path}?watch=1")] {
        send(&api, &line, &[], "{}").await.expect_code(405);
    }
}

#[tokio::test]
async fn requests_end_with_the_time_that_the_client_gives_them() {
    let (api, _) = start();
    let malformed = send(&api, "GET /api/v1/namespaces?timeout=xx", &[], "").await;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"xx\"";
    assert_eq!((malformed.code, &malformed.json()["message"]), (400, &json!(message)));
    for (path, code) in [
        ("/api/v1/namespaces?timeout=10s", 200),
        ("/api/v1/namespaces?timeout=0", 200),
        ("/api/v1/namespaces?timeoutSeconds=1", 200),
        ("/api/v1/namespaces?watch=1&timeoutSeconds=1&timeout=xx", 200),
    ] {
        assert_eq!(send(&api, &format!("GET {path}"), &[], "").await.code, code, "{path}");
    }
    // The server waits for three seconds until it has seen this version.
    let late = send(&api, "GET /api/v1/namespaces?resourceVersion=100000&timeout=1ms", &[], "").await;
    let message = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((late.code, &late.json()["message"], &late.json()["reason"]), (504, &json!(message), &json!("Timeout")));
}

#[tokio::test]
async fn text_for_people_is_indented() {
    let (api, _) = start();
    let text = send(&api, &format!("GET {CONFIGS}?pretty=true"), &[], "").await.text;
    assert!(text.starts_with("{\n  \"kind\": \"ConfigMapList\",\n") && text.ends_with("\n}"), "{text}");
    let agent = ["User-Agent: curl/8.1"];
    assert!(send(&api, "GET /api/v1/nothings", &agent, "").await.text.starts_with("{\n  \"kind\": \"Status\",\n"));
    assert!(send(&api, "GET /openapi/v3/api/v1", &agent, "").await.text.starts_with("{\""));
    let watch = send(&api, &format!("GET {CONFIGS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), &agent, "").await;
    assert!(watch.text.lines().all(|line| line.starts_with("{\"type\":\"BOOKMARK\"")), "{}", watch.text);
}

#[tokio::test]
async fn documents_at_addresses_with_their_hash_may_be_kept() {
    let (api, _) = start();
    let index = send(&api, "GET /openapi/v3", &[], "").await.json();
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let current = send(&api, &format!("GET {address}"), &[], "").await;
    assert_eq!((current.code, current.header("cache-control")), (200, "public, immutable"));
    assert!(current.header("expires").ends_with(" UTC"));
    let old = send(&api, "GET /openapi/v3/apis/apps/v1?hash=ABC", &[], "").await;
    assert_eq!((old.code, old.header("location")), (301, address.as_str()));
    let plain = send(&api, "GET /openapi/v3/apis/apps/v1", &[], "").await;
    assert_eq!(plain.header("cache-control"), "no-cache, private");
}

#[tokio::test]
async fn clients_are_asked_for_certificates_of_the_servers_authority() {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let hints = wire::authorities(&listener).await;
    assert!(hints.len() == 1 && String::from_utf8_lossy(&hints[0]).contains("kubewright"), "{hints:?}");
}
