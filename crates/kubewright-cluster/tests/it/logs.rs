//! `kubectl logs`.

use futures::AsyncReadExt as _;
use kube::api::LogParams;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    create, is_running, phase, pod, pods, running, until, waiting_reason,
    wire::{WEBSOCKET, listen, request},
};

#[tokio::test]
async fn logs_have_all_lines() {
    let cluster = running().await;
    create(&cluster, &pod("talk", "echo one; echo two >&2; echo three", json!({}))).await;
    until(&cluster, "talk", |pod| phase(pod) == "Succeeded").await;
    let logs = async |params: LogParams| pods(&cluster).logs("talk", &params).await.expect("a log");
    let mut lines: Vec<_> = logs(LogParams::default()).await.lines().map(str::to_owned).collect();
    // The two streams are separate pipes, so their order is not certain.
    lines.sort();
    assert_eq!(lines, ["one", "three", "two"]);
    assert_eq!(logs(LogParams { tail_lines: Some(1), ..LogParams::default() }).await.lines().count(), 1);
    assert_eq!(logs(LogParams { limit_bytes: Some(2), ..LogParams::default() }).await.len(), 2);
    assert_eq!(logs(LogParams { since_seconds: Some(1000), ..LogParams::default() }).await.lines().count(), 3);
    let stamped = logs(LogParams { timestamps: true, ..LogParams::default() }).await;
    assert!(stamped.lines().all(|line| line[..4].parse::<u32>().is_ok() && line.contains('Z')), "{stamped}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn following_ends_with_the_container() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let command = format!("echo first; while ! test -e {}; do sleep 0.02; done; echo last", go.display());
    create(&cluster, &pod("follow", &command, json!({}))).await;
    until(&cluster, "follow", is_running).await;
    let params = LogParams { follow: true, ..LogParams::default() };
    let mut stream = pods(&cluster).log_stream("follow", &params).await.expect("a stream");
    let mut first = [0; 6];
    stream.read_exact(&mut first).await.expect("the first line");
    assert_eq!(&first, b"first\n");
    std::fs::write(&go, "").expect("written");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("the rest");
    assert_eq!(rest, "last\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn previous_logs_are_those_of_the_run_before() {
    let cluster = running().await;
    create(&cluster, &pod("crash", "echo $HOME; exit 1", json!({"restartPolicy": "Always"}))).await;
    until(&cluster, "crash", |pod| waiting_reason(pod) == "CrashLoopBackOff").await;
    let params = LogParams { previous: true, ..LogParams::default() };
    assert_eq!(pods(&cluster).logs("crash", &params).await.expect("the first run's").lines().count(), 1);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_without_a_node_has_an_empty_log() {
    let cluster = running().await;
    create(&cluster, &pod("gated", "true", json!({"schedulingGates": [{"name": "a"}]}))).await;
    for previous in [false, true] {
        let params = LogParams { previous, ..LogParams::default() };
        assert_eq!(pods(&cluster).logs("gated", &params).await.expect("no log"), "");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn logs_need_a_container_name_if_there_are_several() {
    let cluster = running().await;
    let shell = |name: &str, command: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", command]});
    let spec = json!({"containers": [shell("a", "echo from a"), shell("b", "echo from b")]});
    create(&cluster, &pod("two", "", spec)).await;
    until(&cluster, "two", |pod| phase(pod) == "Succeeded").await;
    let of = async |container: Option<&str>| {
        let params = LogParams { container: container.map(Into::into), ..LogParams::default() };
        pods(&cluster).logs("two", &params).await.map_err(|error| error.to_string())
    };
    assert_eq!(of(Some("a")).await.expect("a log"), "from a\n");
    assert_eq!(of(Some("b")).await.expect("a log"), "from b\n");
    let error = of(None).await.expect_err("ambiguous");
    assert!(error.contains("a container name must be specified for pod two, choose one of: [a b]"), "{error}");
    let error = of(Some("c")).await.expect_err("unknown");
    assert!(error.contains("container c is not valid for pod two"), "{error}");

    let image = json!({"containers": [{"name": "main", "image": "example.com/nothing"}]});
    create(&cluster, &pod("unknown", "", image)).await;
    until(&cluster, "unknown", |pod| waiting_reason(pod) == "ErrImagePull").await;
    let error = pods(&cluster).logs("unknown", &LogParams::default()).await.expect_err("no log");
    assert!(error.to_string().contains("is waiting to start: trying and failing to pull image"), "{error}");
    cluster.shutdown().await;
}

/// Reads one message of less than 126 bytes, which a server sends in one frame.
async fn message(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let [opcode, length] = [stream.read_u8().await.expect("a frame"), stream.read_u8().await.expect("a length")];
    assert!(length < 126, "{length}");
    let mut payload = vec![0; length.into()];
    stream.read_exact(&mut payload).await.expect("a payload");
    (opcode, payload)
}

#[tokio::test]
async fn logs_are_followed_over_websocket() {
    let cluster = running().await;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let command = format!("echo first; while ! test -e {}; do sleep 0.02; done; echo last", go.display());
    create(&cluster, &pod("socket", &command, json!({}))).await;
    until(&cluster, "socket", is_running).await;
    let endpoint = listen(&cluster).await;
    let headers: Vec<_> = WEBSOCKET.iter().copied().chain(["Sec-WebSocket-Protocol: base64.binary.k8s.io"]).collect();
    let line = "GET /api/v1/namespaces/default/pods/socket/log?follow=true";
    let (mut stream, head) = request(&endpoint, endpoint.token(), line, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // An empty text message shows that the stream is open.
    assert_eq!(message(&mut stream).await, (0x81, Vec::new()));
    assert_eq!(message(&mut stream).await, (0x81, b"Zmlyc3QK".to_vec()));
    std::fs::write(&go, "").expect("written");
    assert_eq!(message(&mut stream).await, (0x81, b"bGFzdAo=".to_vec()));
    assert_eq!(message(&mut stream).await, (0x88, 1000_u16.to_be_bytes().to_vec()));
    drop(stream);
    cluster.shutdown().await;
}
