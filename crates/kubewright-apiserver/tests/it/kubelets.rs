//! Logs, commands and ports of pods whose nodes other programs run, and requests to these nodes.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty};
use kubewright_apimachinery::certificate::Certificate;
use kubewright_apiserver::{ApiServer, ListenOptions, Listener, UserInfo};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    raw::{get, send},
    start,
    websocket::{Socket, UPGRADE},
    wire::{DEADLINE, connect, request, rest},
};

const POD: &str = "/api/v1/namespaces/default/pods/web";
const SPDY: [&str; 2] = ["Connection: Upgrade", "Upgrade: SPDY/3.1"];
/// The answer to the key of [`UPGRADE`], the example of RFC 6455.
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A kubelet, which requires a client certificate of the API server's authority.
struct Kubelet {
    port: u16,
    /// The heads of requests.
    heads: Arc<Mutex<Vec<String>>>,
    /// The subjects of client certificates.
    subjects: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Lets a followed log continue.
    more: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    /// Starts a kubelet, with a node `other` and a pod `web` there.
    async fn start(api: &ApiServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config(api).await));
        let (heads, subjects, more) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<_>>>, Arc<Notify>)>::default();
        let state = (heads.clone(), subjects.clone(), more.clone());
        let task = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, (heads, subjects, more)) = (acceptor.clone(), state.clone());
                tasks.spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let peer = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                    subjects.lock().push(Certificate::parse(&peer).unwrap().subject);
                    let head = read_head(&mut stream).await;
                    heads.lock().push(head.clone());
                    answer(&head, stream, &more).await;
                });
            }
        });
        create_node(api, port).await;
        create_pod(api, "other").await;
        Self { port, heads, subjects, more, task }
    }

    /// Returns the head of the only request since the last call.
    fn head(&self) -> String {
        let heads = std::mem::take(&mut *self.heads.lock());
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads.concat()
    }

    /// Returns the first line of the only request since the last call.
    fn line(&self) -> String {
        self.head().lines().next().unwrap().to_owned()
    }
}

async fn config(api: &ApiServer) -> ServerConfig {
    let path = "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = send(api, path, &[], "").await.json();
    let authority = published["data"]["client-ca-file"].as_str().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
    let key = KeyPair::generate().unwrap();
    // Nobody knows who has signed it.
    let certificate = CertificateParams::new(vec!["kubelet".to_owned()]).unwrap().self_signed(&key).unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap()
}

async fn create_node(api: &ApiServer, port: u16) {
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    let node = json!({"metadata": {"name": "other"}, "status": status});
    send(api, "POST /api/v1/nodes", &[], node.to_string()).await.expect_code(201);
}

async fn create_pod(api: &ApiServer, node: &str) {
    let containers = json!([{"name": "main", "image": "busybox"}, {"name": "broken", "image": "busybox"}]);
    let spec = json!({"nodeName": node, "containers": containers});
    let pod = json!({"metadata": {"name": "web"}, "spec": spec});
    send(api, "POST /api/v1/namespaces/default/pods", &[], pod.to_string()).await.expect_code(201);
}

async fn read_head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Answers a request by its path.
async fn answer(head: &str, mut stream: TlsStream<TcpStream>, more: &Notify) {
    let target = head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let plain = |code: &str, text: &str| format!("HTTP/1.1 {code}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    let text = match path {
        "/containerLogs/default/web/main" if query.contains("follow=true") => {
            let begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n";
            stream.write_all(begin.as_bytes()).await.unwrap();
            more.notified().await;
            "4\r\ntwo\n\r\n0\r\n\r\n".to_owned()
        }
        "/containerLogs/default/web/main" => plain("200 OK", "logged\n"),
        "/containerLogs/default/web/broken" => match query {
            "tailLines=302" => "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".to_owned(),
            query => plain(&format!("{} X", query.trim_start_matches("tailLines=")), "no log\n"),
        },
        "/exec/default/web/broken" => plain("403 Forbidden", r#"{"message": "not you"}"#),
        _ if header(head, "upgrade").is_none() => plain("200 OK", path),
        "/portForward/default/web" => {
            switch(&mut stream, "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io").await;
            let (mut reader, mut writer) = tokio::io::split(stream);
            let _ended = tokio::io::copy(&mut reader, &mut writer).await;
            return;
        }
        _ if header(head, "upgrade") == Some("websocket") => return by_websocket(head, stream).await,
        _ => return by_spdy(stream, query).await,
    };
    let _gone = stream.write_all(text.as_bytes()).await;
}

async fn switch(stream: &mut TlsStream<TcpStream>, headers: &str) {
    let response = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{headers}\r\n\r\n");
    stream.write_all(response.as_bytes()).await.unwrap();
}

/// Sends a message by WebSocket, and returns what the client sends.
async fn by_websocket(head: &str, mut stream: TlsStream<TcpStream>) {
    let protocol = header(head, "sec-websocket-protocol").unwrap();
    let headers = format!("Upgrade: websocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: {protocol}");
    switch(&mut stream, &headers).await;
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    socket.send(Message::binary(b"\x01hello".to_vec())).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message.is_binary() {
            socket.send(message).await.unwrap();
        }
    }
}

