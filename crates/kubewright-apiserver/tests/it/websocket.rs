//! Watches and byte streams over WebSocket.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt, future::BoxFuture, stream};
use http::Response;
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{Action, ActionRequest, ApiServer, Body, ListenOptions, Listener};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use crate::{
    raw::send,
    start,
    wire::{Connection, DEADLINE, anonymous_request, connect, head, request, rest},
};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const UPGRADE: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];
const ORIGIN: &str = "Origin: https://localhost";

/// A WebSocket to a listener.
pub(crate) struct Socket(WebSocketStream<Connection>);

impl Socket {
    /// Opens a WebSocket, with more headers.
    pub(crate) async fn open(listener: &Listener, path: &str, more: &[&str]) -> (Self, String) {
        let mut connection = connect(listener).await;
        let head = handshake(&mut connection, listener, path, more).await;
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        (Self(WebSocketStream::from_raw_socket(connection, Role::Client, None).await), head)
    }

    /// Sends a binary message.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    /// Returns the next message.
    pub(crate) async fn message(&mut self) -> Message {
        timeout(DEADLINE, self.0.next()).await.unwrap().unwrap().unwrap()
    }

    /// Returns the next event.
    async fn event(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("not an event: {other:?}"),
        }
    }

    /// Expects a close frame next, and the end of the connection.
    async fn expect_close(mut self, code: CloseCode) {
        match self.message().await {
            Message::Close(Some(CloseFrame { code: sent, .. })) => assert_eq!(sent, code),
            other => panic!("not a close frame: {other:?}"),
        }
        while timeout(DEADLINE, self.0.next()).await.unwrap().is_some() {}
    }
}

async fn handshake(connection: &mut Connection, listener: &Listener, path: &str, more: &[&str]) -> String {
    let headers: Vec<_> = UPGRADE.iter().chain(more).copied().collect();
    request(connection, listener, &format!("GET {path}"), &headers).await
}

async fn listen() -> (ApiServer, Listener) {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    (api, listener)
}

async fn create(api: &ApiServer, name: &str) -> String {
    let config = json!({"metadata": {"name": name}}).to_string();
    let created = send(api, &format!("POST {CONFIGS}"), &[], config).await.expect_code(201).json();
    created["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn watch(query: &str) -> String {
    format!("{CONFIGS}?watch=true{query}")
}

#[tokio::test]
async fn events_are_text_messages_until_the_timeout() {
    let (api, listener) = listen().await;
    create(&api, "a").await;
    let path = watch("&timeoutSeconds=1&allowWatchBookmarks=true");
    let (mut socket, head) = Socket::open(&listener, &path, &[ORIGIN]).await;
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert!(!head.contains("sec-websocket-protocol") && !head.contains("content-type"), "{head}");
    let event = socket.event().await;
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    assert_eq!(socket.event().await["type"], "BOOKMARK");
    create(&api, "b").await;
    assert_eq!(socket.event().await["object"]["metadata"]["name"], "b");
    socket.expect_close(CloseCode::Normal).await;
    listener.shutdown().await;
}

#[tokio::test]
async fn an_expired_version_is_an_event() {
    let api = ApiServer::builder().history(2).build();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let version = create(&api, "a").await;
    for name in ["b", "c", "d", "e"] {
        create(&api, name).await;
    }
    let path = watch(&format!("&resourceVersion={version}"));
    let (mut socket, _) = Socket::open(&listener, &path, &[ORIGIN]).await;
    let event = socket.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    socket.expect_close(CloseCode::Normal).await;
    listener.shutdown().await;
}

#[tokio::test]
async fn handshakes_are_checked() {
    let (_, listener) = listen().await;
    let two = "Sec-WebSocket-Protocol: one, two";
    for (path, more, code) in [
        (watch(""), &[][..], "403"),
        (watch(""), &["Origin: null"], "403"),
        (watch(""), &[ORIGIN, two], "400"),
        (watch("&labelSelector=a%20in"), &[ORIGIN], "400"),
        ("/api/v1/nothings?watch=true".into(), &[ORIGIN], "404"),
        // Only streams are sent as messages.
        (CONFIGS.into(), &[ORIGIN], "200"),
    ] {
        let mut connection = connect(&listener).await;
        let head = handshake(&mut connection, &listener, &path, more).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{path}: {head}");
    }
    let mut connection = connect(&listener).await;
    let headers = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a", "Sec-WebSocket-Version: 8"];
    let head = request(&mut connection, &listener, &format!("GET {}", watch("")), &headers).await;
    assert!(head.starts_with("http/1.1 400 ") && head.contains("sec-websocket-version: 13"), "{head}");
    assert_eq!(rest(&mut connection).await, b"missing or bad WebSocket Version");
    listener.shutdown().await;
}

#[tokio::test]
async fn a_token_can_be_a_subprotocol() {
    let (api, listener) = listen().await;
    create(&api, "a").await;
    let open = async |token: &str| {
        let token = URL_SAFE_NO_PAD.encode(token);
        let protocol = format!("Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, binary.k8s.io");
        let headers: Vec<_> = UPGRADE.into_iter().chain([ORIGIN, protocol.as_str()]).collect();
        let mut connection = connect(&listener).await;
        let head = anonymous_request(&mut connection, &format!("GET {}", watch("")), &headers).await;
        (connection, head)
    };
    let (_, head) = open("nobody").await;
    assert!(head.starts_with("http/1.1 401 "), "{head}");
    let (connection, head) = open(listener.token()).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("sec-websocket-protocol: binary.k8s.io\r\n"), "{head}");
    let mut socket = Socket(WebSocketStream::from_raw_socket(connection, Role::Client, None).await);
    assert_eq!(socket.event().await["type"], "ADDED");
    drop(socket);
    listener.shutdown().await;
}

