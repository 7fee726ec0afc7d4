//! Requests to pods and services through the API server.

use kubewright_apiserver::{ApiServer, ListenOptions, UserInfo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    admission::{configure, entry},
    raw::{get, send, send_as},
    start,
    webhook::{Hook, patch},
    wire::{DEADLINE, connect, request, rest},
};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const MERGE: &str = "Content-Type: application/merge-patch+json";

/// Reads the head of a request.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// A server that answers one request with this text. Returns its port, and what it has received: the head and the body.
async fn backend(answer: &'static str, body: usize) -> (u16, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        let mut received = vec![0; body];
        stream.read_exact(&mut received).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        (head, received)
    });
    (port, task)
}

/// Creates a pod on this host.
async fn pod(api: &ApiServer, name: &str, port: u16) {
    let container = json!({"name": "main", "image": "busybox", "ports": [{"containerPort": port}]});
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}}).to_string();
    send(api, &format!("POST {NAMESPACE}/pods"), &[], pod).await.expect_code(201);
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}).to_string();
    send(api, &format!("PATCH {NAMESPACE}/pods/{name}/status"), &[MERGE], status).await.expect_code(200);
}

/// Creates a service with one endpoint, a pod of the same name.
async fn service(api: &ApiServer, name: &str, port: u16) {
    pod(api, name, port).await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": port}]);
    let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}}).to_string();
    send(api, &format!("POST {NAMESPACE}/services"), &[], service).await.expect_code(201);
    let target = json!({"kind": "Pod", "name": name, "namespace": "default"});
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}, "targetRef": target}],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    send(api, &format!("POST {path}"), &[], slice.to_string()).await.expect_code(201);
}

#[tokio::test]
async fn requests_reach_the_pod_without_the_headers_of_the_connection() {
    let (api, _) = start();
    let answer = "HTTP/1.1 201 Created\r\nX-Made: yes\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n\
                  Content-Length: 2\r\n\r\nok";
    let (port, received) = backend(answer, 5).await;
    pod(&api, "web", port).await;
    let headers = ["Authorization: Bearer secret", "Connection: X-Mine", "X-Mine: 1", "X-Kept: 2", "Host: example.com"];
    let line = format!("POST {NAMESPACE}/pods/web/proxy/a%2Fb/?c=d%20e");
    let answer = send(&api, &line, &headers, "hello").await.expect_code(201);
    assert_eq!((answer.text.as_str(), answer.header("x-made"), answer.header("x-secret")), ("ok", "yes", ""));
    let (head, body) = received.await.unwrap();
    assert!(head.starts_with("post /a%2fb/?c=d%20e http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: example.com\r\n") && head.contains("\r\nx-kept: 2\r\n"), "{head}");
    assert!(head.contains(&format!("x-forwarded-uri: {NAMESPACE}/pods/web/proxy/a%2fb/\r\n")), "{head}");
    assert!(!head.contains("secret") && !head.contains("x-mine"), "{head}");
    assert_eq!(body, b"hello");
}