fn data_frame(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::from(flags) << 24 | u32::try_from(content.len()).unwrap();
    [&stream.to_be_bytes()[..], &length.to_be_bytes(), content].concat()
}

/// Executes a command by SPDY: it writes what it reads to its output, and ends with code 3 when the input ends.
async fn by_spdy(mut stream: TlsStream<TcpStream>, query: &str) {
    switch(&mut stream, "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io").await;
    let mut streams = std::collections::BTreeMap::new();
    // A terminal has sizes, and no errors of its own.
    let last = if query.contains("tty=1") { "tty=1" } else { "error=1" };
    let wanted = 1 + ["input=1", "output=1", last].iter().filter(|flag| query.contains(*flag)).count();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await.unwrap();
        let word = u32::from_be_bytes(head[..4].try_into().unwrap());
        let (flags, length) = (head[4], u32::from_be_bytes(head[4..].try_into().unwrap()) & 0x00ff_ffff);
        let mut content = vec![0; length as usize];
        stream.read_exact(&mut content).await.unwrap();
        if word == 0x8003_0001 {
            let id = u32::from_be_bytes(content[..4].try_into().unwrap());
            let has = |kind: &&&str| content.windows(kind.len()).any(|part| part == kind.as_bytes());
            let kind = ["error", "stdin", "stdout", "stderr", "resize"].iter().find(has).unwrap();
            streams.insert(*kind, id);
            // The headers of an answer don't matter.
            stream.write_all(&[&[0x80, 3, 0, 2, 0, 0, 0, 4][..], &id.to_be_bytes()].concat()).await.unwrap();
            if streams.len() == wanted {
                stream.write_all(&data_frame(streams["stdout"], 0, b"ready")).await.unwrap();
            }
        } else if Some(&word) == streams.get("resize") {
            let text = [b"size ", content.as_slice()].concat();
            stream.write_all(&data_frame(streams["stdout"], 0, &text)).await.unwrap();
        } else if flags == 0 {
            stream.write_all(&data_frame(streams["stdout"], 0, &content)).await.unwrap();
        } else {
            break;
        }
    }
    let causes = json!([{"reason": "ExitCode", "message": "3"}]);
    let status = json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}});
    for (kind, text) in [("stderr", "done"), ("error", &status.to_string())] {
        if let Some(id) = streams.get(kind) {
            stream.write_all(&data_frame(*id, 0, text.as_bytes())).await.unwrap();
        }
    }
    for id in streams.values() {
        stream.write_all(&data_frame(*id, 1, b"")).await.unwrap();
    }
    stream.shutdown().await.unwrap();
}

async fn listen() -> (ApiServer, Listener) {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    (api, listener)
}

/// Returns the next data of a channel.
async fn channel(socket: &mut Socket, channel: u8) -> Vec<u8> {
    loop {
        match socket.message().await {
            // The first message shows that the connection is established.
            Message::Binary(bytes) if bytes.len() == 1 => {}
            Message::Binary(bytes) if bytes[0] == channel => return bytes[1..].to_vec(),
            other => panic!("not of channel {channel}: {other:?}"),
        }
    }
}

async fn result(socket: &mut Socket) -> Value {
    serde_json::from_slice(&channel(socket, 3).await).unwrap()
}