#[tokio::test]
async fn pings_are_answered_and_messages_ignored() {
    let (api, listener) = listen().await;
    let (mut socket, _) = Socket::open(&listener, &watch(""), &[ORIGIN]).await;
    socket.0.send(Message::text("hello")).await.unwrap();
    socket.0.send(Message::Ping(Bytes::from_static(b"are you there"))).await.unwrap();
    assert_eq!(socket.message().await, Message::Pong(Bytes::from_static(b"are you there")));
    create(&api, "a").await;
    assert_eq!(socket.event().await["type"], "ADDED");
    socket.0.close(Some(CloseFrame { code: CloseCode::Normal, reason: Default::default() })).await.unwrap();
    socket.expect_close(CloseCode::Normal).await;
    timeout(DEADLINE, listener.shutdown()).await.expect("no task is left");
}

/// Returns the code of the only frame that was received, a close frame. A text may follow the code.
fn close_code(received: &[u8]) -> u16 {
    match *received {
        [0x88, length, high, low, ..] if received.len() == usize::from(length) + 2 => u16::from_be_bytes([high, low]),
        _ => panic!("not a close frame: {received:?}"),
    }
}

#[tokio::test]
async fn broken_frames_end_the_connection_with_a_code() {
    let (_, listener) = listen().await;
    for (name, frame, code) in [
        ("an unmasked frame", &[0x81, 0x02, b'h', b'i'][..], 1002),
        ("a frame of an exabyte", &[0x82, 0xff, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], 1009),
        ("a fragmented ping", &[0x09, 0x80, 1, 2, 3, 4], 1002),
        ("a long ping", &[[0x89, 0xfe, 0, 126, 0, 0, 0, 0].as_slice(), &[0; 126]].concat(), 1002),
        ("a continuation of nothing", &[0x80, 0x80, 1, 2, 3, 4], 1002),
        ("a reserved opcode", &[0x83, 0x80, 1, 2, 3, 4], 1002),
        ("an unknown extension", &[0xc1, 0x80, 1, 2, 3, 4], 1002),
        ("text that is not UTF-8", &[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        // The frame is shorter than what follows it: the rest is read as another frame.
        ("a frame that is too short", &[0x81, 0x81, 0, 0, 0, 0, b'a', b'b', 0], 1002),
        ("a close frame with half a code", &[0x88, 0x81, 0, 0, 0, 0, 3], 1002),
    ] {
        let mut connection = connect(&listener).await;
        let head = handshake(&mut connection, &listener, &watch(""), &[ORIGIN]).await;
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        connection.write_all(frame).await.unwrap();
        assert_eq!(close_code(&rest(&mut connection).await), code, "{name}");
    }
    // Fragments count together.
    let mut connection = connect(&listener).await;
    handshake(&mut connection, &listener, &watch(""), &[ORIGIN]).await;
    let fragment = |opcode: u8| [[opcode, 0xfe, 0x40, 0, 0, 0, 0, 0].as_slice(), &[0; 0x4000]].concat();
    connection.write_all(&fragment(0x02)).await.unwrap();
    for _ in 0..4 {
        connection.write_all(&fragment(0x00)).await.unwrap();
    }
    assert_eq!(close_code(&rest(&mut connection).await), 1009);
    // A frame that never ends.
    let mut connection = connect(&listener).await;
    handshake(&mut connection, &listener, &watch(""), &[ORIGIN]).await;
    connection.write_all(&[0x81, 0xfe, 0x40, 0, 0, 0, 0, 0, b'a']).await.unwrap();
    connection.shutdown().await.unwrap();
    assert_eq!(rest(&mut connection).await, b"");
    timeout(DEADLINE, listener.shutdown()).await.expect("no task is left");
}

#[tokio::test]
async fn a_shutdown_ends_sockets() {
    let (_, listener) = listen().await;
    let (socket, _) = Socket::open(&listener, &watch(""), &[ORIGIN]).await;
    let reader = tokio::spawn(socket.expect_close(CloseCode::Away));
    timeout(DEADLINE, listener.shutdown()).await.unwrap();
    reader.await.unwrap();
}

#[tokio::test]
async fn a_socket_counts_as_a_connection() {
    let (api, _) = start();
    let mut options = ListenOptions::default();
    options.max_connections = 1;
    let listener = api.listen(options).await.unwrap();
    let (socket, _) = Socket::open(&listener, &watch(""), &[ORIGIN]).await;
    let mut second = Box::pin(connect(&listener));
    assert!(timeout(std::time::Duration::from_millis(300), &mut second).await.is_err(), "the second waits");
    drop(socket);
    let mut second = timeout(DEADLINE, second).await.unwrap();
    assert!(request(&mut second, &listener, "GET /version", &[]).await.starts_with("http/1.1 200 "));
    drop(second);
    listener.shutdown().await;
}

#[derive(Debug)]
struct Log;

impl Action for Log {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let result = if request.flag("previous") {
            Err(Status::bad_request("previous terminated container not found"))
        } else {
            let lines = ["one\n".to_owned(), "x".repeat(3000)].map(|line| Ok(Bytes::from(line)));
            Ok(Response::new(Body::stream(stream::iter(lines))))
        };
        std::future::ready(result).boxed()
    }

    fn streams_bytes(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn byte_streams_are_sent_in_the_selected_encoding() {
    let api = ApiServer::builder().action("", "v1", "pods", "log", Arc::new(Log)).build();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    send(&api, "POST /api/v1/namespaces/default/pods", &[], pod.to_string()).await.expect_code(201);
    let log = "/api/v1/namespaces/default/pods/p/log?follow=true";
    for protocol in ["", "Sec-WebSocket-Protocol: binary.k8s.io"] {
        let more: Vec<_> = [protocol].into_iter().filter(|text| !text.is_empty()).collect();
        let (mut socket, head) = Socket::open(&listener, log, &more).await;
        assert_eq!(head.contains("sec-websocket-protocol: binary.k8s.io\r\n"), !more.is_empty(), "{head}");
        let lengths = [socket.message().await, socket.message().await, socket.message().await, socket.message().await];
        assert!(lengths.iter().all(Message::is_binary), "{lengths:?}");
        assert_eq!(lengths.map(|message| message.len()), [0, 4, 2048, 952]);
        socket.expect_close(CloseCode::Normal).await;
    }
    let (mut socket, _) = Socket::open(&listener, log, &["Sec-WebSocket-Protocol: base64.binary.k8s.io"]).await;
    assert_eq!(socket.message().await, Message::text(""));
    assert_eq!(socket.message().await, Message::text("b25lCg=="));
    drop(socket);
    let mut connection = connect(&listener).await;
    let unsupported = ["Sec-WebSocket-Protocol: v4.channel.k8s.io"];
    assert!(handshake(&mut connection, &listener, log, &unsupported).await.starts_with("http/1.1 403 "));
    // An error is an ordinary response.
    let mut connection = connect(&listener).await;
    assert!(
        handshake(&mut connection, &listener, &format!("{log}&previous=true"), &[]).await.starts_with("http/1.1 400 ")
    );
    // Without an upgrade, the same stream is an ordinary body.
    let answer = send(&api, &format!("GET {log}"), &UPGRADE, "").await;
    assert_eq!((answer.code, answer.text.len()), (200, 3004));
    let mut connection = connect(&listener).await;
    connection.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(head(&mut connection).await.starts_with("http/1.1 200 "));
    listener.shutdown().await;
}
