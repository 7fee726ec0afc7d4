//! Services route connections to their pods.

use std::{io::ErrorKind, net::TcpListener};

use k8s_openapi::api::{
    core::v1::{Event, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, LogParams, Patch, PatchParams, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};

use crate::{create, eventually, is_running, phase, player::ask, playing, pod, pods, until};

fn services(cluster: &Cluster) -> Api<Service> {
    Api::namespaced(cluster.client(), "default")
}

/// Returns a node port that is free on this machine.
pub(crate) fn free_port() -> u16 {
    // Tests that run at the same time start at different ports.
    let start = 30_000 + u16::try_from(std::process::id() % 2000).unwrap_or_default();
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (start..=32_767).find(free).expect("a free port")
}

async fn serve(cluster: &Cluster, image: &str, names: &[&str]) {
    for name in names {
        let mut pod = pod(name, "", json!({"containers": [{"name": "main", "image": image}]}));
        pod.labels_mut().insert("app".into(), "web".into());
        create(cluster, &pod).await;
    }
    for name in names {
        until(cluster, name, is_running).await;
    }
}

async fn expose(cluster: &Cluster, spec: Value) -> Service {
    let mut service = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "type": "NodePort", "ports": [{"port": 8099, "targetPort": 8080}],
    }});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    let service = serde_json::from_value(service).expect("a service");
    services(cluster).create(&PostParams::default(), &service).await.expect("created")
}

fn node_port(service: &Service) -> u16 {
    let port = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()?.first()?.node_port);
    port.and_then(|port| u16::try_from(port).ok()).expect("a node port")
}

fn at_node(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

async fn refused(address: &str) {
    eventually("a refusal", async || {
        let refused = TcpStream::connect(address).await.err()?;
        (refused.kind() == ErrorKind::ConnectionRefused).then_some(())
    })
    .await;
}

#[tokio::test]
async fn connections_reach_all_pods_by_node_port_and_cluster_ip() {
    let cluster = playing().await;
    let service = expose(&cluster, json!({})).await;
    let at_cluster_ip =
        format!("{}:8099", service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).expect("one"));
    refused(&at_node(node_port(&service))).await;
    serve(&cluster, "web", &["one", "two"]).await;
    let mut addresses = vec![at_node(node_port(&service))];
    addresses.extend(cfg!(target_os = "linux").then_some(at_cluster_ip));
    for address in &addresses {
        let mut seen = std::collections::BTreeSet::new();
        eventually("both pods answer", async || {
            let (code, who) = ask(address, "/").await?;
            assert_eq!(code, 200);
            seen.insert(who);
            (seen.len() == 2).then_some(())
        })
        .await;
    }
    pods(&cluster).delete("one", &DeleteParams::default()).await.expect("deleted");
    crate::gone(&cluster, "one").await;
    for _ in 0..4 {
        let (_, who) = eventually("an answer", async || ask(&addresses[0], "/").await).await;
        assert_eq!(who, "two");
    }
    pods(&cluster).delete("two", &DeleteParams::default()).await.expect("deleted");
    for address in &addresses {
        refused(address).await;
    }
    cluster.shutdown().await;
}