#[tokio::test]
async fn a_log_is_that_of_the_kubelet_which_sees_the_certificate_of_the_server() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    let query = "container=main&tailLines=3&timestamps=true&previous=false&limitBytes=9&sinceSeconds=5&pretty=true";
    let answer = get(&api, &format!("{POD}/log?{query}"), "*/*").await.expect_code(200);
    assert_eq!((answer.text.as_str(), answer.header("content-type")), ("logged\n", "text/plain"));
    let head = kubelet.head();
    let target = "/containerLogs/default/web/main?limitBytes=9&sinceSeconds=5&tailLines=3&timestamps=true";
    assert!(head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{head}");
    assert_eq!(header(&head, "host"), Some(format!("127.0.0.1:{}", kubelet.port).as_str()));
    let subject = kubelet.subjects.lock().pop().unwrap();
    for name in ["kube-apiserver-kubelet-client", "system:masters"] {
        assert!(subject.windows(name.len()).any(|part| part == name.as_bytes()), "{subject:?}");
    }
    let (mut socket, _) = Socket::open(&listener, &format!("{POD}/log?container=main"), &[]).await;
    // The first message shows that the connection is established.
    assert_eq!(socket.message().await, Message::binary(b"".to_vec()));
    assert_eq!(socket.message().await, Message::binary(b"logged\n".to_vec()));
    listener.shutdown().await;
}

#[tokio::test]
async fn a_log_is_followed_as_it_arrives() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    let uri = format!("{POD}/log?container=main&follow=true");
    let request = Request::get(uri).extension(Arc::new(UserInfo::admin())).body(Empty::new()).unwrap();
    let mut log = api.handle(request).await.into_body();
    let mut next =
        async || timeout(DEADLINE, log.frame()).await.unwrap().map(|frame| frame.unwrap().into_data().unwrap());
    assert_eq!(next().await.as_deref(), Some(&b"one\n"[..]));
    kubelet.more.notify_one();
    assert_eq!(next().await.as_deref(), Some(&b"two\n"[..]));
    assert_eq!(next().await, None);
    listener.shutdown().await;
}

#[tokio::test]
async fn errors_of_a_kubelet_are_statuses() {
    let (api, listener) = listen().await;
    let _kubelet = Kubelet::start(&api).await;
    let about = "( pods/log web)";
    for (code, reason, message) in [
        (400, "BadRequest", "no log\n".to_owned()),
        (401, "Unauthorized", format!("the server has asked for the client to provide credentials {about}")),
        (403, "Forbidden", format!("no log\n {about}")),
        (404, "NotFound", format!("the server could not find the requested resource {about}")),
        (500, "InternalError", "Internal error occurred: no log\n".to_owned()),
        (
            502,
            "InternalError",
            format!("an error on the server (\"no log\\n\") has prevented the request from succeeding {about}"),
        ),
        (503, "ServiceUnavailable", format!("the server is currently unable to handle the request {about}")),
    ] {
        let path = format!("{POD}/log?container=broken&tailLines={code}");
        let answer = get(&api, &path, "*/*").await.expect_code(code).json();
        assert_eq!((&answer["reason"], &answer["message"]), (&json!(reason), &json!(message)));
    }
    let redirected = get(&api, &format!("{POD}/log?container=broken&tailLines=302"), "*/*").await;
    assert_eq!(redirected.expect_code(500).json()["message"], "Get \"/elsewhere\": redirects forbidden");
    listener.shutdown().await;
}

#[tokio::test]
async fn a_websocket_is_translated_for_a_kubelet_that_does_not_understand_it() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    let v5 = ["Sec-WebSocket-Protocol: v5.channel.k8s.io"];
    let path = format!("{POD}/exec?container=main&command=sh&command=-c&stdin=true&stdout=true&stderr=true");
    let (mut socket, head) = Socket::open(&listener, &path, &v5).await;
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{head}");
    assert_eq!(channel(&mut socket, 1).await, b"ready");
    let head = kubelet.head();
    let line = "POST /exec/default/web/main?command=sh&command=-c&error=1&input=1&output=1 HTTP/1.1";
    assert_eq!(head.lines().next(), Some(line));
    assert_eq!(header(&head, "x-stream-protocol-version"), Some("v5.channel.k8s.io"));
    assert!(head.contains("v4.channel.k8s.io"), "{head}");
    socket.send(b"\0typed").await;
    assert_eq!(channel(&mut socket, 1).await, b"typed");
    socket.send(b"\xff\0").await;
    assert_eq!(channel(&mut socket, 2).await, b"done");
    let status = result(&mut socket).await;
    assert_eq!((&status["reason"], &status["status"]), (&json!("NonZeroExitCode"), &json!("Failure")));
    assert_eq!(status["message"], "command terminated with non-zero exit code: command terminated with exit code 3");
    assert_eq!(status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));

    let path = format!("{POD}/attach?container=main&stdin=true&stdout=true&stderr=true&tty=true");
    let (mut socket, _) = Socket::open(&listener, &path, &v5).await;
    assert_eq!(channel(&mut socket, 1).await, b"ready");
    assert_eq!(kubelet.line(), "POST /attach/default/web/main?error=1&input=1&output=1&tty=1 HTTP/1.1");
    socket.send(b"\x04{\"Width\":80,\"Height\":24}").await;
    assert_eq!(channel(&mut socket, 1).await, b"size {\"Height\":24,\"Width\":80}\n");

    let path = format!("{POD}/exec?container=broken&command=sh&stdout=true");
    let (mut socket, _) = Socket::open(&listener, &path, &v5).await;
    let status = result(&mut socket).await;
    assert_eq!(status["message"], "Internal error occurred: unable to upgrade connection: not you");
    listener.shutdown().await;
}

