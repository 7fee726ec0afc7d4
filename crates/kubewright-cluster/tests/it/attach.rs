//! Attached clients: the streams of running containers.

use std::time::Duration;

use kubewright_cluster::{Cluster, Endpoint};
use serde_json::{Value, json};

use crate::{
    create,
    exec::{Exec, SUCCESS, V5},
    is_running, phase, pod, running, until,
    wire::listen,
};

fn path(name: &str, streams: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}/attach?{streams}")
}

async fn started(name: &str, command: &str, more: Value) -> (Cluster, Endpoint) {
    let cluster = running().await;
    let mut container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", command]});
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    create(&cluster, &pod(name, "", json!({"containers": [container]}))).await;
    until(&cluster, name, is_running).await;
    let endpoint = listen(&cluster).await;
    (cluster, endpoint)
}

#[tokio::test]
async fn clients_see_the_output_and_write_the_input() {
    let command = "while read line; do echo got $line; echo err $line >&2; test $line = end && exit 5; done";
    let (cluster, endpoint) = started("chat", command, json!({"stdin": true})).await;
    let mut first = Exec::open(&endpoint, V5, &path("chat", "stdin=true&stdout=true&stderr=true")).await;
    first.send(b"\0one\n").await;
    first.until("got one").await;
    // The input remains open for the next client.
    drop(first);
    let answer = async || {
        let mut second = Exec::open(&endpoint, V5, &path("chat", "stdin=true&stdout=true&stderr=true")).await;
        second.send(b"\0two\n").await;
        second.try_until("got two", Duration::from_secs(1)).await.map(|_| second)
    };
    // The first client may still have it.
    let mut second = crate::eventually("the input is free", answer).await;
    second.send(b"\0end\n").await;
    let (out, err, result) = second.rest().await;
    assert!(out.ends_with("got end\n") && err.ends_with("err end\n"), "{out} {err}");
    assert_eq!(result.to_string(), SUCCESS);
    until(&cluster, "chat", |pod| phase(pod) == "Failed").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_input_for_one_client_ends_with_it() {
    let (cluster, endpoint) = started("once", "cat; echo over", json!({"stdin": true, "stdinOnce": true})).await;
    let mut client = Exec::open(&endpoint, V5, &path("once", "stdin=true&stdout=true")).await;
    client.send(b"\0text").await;
    client.until("text").await;
    client.send(&[255, 0]).await;
    let (out, _, result) = client.rest().await;
    assert_eq!((&*out, &*result.to_string()), ("over\n", SUCCESS));
    until(&cluster, "once", |pod| phase(pod) == "Succeeded").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_client_whose_input_ends_is_disconnected_from_a_container_that_goes_on() {
    let (cluster, endpoint) = started("on", "cat; echo over", json!({"stdin": true})).await;
    let mut client = Exec::open(&endpoint, V5, &path("on", "stdin=true&stdout=true")).await;
    client.send(b"\0text").await;
    client.until("text").await;
    client.send(&[255, 0]).await;
    let (out, _, result) = client.rest().await;
    assert_eq!((&*out, &*result.to_string()), ("", SUCCESS));
    let pod = crate::pods(&cluster).get("on").await.expect("the pod");
    assert!(is_running(&pod), "{pod:?}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_can_have_a_terminal() {
    let command = "test -t 0 && test -t 1 && echo terminal $TERM; read line; echo got $line; stty size";
    let (cluster, endpoint) = started("screen", command, json!({"stdin": true, "tty": true})).await;
    let mut client = Exec::open(&endpoint, V5, &path("screen", "stdin=true&stdout=true&tty=true")).await;
    client.send(b"\x04{\"Width\":91,\"Height\":33}").await;
    client.send(b"\0hello\n").await;
    let seen = client.until("33 91").await;
    assert!(seen.contains("got hello"), "{seen}");
    let ended = until(&cluster, "screen", |pod| phase(pod) == "Succeeded").await;
    let name = ended.metadata.name.unwrap_or_default();
    let log = crate::pods(&cluster).logs(&name, &Default::default()).await.expect("a log");
    assert!(log.contains("terminal xterm"), "{log}");
    cluster.shutdown().await;
}
