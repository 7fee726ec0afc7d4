//! Commands in running containers, by WebSocket.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kubewright_cluster::{Cluster, Endpoint};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    create, gone, is_running, pod, pods, running, until,
    wire::{Connection, WEBSOCKET, listen, request},
};

const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const V5: &str = "v5.channel.k8s.io";

/// A connection to a command.
pub(crate) struct Exec(WebSocketStream<Connection>);

impl Exec {
    pub(crate) async fn open(endpoint: &Endpoint, protocol: &str, path: &str) -> Self {
        let protocol = format!("Sec-WebSocket-Protocol: {protocol}");
        let headers: Vec<_> = WEBSOCKET.iter().copied().chain([protocol.as_str()]).collect();
        let (stream, head) = request(endpoint, endpoint.token(), &format!("GET {path}"), &headers).await;
        assert!(head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains(&protocol.to_lowercase()), "{head}");
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = timeout(DEADLINE, self.0.next()).await.expect("in time")?;
        message.ok().filter(|message| !message.is_close())
    }

    pub(crate) async fn send(&mut self, message: &[u8]) {
        self.0.send(Message::binary(message.to_vec())).await.expect("sent");
    }

    /// Receives until the end: standard output, standard error, and the result.
    pub(crate) async fn rest(&mut self) -> (String, String, Value) {
        let mut texts = [Vec::new(), Vec::new(), Vec::new()];
        while let Some(message) = self.next().await {
            let bytes = message.into_data();
            texts[usize::from(bytes[0]) - 1].extend_from_slice(&bytes[1..]);
        }
        let [out, err, result] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err, serde_json::from_str(&result).unwrap_or(Value::Null))
    }

    /// Receives output until it contains a text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        self.try_until(text, DEADLINE).await.unwrap_or_else(|| panic!("the connection ended without {text}"))
    }

    /// Receives output until it contains a text; `None` if nothing comes for a while, or the connection ends.
    pub(crate) async fn try_until(&mut self, text: &str, limit: Duration) -> Option<String> {
        let mut seen = String::new();
        while !seen.contains(text) {
            let message = timeout(limit, self.0.next()).await.ok()??.ok()?;
            seen += &String::from_utf8_lossy(message.into_data().get(1..)?);
        }
        Some(seen)
    }
}

pub(crate) fn path(name: &str, streams: &str, words: &[&str]) -> String {
    let mut path = format!("/api/v1/namespaces/default/pods/{name}/exec?{streams}");
    for word in words {
        path += "&command=";
        path += &encoded(word);
    }
    path
}

/// Encodes a value of a query.
pub(crate) fn encoded(word: &str) -> String {
    word.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn started(name: &str, spec: Value) -> (Cluster, Endpoint) {
    let cluster = running().await;
    let pod: Pod = pod(name, "sleep 3600", spec);
    create(&cluster, &pod).await;
    until(&cluster, name, is_running).await;
    let endpoint = listen(&cluster).await;
    (cluster, endpoint)
}

pub(crate) const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

#[tokio::test]
async fn commands_have_the_containers_environment() {
    let container = json!([{
        "name": "main", "image": "busybox", "command": ["sh", "-c", "pwd > where; sleep 3600"],
        "env": [{"name": "COLOUR", "value": "green"}],
    }]);
    let (cluster, endpoint) = started("env", json!({"containers": container})).await;
    let command = [
        "sh",
        "-c",
        "while ! test -s where; do sleep 0.02; done; test $(pwd) = $(cat where) && echo $COLOUR; echo bad >&2",
    ];
    let mut exec = Exec::open(&endpoint, V5, &path("env", "stdout=true&stderr=true&tty=False", &command)).await;
    assert_eq!(exec.next().await, Some(Message::binary(vec![1])), "the connection is established");
    let (out, err, result) = exec.rest().await;
    assert_eq!((&*out, &*err, &*result.to_string()), ("green\n", "bad\n", SUCCESS));
    cluster.shutdown().await;
}

#[tokio::test]
async fn exit_codes_are_results() {
    let (cluster, endpoint) = started("codes", json!({})).await;
    let mut exec =
        Exec::open(&endpoint, "v4.channel.k8s.io", &path("codes", "stdout=1", &["sh", "-c", "exit 3"])).await;
    let (_, _, result) = exec.rest().await;
    let expect = json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    });
    assert_eq!(result, expect);
    let mut exec = Exec::open(&endpoint, V5, &path("codes", "stdout=1", &["no-such-tool"])).await;
    let (_, _, result) = exec.rest().await;
    assert_eq!(result["code"], 500);
    let message = result["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("exec: \"no-such-tool\": executable file not found in $PATH"), "{message}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn input_ends_when_its_channel_is_closed() {
    let (cluster, endpoint) = started("input", json!({})).await;
    let mut exec = Exec::open(&endpoint, V5, &path("input", "stdin=true&stdout=true", &["cat"])).await;
    exec.send(b"\0one ").await;
    exec.until("one").await;
    exec.send(b"\0two").await;
    exec.send(&[255, 0]).await;
    let (out, _, result) = exec.rest().await;
    assert_eq!((&*out, &*result.to_string()), ("two", SUCCESS));
    let mut exec = Exec::open(&endpoint, "v4.base64.channel.k8s.io", &path("input", "stdout=1", &["echo", "a"])).await;
    assert_eq!(exec.next().await, Some(Message::text("1")));
    assert_eq!(exec.next().await, Some(Message::text(format!("1{}", STANDARD.encode("a\n")))));
    cluster.shutdown().await;
}