#[tokio::test]
async fn other_connections_are_passed_on() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    let (v4, token) = ("v4.channel.k8s.io", "base64url.bearer.authorization.k8s.io.eA");
    let protocols = format!("Sec-WebSocket-Protocol: {v4}");
    let path = format!("{POD}/exec?container=main&command=sh&stdout=true");
    let (mut socket, head) = Socket::open(&listener, &path, &[&protocols]).await;
    assert!(head.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"), "{head}");
    assert_eq!(channel(&mut socket, 1).await, b"hello");
    socket.send(b"\0typed").await;
    assert_eq!(channel(&mut socket, 0).await, b"typed");
    assert!(kubelet.line().starts_with("GET /exec/default/web/main?command=sh&output=1 "));
    // A kubelet that declares so gets what would be translated otherwise.
    let declares = json!({"status": {"declaredFeatures": ["ExtendWebSocketsToKubelet"]}}).to_string();
    let merge = "Content-Type: application/merge-patch+json";
    send(&api, "PATCH /api/v1/nodes/other/status", &[merge], declares).await.expect_code(200);
    let protocols = format!("Sec-WebSocket-Protocol: v5.channel.k8s.io, {token}");
    let (mut socket, head) = Socket::open(&listener, &path, &[&protocols]).await;
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{head}");
    assert_eq!(channel(&mut socket, 1).await, b"hello");
    assert_eq!(header(&kubelet.head(), "authorization"), None);

    let mut connection = connect(&listener).await;
    let path = format!("POST {POD}/exec?container=broken&command=sh&stdout=true");
    let head = request(&mut connection, &listener, &path, &SPDY).await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let message = send(&api, &path, &[], "").await.expect_code(400).json();
    assert_eq!(message["message"], "Upgrade request required");
    listener.shutdown().await;
}

#[tokio::test]
async fn ports_are_forwarded_by_spdy_with_and_without_a_websocket() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    let tunnel = ["Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"];
    let (mut socket, head) = Socket::open(&listener, &format!("{POD}/portforward?ports=80"), &tunnel).await;
    assert!(head.contains("sec-websocket-protocol: spdy/3.1+portforward.k8s.io\r\n"), "{head}");
    socket.send(b"frames").await;
    assert_eq!(socket.message().await, Message::binary(b"frames".to_vec()));
    let head = kubelet.head();
    assert!(head.starts_with("POST /portForward/default/web?port=80 HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "x-stream-protocol-version"), Some("portforward.k8s.io"));
    assert_eq!(header(&head, "sec-websocket-key"), None);

    let mut connection = connect(&listener).await;
    let headers = [SPDY[0], SPDY[1], "X-Stream-Protocol-Version: portforward.k8s.io"];
    let head = request(&mut connection, &listener, &format!("POST {POD}/portforward"), &headers).await;
    assert!(
        head.starts_with("http/1.1 101 ") && head.contains("x-stream-protocol-version: portforward.k8s.io"),
        "{head}"
    );
    connection.write_all(b"frames").await.unwrap();
    let mut echoed = [0; 6];
    timeout(DEADLINE, connection.read_exact(&mut echoed)).await.unwrap().unwrap();
    assert_eq!(&echoed, b"frames");
    listener.shutdown().await;
}

#[tokio::test]
async fn requests_to_a_node_reach_its_kubelet_or_another_server() {
    let (api, listener) = listen().await;
    let kubelet = Kubelet::start(&api).await;
    for identifier in ["other", &format!("other:{}", kubelet.port), &format!("http:other:{}", kubelet.port)] {
        let path = format!("/api/v1/nodes/{identifier}/proxy");
        assert_eq!(get(&api, &format!("{path}/a%2Fb/?c=d"), "*/*").await.expect_code(200).text, "/a%2Fb/");
        assert_eq!(kubelet.line(), "GET /a%2Fb/?c=d HTTP/1.1");
        let redirect = get(&api, &format!("{path}?a=b"), "*/*").await.expect_code(301);
        assert_eq!(redirect.header("location"), format!("{path}/?a=b"));
    }
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = other.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain").await.unwrap();
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    });
    assert_eq!(get(&api, &format!("/api/v1/nodes/other:{port}/proxy/"), "*/*").await.expect_code(200).text, "plain");
    server.await.unwrap();
    let backend = api.listen(ListenOptions::default()).await.unwrap();
    let path = format!("/api/v1/nodes/https:other:{}/proxy/healthz", backend.address().port());
    assert_eq!(get(&api, &path, "text/plain").await.expect_code(200).text, "ok");
    backend.shutdown().await;
    listener.shutdown().await;
}

