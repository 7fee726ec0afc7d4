//! Connections to ports of pods: by WebSocket channels, by SPDY, and by SPDY in a WebSocket.

use std::{collections::VecDeque, time::Duration};

use futures::{SinkExt, StreamExt};
use kubewright_cluster::{Cluster, Endpoint};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    create,
    exec::Exec,
    is_running, playing, pod, until,
    wire::{Connection, WEBSOCKET, listen, request},
};

const DEADLINE: Duration = Duration::from_secs(30);
const PATH: &str = "/api/v1/namespaces/default/pods/web/portforward";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// SYN_STREAM frames that open the streams 1, for errors, and 3, for data, of port 8080. Their headers are compressed.
const OPEN_ERROR: &str = "800300010100003d00000001000000000000\
    78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c6061606100a4398b20d198094ade8c0600000000ffff";
const OPEN_DATA: &str = "800300010000001800000003000000000000c2aa19540e2512d60b000000ffff";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a number")).collect()
}

async fn serving() -> (Cluster, Endpoint) {
    let cluster = playing().await;
    create(&cluster, &pod("web", "", json!({"containers": [{"name": "main", "image": "web"}]}))).await;
    let pod = until(&cluster, "web", is_running).await;
    let address = format!("{}:8080", crate::address(&pod));
    crate::eventually("the pod listens", async || crate::player::ask(&address, "/").await).await;
    let endpoint = listen(&cluster).await;
    (cluster, endpoint)
}

/// The frames of a SPDY connection.
struct Frames<S> {
    stream: S,
    read: VecDeque<u8>,
}

trait Transport {
    async fn send(&mut self, bytes: Vec<u8>);
    async fn receive(&mut self) -> Vec<u8>;
}

impl Transport for Connection {
    async fn send(&mut self, bytes: Vec<u8>) {
        self.write_all(&bytes).await.expect("written");
    }

    async fn receive(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1024];
        let length = self.read(&mut buffer).await.expect("readable");
        assert!(length > 0, "the connection has ended");
        buffer.truncate(length);
        buffer
    }
}

impl Transport for WebSocketStream<Connection> {
    async fn send(&mut self, bytes: Vec<u8>) {
        SinkExt::send(self, Message::binary(bytes)).await.expect("sent");
    }

    async fn receive(&mut self) -> Vec<u8> {
        match self.next().await.expect("a message").expect("a message") {
            Message::Binary(bytes) => bytes.to_vec(),
            other => panic!("not binary: {other:?}"),
        }
    }
}

impl<S: Transport> Frames<S> {
    fn new(stream: S) -> Self {
        Self { stream, read: VecDeque::new() }
    }

    async fn send(&mut self, frame: Vec<u8>) {
        self.stream.send(frame).await;
    }

    /// Sends data of a stream.
    async fn data(&mut self, stream: u32, flags: u8, content: &[u8]) {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.extend((u32::from(flags) << 24 | u32::try_from(content.len()).expect("short")).to_be_bytes());
        frame.extend_from_slice(content);
        self.send(frame).await;
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            let more = timeout(DEADLINE, self.stream.receive()).await.expect("in time");
            self.read.extend(more);
        }
        self.read.drain(..length).collect()
    }

    /// Returns the first word, the flags and the content of the next frame.
    async fn next(&mut self) -> (u32, u8, Vec<u8>) {
        let head = self.take(8).await;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let content = self.take((word(4) & 0x00ff_ffff) as usize).await;
        (word(0), head[4], content)
    }

    /// Opens a connection to port 8080, and asks the pod for its name.
    async fn ask(mut self) {
        self.send(bytes(OPEN_ERROR)).await;
        self.send(bytes(OPEN_DATA)).await;
        for stream in [1, 3_u32] {
            let (word, _, content) = self.next().await;
            assert_eq!((word, &content[..4]), (0x8003_0002, &stream.to_be_bytes()[..]));
        }
        self.data(3, 0, REQUEST).await;
        let mut text = String::new();
        while !text.ends_with("web") {
            let (stream, _, content) = self.next().await;
            assert_eq!(stream, 3);
            text += &String::from_utf8_lossy(&content);
        }
        self.send(bytes("800300060000000400000007")).await;
        assert_eq!(self.next().await, (0x8003_0006, 0, bytes("00000007")), "pings are answered");
        // When the client ends the stream, the pod ends the connection, and with it both streams.
        self.data(3, 1, b"").await;
        let mut ended = [self.next().await, self.next().await];
        ended.sort();
        assert_eq!(ended, [(1, 1, Vec::new()), (3, 1, Vec::new())]);
    }
}

#[tokio::test]
async fn each_port_has_two_channels() {
    let (cluster, endpoint) = serving().await;
    let mut socket = Exec::open(&endpoint, "v4.channel.k8s.io", &format!("{PATH}?ports=8080,8081")).await;
    for channel in 0..4 {
        let port: u16 = if channel < 2 { 8080 } else { 8081 };
        let [low, high] = port.to_le_bytes();
        assert_eq!(socket.next().await, Some(Message::binary(vec![channel, low, high])));
    }
    let refused = socket.next().await.expect("a message").into_data();
    let text = String::from_utf8_lossy(&refused[1..]).into_owned();
    assert_eq!(refused[0], 3);
    assert!(
        text.starts_with("error forwarding port 8081 to pod web, uid ") && text.ends_with("connection refused"),
        "{text}"
    );
    socket.send(&[&b"\0"[..], REQUEST].concat()).await;
    socket.until("web").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn spdy_in_a_websocket() {
    let (cluster, endpoint) = serving().await;
    let headers: Vec<_> =
        WEBSOCKET.iter().copied().chain(["Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"]).collect();
    let (stream, head) = request(&endpoint, endpoint.token(), &format!("GET {PATH}"), &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    Frames::new(WebSocketStream::from_raw_socket(stream, Role::Client, None).await).ask().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn spdy_on_the_connection() {
    let (cluster, endpoint) = serving().await;
    let headers = ["Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: portforward.k8s.io"];
    let (stream, head) = request(&endpoint, endpoint.token(), &format!("POST {PATH}"), &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("upgrade: spdy/3.1"), "{head}");
    Frames::new(stream).ask().await;
    let (_, head) = request(&endpoint, endpoint.token(), &format!("POST {PATH}"), &headers[..2]).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_refused() {
    let (cluster, endpoint) = serving().await;
    let check = async |path: &str, headers: &[&str], expect: &str| {
        let (_, head) = request(&endpoint, endpoint.token(), &format!("GET {path}"), headers).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {expect} ")), "{path}: {head}");
    };
    check(PATH, &[], "400").await;
    let channels: Vec<_> = WEBSOCKET.iter().copied().chain(["Sec-WebSocket-Protocol: v4.channel.k8s.io"]).collect();
    check(PATH, &channels, "400").await;
    check(&format!("{PATH}?ports=0"), &channels, "400").await;
    check("/api/v1/namespaces/default/pods/absent/portforward?ports=1", &channels, "404").await;
    cluster.shutdown().await;
}