#[tokio::test]
async fn much_output_arrives_whole() {
    let (cluster, endpoint) = started("much", json!({})).await;
    let mut exec = Exec::open(&endpoint, V5, &path("much", "stdout=1", &["head", "-c", "5000000", "/dev/zero"])).await;
    let (out, _, result) = exec.rest().await;
    assert_eq!((out.len(), &*result.to_string()), (5_000_000, SUCCESS));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_terminal_has_a_size_and_control_characters() {
    let (cluster, endpoint) = started("tty", json!({})).await;
    let mut exec = Exec::open(&endpoint, V5, &path("tty", "stdin=1&stdout=1&tty=1", &["sh"])).await;
    exec.send(b"\x04{\"Width\":91,\"Height\":33}").await;
    exec.send(b"\0test -t 0 && echo it is a $TERM; while ! stty size | grep 91; do sleep 0.02; done\n").await;
    let seen = exec.until("33 91").await;
    assert!(seen.contains("it is a xterm"), "{seen}");
    // The terminal shows what is typed, too.
    exec.send(b"\0sh -c 'echo run''ning; exec sleep 1000'\n").await;
    exec.until("running").await;
    // The terminal sends the interrupt to the command in its foreground.
    exec.send(b"\0\x03").await;
    exec.send(b"\0exit 7\n").await;
    let result = loop {
        let (_, _, result) = exec.rest().await;
        if !result.is_null() {
            break result;
        }
    };
    assert_eq!(result["details"]["causes"][0]["message"], "7");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_command_continues_without_its_client_and_ends_with_its_pod() {
    let (cluster, endpoint) = started("ends", json!({"terminationGracePeriodSeconds": 0})).await;
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("file");
    // It reads the input that came before the client was gone, and its output has no reader.
    let script = format!("echo ready; cat >{0}; echo unread; echo unread; echo $$ >>{0}; sleep 1000", file.display());
    let mut exec = Exec::open(&endpoint, V5, &path("ends", "stdin=1&stdout=1", &["sh", "-c", &script])).await;
    exec.until("ready").await;
    exec.send(b"\0input\n").await;
    drop(exec);
    let id = crate::eventually("the command continues", async || {
        let text = std::fs::read_to_string(&file).ok()?;
        Some(text.strip_prefix("input\n")?.strip_suffix('\n')?.to_owned())
    })
    .await;
    let lives = || Command::new("kill").args(["-0", &id]).stderr(Stdio::null()).status().expect("kill").success();
    assert!(lives());
    let mut exec = Exec::open(&endpoint, V5, &path("ends", "stdout=1", &["sh", "-c", "echo ready; sleep 1000"])).await;
    exec.until("ready").await;
    pods(&cluster).delete("ends", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let (_, _, result) = exec.rest().await;
    assert_eq!(result["details"]["causes"][0]["message"], "137");
    gone(&cluster, "ends").await;
    crate::eventually("the first command has ended, too", async || (!lives()).then_some(())).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_refused() {
    let (cluster, endpoint) = started("no", json!({})).await;
    let check = async |path: &str, headers: &[&str], expect: &str| {
        let (_, head) = request(&endpoint, endpoint.token(), &format!("GET {path}"), headers).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {expect} ")), "{path}: {head}");
    };
    check(&path("no", "stdout=1", &["true"]), &[], "400").await;
    check(&path("no", "", &["true"]), &WEBSOCKET, "400").await;
    check(&path("no", "stdout=1", &[]), &WEBSOCKET, "400").await;
    check(&path("no", "stdout=1&container=other", &["true"]), &WEBSOCKET, "400").await;
    check(&path("absent", "stdout=1", &["true"]), &WEBSOCKET, "404").await;
    let unknown: Vec<_> = WEBSOCKET.iter().copied().chain(["Sec-WebSocket-Protocol: v9.channel.k8s.io"]).collect();
    check(&path("no", "stdout=1", &["true"]), &unknown, "403").await;
    let ended = pod("ended", "true", json!({}));
    create(&cluster, &ended).await;
    until(&cluster, "ended", |pod| crate::phase(pod) == "Succeeded").await;
    check(&path("ended", "stdout=1", &["true"]), &WEBSOCKET, "500").await;
    cluster.shutdown().await;
}