#[tokio::test]
async fn requests_of_http2_have_a_host() {
    for (origin, host) in [("https://example.com:6443", "example.com:6443"), ("", "")] {
        let (api, _) = start();
        let (port, received) = backend("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0).await;
        pod(&api, "web", port).await;
        get(&api, &format!("{origin}{NAMESPACE}/pods/web/proxy/"), "*/*").await.expect_code(200);
        let (head, _) = received.await.unwrap();
        assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{head}");
    }
}

#[tokio::test]
async fn a_service_is_reached_by_the_name_or_number_of_its_port() {
    let (api, _) = start();
    for name in ["web:http", "web:80", "http:web:http"] {
        let (api, _) = start();
        let (port, received) = backend("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", 0).await;
        service(&api, "web", port).await;
        let answer = get(&api, &format!("{NAMESPACE}/services/{name}/proxy/"), "text/html").await.expect_code(302);
        assert_eq!(answer.header("location"), format!("{NAMESPACE}/services/{name}/proxy/login"));
        assert!(received.await.unwrap().0.starts_with("get / http/1.1\r\n"));
    }
    service(&api, "web", 1).await;
    for (name, code, message) in [
        ("web:other", 503, "no endpoints available for service \"web:other\""),
        ("web:81", 503, "no service port 81 found for service \"web\""),
        ("none:80", 404, "services \"none\" not found"),
        ("ftp:web:80", 400, "invalid service request \"ftp:web:80\""),
        ("https:web:http", 503, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"),
        ("web:http", 503, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"),
    ] {
        let answer = get(&api, &format!("{NAMESPACE}/services/{name}/proxy/"), "*/*").await.expect_code(code).json();
        assert_eq!(answer["message"], message, "{name}");
    }
    let answer = get(&api, &format!("{NAMESPACE}/services/web:http/proxy?a=b"), "*/*").await.expect_code(301);
    assert_eq!(answer.header("location"), format!("{NAMESPACE}/services/web:http/proxy/?a=b"));
    send(&api, &format!("TRACE {NAMESPACE}/services/web:http/proxy/"), &[], "").await.expect_code(405);
}

#[tokio::test]
async fn backends_may_speak_https_with_any_certificate() {
    let (api, _) = start();
    let (other, _) = start();
    let backend = other.listen(ListenOptions::default()).await.unwrap();
    pod(&api, "web", backend.address().port()).await;
    let answer = get(&api, &format!("{NAMESPACE}/pods/https:web:/proxy/healthz"), "text/plain").await.expect_code(200);
    assert_eq!(answer.text, "ok");
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    pod(&api, "plain", plain.local_addr().unwrap().port()).await;
    let greeter = tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"this is not TLS\r\n").await.unwrap();
        // Waits until the client has closed the connection, so that it isn't reset before.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let answer = get(&api, &format!("{NAMESPACE}/pods/https:plain:/proxy/"), "*/*").await.expect_code(503).json();
    let why = "tls: first record does not look like a TLS handshake";
    assert_eq!(answer["message"], format!("error trying to reach service: {why}"));
    greeter.await.unwrap();
    backend.shutdown().await;
}

#[tokio::test]
async fn the_method_decides_about_the_permission() {
    let (api, _) = start();
    let role = json!({
        "metadata": {"name": "proxy"}, "rules": [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    send(&api, &format!("POST {rbac}/clusterroles"), &[], role.to_string()).await.expect_code(201);
    let binding = json!({
        "metadata": {"name": "proxy"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "proxy", "apiGroup": "rbac.authorization.k8s.io"},
    });
    send(&api, &format!("POST {rbac}/clusterrolebindings"), &[], binding.to_string()).await.expect_code(201);
    let jane = UserInfo::new("jane", ["system:authenticated"]);
    for (method, code) in [("GET", 404), ("HEAD", 404), ("POST", 403), ("PUT", 403), ("DELETE", 403), ("OPTIONS", 403)]
    {
        let line = format!("{method} {NAMESPACE}/pods/web/proxy/");
        assert_eq!(send_as(&api, &jane, &line, &[], "").await.code, code, "{method}");
    }
}

#[tokio::test]
async fn a_connection_is_upgraded_through_the_proxy() {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    pod(&api, "echo", echo.local_addr().unwrap().port()).await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = echo.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            .await
            .unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        head
    });
    let mut connection = connect(&listener).await;
    let line = format!("GET {NAMESPACE}/pods/echo/proxy/talk");
    let head = request(&mut connection, &listener, &line, &["Connection: Upgrade", "Upgrade: echo"]).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: echo\r\n"), "{head}");
    connection.write_all(b"ping").await.unwrap();
    assert_eq!(rest(&mut connection).await, b"ping");
    let head = server.await.unwrap();
    assert!(head.contains("upgrade: echo\r\n") && !head.contains("authorization"), "{head}");
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
    timeout(DEADLINE, listener.shutdown()).await.expect("no task is left");
}

#[tokio::test]
async fn a_backend_that_does_not_upgrade_answers_with_its_error() {
    let (api, _) = start();
    let upgrade = ["Connection: Upgrade", "Upgrade: echo"];
    let (refusing, _refuses) = backend("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 0).await;
    let (ignoring, _ignores) = backend("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0).await;
    for (name, port) in [("refusing", refusing), ("ignoring", ignoring), ("absent", 1)] {
        pod(&api, name, port).await;
    }
    let ask = async |name| send(&api, &format!("GET {NAMESPACE}/pods/{name}/proxy/"), &upgrade, "").await;
    assert_eq!(ask("refusing").await.expect_code(403).text, "no");
    let ignored = ask("ignoring").await.expect_code(500).json();
    assert_eq!(ignored["message"], "invalid upgrade response: status code 200");
    let absent = ask("absent").await.expect_code(500).json();
    assert_eq!(absent["message"], "error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused");
}

#[tokio::test]
async fn connections_that_are_not_implemented_say_so() {
    let api = ApiServer::builder().node("n").build();
    pod(&api, "web", 80).await;
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n"}}).to_string();
    send(&api, &format!("POST {NAMESPACE}/pods/web/binding"), &[], binding).await.expect_code(201);
    for subresource in ["exec", "attach", "portforward"] {
        for method in ["GET", "POST"] {
            let answer = send(&api, &format!("{method} {NAMESPACE}/pods/web/{subresource}?command=ls"), &[], "").await;
            let status: Value = answer.expect_code(501).json();
            assert_eq!(status["reason"], "NotImplemented");
            let message = format!("the subresource pods/{subresource} is not implemented by this cluster");
            assert_eq!(status["message"], message);
        }
    }
}

#[tokio::test]
async fn admission_may_change_the_path() {
    let (api, _) = start();
    let (port, received) = backend("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0).await;
    pod(&api, "web", port).await;
    let hook = Hook::start(|_, _| patch(&json!([{"op": "replace", "path": "/path", "value": "else where/%"}]))).await;
    let rules = json!({"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/proxy"]}]});
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/m"), rules)]).await;
    get(&api, &format!("{NAMESPACE}/pods/web/proxy/here?a=b"), "*/*").await.expect_code(200);
    let (head, _) = received.await.unwrap();
    assert!(head.starts_with("get /else%20where/%25?a=b http/1.1\r\n"), "{head}");
}