#[tokio::test]
async fn a_kubelet_that_cannot_be_reached_is_an_error() {
    let (api, listener) = listen().await;
    create_node(&api, 1).await;
    create_pod(&api, "other").await;
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    let answer = get(&api, &format!("{POD}/log?container=main&follow=true"), "*/*").await.expect_code(500).json();
    let url = "https://127.0.0.1:1/containerLogs/default/web/main?follow=true";
    assert_eq!((&answer["message"], &answer["reason"]), (&json!(format!("Get \"{url}\": {refused}")), &Value::Null));
    let path = format!("POST {POD}/exec?container=main&command=sh&stdout=true");
    let answer = send(&api, &path, &SPDY, "").await.expect_code(500).json();
    assert_eq!(answer["message"], format!("error dialing backend: {refused}"));
    let v5 = ["Sec-WebSocket-Protocol: v5.channel.k8s.io"];
    let path = format!("{POD}/exec?container=main&command=sh&stdout=true");
    let (mut socket, _) = Socket::open(&listener, &path, &v5).await;
    let url = "https://127.0.0.1:1/exec/default/web/main?command=sh&output=1";
    let why = format!("Internal error occurred: error sending request: Post \"{url}\": {refused}");
    assert_eq!(result(&mut socket).await["message"], why);
    let mut connection = connect(&listener).await;
    let headers: Vec<_> = UPGRADE
        .into_iter()
        .chain(["Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io", "Connection: close"])
        .collect();
    let head = request(&mut connection, &listener, &format!("GET {POD}/portforward"), &headers).await;
    assert!(head.starts_with("http/1.1 500 "), "{head}");
    let body: Value = serde_json::from_slice(&rest(&mut connection).await).unwrap();
    assert_eq!(body["message"], format!("error dialing backend: {refused}"));
    let answer = get(&api, "/api/v1/nodes/other/proxy/healthz", "*/*").await.expect_code(503).json();
    assert_eq!(answer["message"], format!("error trying to reach service: {refused}"));
    listener.shutdown().await;
}

#[tokio::test]
async fn a_node_without_an_address_is_an_error() {
    let (api, _) = start();
    create_pod(&api, "bare").await;
    let log = format!("{POD}/log?container=main");
    let missing = get(&api, &log, "*/*").await.expect_code(404).json();
    assert_eq!(missing["message"], "pods \"bare\" not found");
    let node = json!({"metadata": {"name": "bare"}});
    send(&api, "POST /api/v1/nodes", &[], node.to_string()).await.expect_code(201);
    let why = "no preferred addresses found; known addresses: []";
    for path in [log.as_str(), "/api/v1/nodes/bare/proxy/healthz"] {
        assert_eq!(get(&api, path, "*/*").await.expect_code(500).json()["message"], why, "{path}");
    }
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "169.254.169.254"}]}});
    let merge = "Content-Type: application/merge-patch+json";
    send(&api, "PATCH /api/v1/nodes/bare/status", &[merge], addresses.to_string()).await.expect_code(200);
    let answer = get(&api, "/api/v1/nodes/bare:80/proxy/", "*/*").await.expect_code(400).json();
    assert_eq!(answer["message"], "address not allowed");
}