/// Two endpoints answer in turn to new clients, and each client stays at its endpoint.
#[tokio::test]
async fn datagrams_reach_endpoints_and_replies_come_back() {
    let cluster = playing().await;
    let mut endpoints = Vec::new();
    for name in ["one", "two"] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        endpoints.push(socket.local_addr().expect("an address").port());
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let reply = [&buffer[..length], name.as_bytes()].concat();
                socket.send_to(&reply, from).await.expect("sent");
            }
        });
    }
    let port = free_port();
    let spec = json!({"type": "NodePort", "ports": [{"port": 53, "nodePort": port, "protocol": "UDP"}]});
    let service = serde_json::from_value(json!({"metadata": {"name": "echo"}, "spec": spec})).expect("a service");
    services(&cluster).create(&PostParams::default(), &service).await.expect("created");
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    for (index, port) in endpoints.iter().enumerate() {
        let slice = json!({
            "metadata": {"name": format!("echo-{index}"), "labels": {"kubernetes.io/service-name": "echo"}},
            "addressType": "IPv4", "ports": [{"port": port, "protocol": "UDP"}],
            "endpoints": [{"addresses": ["127.0.0.1"]}],
        });
        let slice = serde_json::from_value(slice).expect("a slice");
        slices.create(&PostParams::default(), &slice).await.expect("created");
    }
    let mut seen = std::collections::BTreeSet::new();
    eventually("both endpoints answer", async || {
        let client = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        client.connect(("127.0.0.1", port)).await.expect("connected");
        let mut replies = Vec::new();
        for _ in 0..2 {
            client.send(b"hello ").await.ok()?;
            let mut buffer = [0; 64];
            let received = tokio::time::timeout(std::time::Duration::from_millis(500), client.recv(&mut buffer)).await;
            replies.push(String::from_utf8_lossy(&buffer[..received.ok()?.ok()?]).into_owned());
        }
        assert_eq!(replies[0], replies[1]);
        seen.extend(replies);
        (seen.len() == 2).then_some(())
    })
    .await;
    assert_eq!(Vec::from_iter(seen), ["hello one", "hello two"]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_changed_port_closes_the_old_one() {
    let cluster = playing().await;
    serve(&cluster, "web", &["one"]).await;
    let service = expose(&cluster, json!({})).await;
    let old = at_node(node_port(&service));
    eventually("an answer", async || ask(&old, "/").await).await;
    let mut kept = TcpStream::connect(&old).await.expect("it answers");
    kept.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    let mut first = [0; 8];
    kept.read_exact(&mut first).await.expect("an answer");

    let port = free_port();
    let patch = json!({"spec": {"ports": [{"port": 8099, "targetPort": 8080, "nodePort": port}]}});
    services(&cluster).patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    eventually("an answer", async || ask(&at_node(port), "/").await).await;
    refused(&old).await;
    // The kept-alive connection is closed too: reading ends, with or without an error.
    let mut rest = Vec::new();
    let _end = tokio::time::timeout(crate::within(30), kept.read_to_end(&mut rest)).await.expect("it ends");

    services(&cluster).delete("web", &DeleteParams::default()).await.expect("deleted");
    refused(&at_node(port)).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn either_side_may_close_first() {
    let cluster = playing().await;
    serve(&cluster, "count", &["one"]).await;
    let address = at_node(node_port(&expose(&cluster, json!({})).await));
    let bytes = vec![7; 3 << 20];
    let told = eventually("an answer", async || {
        let mut stream = TcpStream::connect(&address).await.ok()?;
        stream.write_all(&bytes).await.ok()?;
        stream.shutdown().await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text).filter(|text| !text.is_empty())
    })
    .await;
    assert_eq!(told, bytes.len().to_string());
    cluster.shutdown().await;
}

#[tokio::test]
async fn session_affinity_keeps_a_client_at_its_pod() {
    let cluster = playing().await;
    serve(&cluster, "web", &["one", "two", "three"]).await;
    let address = at_node(node_port(&expose(&cluster, json!({"sessionAffinity": "ClientIP"})).await));
    let (_, first) = eventually("an answer", async || ask(&address, "/").await).await;
    for _ in 0..6 {
        let (_, who) = ask(&address, "/").await.expect("an answer");
        assert_eq!(who, first);
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_port_in_use_is_reported_and_bound_once_it_is_free() {
    let cluster = playing().await;
    serve(&cluster, "web", &["one"]).await;
    let port = free_port();
    let other = TcpListener::bind(("127.0.0.1", port)).expect("it was free");
    expose(&cluster, json!({"ports": [{"port": 8099, "targetPort": 8080, "nodePort": port}]})).await;
    let told = |events: &[&Event]| {
        let warns = |event: &Event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("PortNotAvailable")
                && event.type_.as_deref() == Some("Warning")
                && event.involved_object.kind.as_deref() == Some("Service")
                && message.starts_with(&format!("failed to listen on 127.0.0.1:{port}: "))
        };
        events.iter().any(|event| warns(event))
    };
    cluster.expect::<Event>(told).await.expect("a warning");
    drop(other);
    eventually("an answer", async || ask(&at_node(port), "/").await).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn containers_have_the_service_variables() {
    let cluster = playing().await;
    let service = expose(&cluster, json!({})).await;
    let address = service.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    let printed = async |name: &str, links: bool| {
        let command = "echo $WEB_SERVICE_HOST:$WEB_SERVICE_PORT $WEB_PORT";
        create(&cluster, &pod(name, command, json!({"enableServiceLinks": links}))).await;
        until(&cluster, name, |pod| phase(pod) == "Succeeded").await;
        pods(&cluster).logs(name, &LogParams::default()).await.expect("a log")
    };
    assert_eq!(printed("told", true).await, format!("{address}:8099 tcp://{address}:8099\n"));
    assert_eq!(printed("untold", false).await, ":\n");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_service_kubernetes_is_created_again() {
    let cluster = playing().await;
    let before = services(&cluster).get("kubernetes").await.expect("it is there");
    let endpoint = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
    services(&cluster).delete("kubernetes", &DeleteParams::default()).await.expect("deleted");
    let address = |service: &Service| service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    let back = |all: &[&Service]| {
        all.iter().any(|one| {
            let port = one.spec.as_ref().and_then(|spec| spec.ports.clone()?.into_iter().next()?.target_port);
            let leads = port.is_some_and(|port| format!("{port:?}").contains(&endpoint.address().port().to_string()));
            one.uid() != before.uid() && address(one) == address(&before) && leads
        })
    };
    cluster.expect::<Service>(back).await.expect("it comes back");
    let leads = |all: &[&k8s_openapi::api::discovery::v1::EndpointSlice]| {
        all.iter().any(|slice| {
            let port = slice.ports.as_ref().and_then(|ports| ports.first()?.port);
            slice.name_any() == "kubernetes" && port == Some(i32::from(endpoint.address().port()))
        })
    };
    cluster.expect(leads).await.expect("it leads to the server");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_api_server_sends_requests_on_to_pods() {
    let cluster = playing().await;
    expose(&cluster, json!({})).await;
    let ask = async |path: &str| {
        let request =
            http::Request::get(format!("/api/v1/namespaces/default/{path}")).body(Vec::new()).expect("a valid request");
        cluster.client().request_text(request).await
    };
    let error = ask("services/web:8099/proxy/").await.expect_err("no endpoint");
    assert!(error.to_string().contains("no endpoints available for service \"web\""), "{error}");
    serve(&cluster, "web", &["one"]).await;
    let answer = eventually("an answer", async || ask("services/web:8099/proxy/").await.ok()).await;
    assert_eq!(answer, "one");
    assert_eq!(ask("pods/one:8080/proxy/").await.expect("an answer"), "one");
    let error = ask("pods/one:8081/proxy/").await.expect_err("nothing listens there");
    assert!(error.to_string().contains("error trying to reach service: dial tcp"), "{error}");
    cluster.shutdown().await;
}
