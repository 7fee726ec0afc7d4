//! Pods with network namespaces.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{DeleteParams, LogParams, Patch, PostParams},
};
use kubewright_cluster::{Cidr, Cluster, ClusterBuilder, Endpoint, PodNetwork, Pods, StartError};
use serde_json::{Value, json};
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE, rdata::RData};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    address, create, eventually,
    exec::Exec,
    exit_code, gone, is_running,
    player::{ask, images},
    pod, pods,
    proxy::free_port,
    until,
    wire::listen,
};

/// A cluster with network namespaces; `None` on a host that can't make them, which the cluster says.
pub(crate) async fn cluster() -> Option<Cluster> {
    start(Cluster::builder()).await
}

async fn start(builder: ClusterBuilder) -> Option<Cluster> {
    let builder = builder.pods(Pods::Run).images(images()).pod_network(PodNetwork::Namespaces);
    match builder.start().await {
        Ok(cluster) => Some(cluster),
        Err(StartError::PodNetwork(why)) => {
            let tried = std::process::Command::new("unshare")
                .args(["--net", "ip", "link", "add", "kwtest", "type", "veth"])
                .output();
            let works = tried.is_ok_and(|output| output.status.success());
            assert!(!works, "the host could make them: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Creates a pod that listens at an address, and waits until it runs. `more` adds fields to the container.
pub(crate) async fn serve(cluster: &Cluster, name: &str, at: &str, more: Value) -> String {
    let mut container = json!({"name": "main", "image": "web", "env": [{"name": "LISTEN", "value": at}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    create(cluster, &pod(name, "", json!({"containers": [container]}))).await;
    address(&until(cluster, name, is_running).await)
}

/// Asks for the name of who answers at an address, from a container of a pod.
async fn asked_in(endpoint: &Endpoint, pod: &str, host: &str) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/{host} || exit; printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&3; \
         for line in 1 2 3; do read -r -t 9 -u 3; done; read -r -t 9 -n 3 -u 3; printf %s \"$REPLY\""
    );
    let words: String =
        ["bash", "-c", &script].iter().map(|word| format!("&command={}", crate::exec::encoded(word))).collect();
    let path = format!("/api/v1/namespaces/default/pods/{pod}/exec?stdout=true&stderr=true{words}");
    let (out, err, _) = Exec::open(endpoint, "v5.channel.k8s.io", &path).await.rest().await;
    format!("{out}{err}")
}

/// The device of the host that leads to a pod.
fn device(address: &str) -> PathBuf {
    let [a, b, c, d] = address.parse::<Ipv4Addr>().expect("an address").octets();
    format!("/sys/class/net/kw{a:02x}{b:02x}{c:02x}{d:02x}").into()
}

#[tokio::test]
async fn pods_have_ports_and_a_localhost_of_their_own() {
    let Some(cluster) = cluster().await else { return };
    let endpoint = listen(&cluster).await;
    let host_port = free_port();
    let ports = json!({"ports": [{"containerPort": 8080, "hostPort": host_port}]});
    let one = serve(&cluster, "one", "0.0.0.0:8080", json!({})).await;
    let two = serve(&cluster, "two", "0.0.0.0:8080", ports).await;
    for (name, at) in
        [("one", format!("{one}:8080")), ("two", format!("{two}:8080")), ("two", format!("127.0.0.1:{host_port}"))]
    {
        let answer = eventually("an answer", async || ask(&at, "/").await).await;
        assert_eq!(answer, (200, name.to_owned()), "{at}");
    }
    let service = json!({"metadata": {"name": "two"}, "spec": {"selector": {"app": "two"}, "ports": [{"port": 8099, "targetPort": 8080}]}});
    let service: Service = serde_json::from_value(service).expect("a service");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let service = services.create(&PostParams::default(), &service).await.expect("created");
    let service = service.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    let label = json!({"metadata": {"labels": {"app": "two"}}});
    let patch = Patch::Merge(&label);
    pods(&cluster).patch("two", &Default::default(), &patch).await.expect("patched");
    eventually("the Service answers", async || ask(&format!("{service}:8099"), "/").await).await;
    let node = until(&cluster, "two", is_running).await.status.and_then(|status| status.host_ip).expect("an address");
    for (name, host) in [
        ("one", "127.0.0.1/8080".to_owned()),
        ("one", format!("{one}/8080")),
        ("two", format!("{two}/8080")),
        ("two", format!("{service}/8099")),
        ("two", format!("{node}/{host_port}")),
    ] {
        assert_eq!(asked_in(&endpoint, "one", &host).await, name, "{host}");
    }
    let nodes: Api<Node> = Api::all(cluster.client());
    let addresses = nodes.get("kubewright").await.expect("the node").status.and_then(|status| status.addresses);
    assert!(addresses.is_some_and(|all| all.iter().any(|one| one.address == node)) && node != "127.0.0.1");
    cluster.shutdown().await;
}

/// Some programs refuse loopback addresses.
#[tokio::test]
async fn pods_and_services_may_have_ranges_of_their_own() {
    // Addresses for documentation, which no other test uses.
    let pods_range = Cidr::parse("198.51.100.0/25").expect("a range");
    let services_range = "198.51.100.128/25".parse().expect("a range");
    let builder = || Cluster::builder().pod_range(pods_range).service_range(services_range);
    let Some(cluster) = start(builder()).await else { return };
    let endpoint = listen(&cluster).await;
    let web = serve(&cluster, "web", "0.0.0.0:8080", json!({})).await;
    serve(&cluster, "client", "0.0.0.0:8080", json!({})).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
    pods(&cluster).patch("web", &Default::default(), &label).await.expect("patched");
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080}]}});
    let service = serde_json::from_value(service).expect("a service");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let made = services.create(&PostParams::default(), &service).await.expect("created").spec.unwrap_or_default();
    let service = made.cluster_ip.unwrap_or_default();
    let node_port = made.ports.into_iter().flatten().find_map(|port| port.node_port).expect("a port");
    let is_in = |range: Cidr, address: &str| range.contains(address.parse().expect("an address"));
    assert!(is_in(pods_range, &web) && is_in(services_range.into(), &service), "{web} {service}");
    let system: Api<Service> = Api::namespaced(cluster.client(), "kube-system");
    let dns = system.get("kube-dns").await.expect("the Service of the server").spec.and_then(|spec| spec.cluster_ip);
    assert_eq!(dns.as_deref(), Some("198.51.100.138"), "the tenth address");
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = nodes.get("kubewright").await.expect("the node");
    assert_eq!(node.spec.and_then(|spec| spec.pod_cidr).as_deref(), Some("198.51.100.0/25"));
    let node = until(&cluster, "web", is_running).await.status.and_then(|status| status.host_ip).expect("an address");
    for at in [format!("{service}:80"), format!("{web}:8080"), format!("127.0.0.1:{node_port}")] {
        let answer = eventually("an answer", async || ask(&at, "/").await).await;
        assert_eq!(answer, (200, "web".to_owned()), "{at}");
    }
    for host in [
        format!("{service}/80"),
        format!("{web}/8080"),
        format!("{node}/{node_port}"),
        "web.default.svc.cluster.local/80".to_owned(),
    ] {
        assert_eq!(asked_in(&endpoint, "client", &host).await, "web", "{host}");
    }
    // No Service has the address, so the packets end on this host.
    let unused = if service == "198.51.100.199" { "198.51.100.198" } else { "198.51.100.199" };
    let routed = std::process::Command::new("ip").args(["route", "get", unused]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&routed.stdout).contains(" dev kw"), "{routed:?}");
    for length in [26, 25, 24, 16] {
        let range = Cidr { length, ..pods_range };
        match Cluster::builder().pod_range(range).pod_network(PodNetwork::Namespaces).start().await {
            Err(StartError::PodNetwork(why)) => {
                let expect = format!("uses addresses of {} already, with the route `198.51.100.", range.aligned());
                assert!(why.contains(&expect), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    cluster.shutdown().await;
    match builder().pods(Pods::Run).start().await {
        Err(StartError::PodNetwork(why)) => assert!(why.contains("198.51.100.0/25"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// A program of the host, or a pod of its network, may listen on the port of a Service at all addresses.
#[tokio::test]
async fn services_take_no_ports_of_the_hosts_network() {
    let Some(cluster) = cluster().await else { return };
    let endpoint = listen(&cluster).await;
    serve(&cluster, "web", "0.0.0.0:8080", json!({})).await;
    let label = json!({"metadata": {"labels": {"app": "web"}}});
    pods(&cluster).patch("web", &Default::default(), &Patch::Merge(&label)).await.expect("patched");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let program = std::net::TcpListener::bind("0.0.0.0:0").expect("a listener");
    let taken = program.local_addr().expect("an address").port();
    // Once the first one answers, the address isn't one of the host any more.
    let ports = [free_port(), taken];
    // An address for documentation, which is that of no machine.
    let outside = "203.0.113.77";
    let web = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "externalIPs": [outside], "ports": ports.map(|port| {
        json!({"name": format!("port-{port}"), "port": port, "targetPort": 8080})
    })}});
    let web = serde_json::from_value(web).expect("a service");
    let web = services.create(&PostParams::default(), &web).await.expect("created").spec.unwrap_or_default();
    let ip = web.cluster_ip.unwrap_or_default();
    for port in ports {
        let answer = eventually("an answer", async || ask(&format!("{ip}:{port}"), "/").await).await;
        assert_eq!(answer, (200, "web".to_owned()), "{port}");
        assert_eq!(asked_in(&endpoint, "web", &format!("{ip}/{port}")).await, "web", "{port}");
        let answer = eventually("an answer", async || ask(&format!("{outside}:{port}"), "/").await).await;
        assert_eq!(answer, (200, "web".to_owned()), "{port}");
    }
    drop(std::net::TcpListener::bind(("0.0.0.0", ports[0])).expect("a listener"));
    // Another Service has the external address, too.
    let port = ports[0] + 1;
    let other = json!({"metadata": {"name": "other"}, "spec": {"selector": {"app": "web"}, "externalIPs": [outside],
        "ports": [{"port": port, "targetPort": 8080}]}});
    let other = serde_json::from_value(other).expect("a service");
    services.create(&PostParams::default(), &other).await.expect("created");
    eventually("an answer", async || ask(&format!("{outside}:{port}"), "/").await).await;
    services.delete("web", &DeleteParams::default()).await.expect("deleted");
    // The address is one of the host's loopback network again.
    eventually("the address is given up", async || std::net::TcpListener::bind((&*ip, ports[0])).ok()).await;
    assert_eq!(ask(&format!("{outside}:{port}"), "/").await, Some((200, "web".to_owned())));
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_of_the_hosts_network_have_no_namespace() {
    let Some(cluster) = cluster().await else { return };
    let own = std::fs::read_link("/proc/self/ns/net").expect("a link").display().to_string();
    for (name, host_network) in [("host", true), ("own", false)] {
        create(&cluster, &pod(name, "readlink /proc/self/ns/net", json!({"hostNetwork": host_network}))).await;
        let ended = until(&cluster, name, |pod| exit_code(pod) == Some(0)).await;
        let text = pods(&cluster).logs(name, &LogParams::default()).await.expect("a log");
        assert_eq!(text.trim() == own, host_network, "{name}: {text}");
        let status = ended.status.unwrap_or_default();
        assert_eq!(status.pod_ip == status.host_ip, host_network, "{status:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn ports_of_a_pods_localhost_are_forwarded_and_the_api_server_is_reached() {
    let Some(cluster) = cluster().await else { return };
    let endpoint = listen(&cluster).await;
    serve(&cluster, "web", "127.0.0.1:8080", json!({})).await;
    let path = "/api/v1/namespaces/default/pods/web/portforward?ports=8080";
    eventually("the pod answers", async || {
        let mut socket = Exec::open(&endpoint, "v4.channel.k8s.io", path).await;
        for channel in 0..2 {
            let [low, high] = 8080_u16.to_le_bytes();
            assert_eq!(socket.next().await, Some(Message::binary(vec![channel, low, high])));
        }
        socket.send(b"\0GET / HTTP/1.1\r\n\r\n").await;
        socket.try_until("web", crate::within(5)).await
    })
    .await;
    let script = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT && test $HOST_IP = $KUBERNETES_SERVICE_HOST";
    let spec = json!({"containers": [{
        "name": "main", "image": "busybox", "command": ["bash", "-c", script],
        "env": [{"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
    }]});
    create(&cluster, &pod("client", "", spec)).await;
    let ended = until(&cluster, "client", |pod| exit_code(pod).is_some()).await;
    assert_eq!(exit_code(&ended), Some(0));
    cluster.shutdown().await;
}

/// The address by which this host sends packets to other machines, if it is connected.
fn outer_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn the_node_connects_pods_with_other_machines() {
    let Some(cluster) = cluster().await else { return };
    let has_nft = std::process::Command::new("nft").arg("--version").output().is_ok();
    let Some(own) = outer_address().filter(|_| has_nft) else { return };
    let listener = tokio::net::TcpListener::bind((own, 0)).await.expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let script = format!(
        "exec 2>&1; exec 3<>/dev/tcp/{own}/{port} && echo hello >&3 && read -r reply <&3 && echo $reply; \
         echo x >/dev/udp/{own}/9 || echo refused"
    );
    create(
        &cluster,
        &pod(
            "client",
            "",
            json!({"containers": [{"name": "main", "image": "busybox", "command": ["bash", "-c", script]}]}),
        ),
    )
    .await;
    let (mut stream, peer) =
        tokio::time::timeout(crate::within(30), listener.accept()).await.expect("in time").expect("a client");
    assert_eq!(peer.ip(), own, "the connection is the node's");
    let mut read = [0; 6];
    stream.read_exact(&mut read).await.expect("readable");
    stream.write_all(b"bye\n").await.expect("written");
    drop(stream);
    until(&cluster, "client", |pod| exit_code(pod).is_some()).await;
    let text = pods(&cluster).logs("client", &LogParams::default()).await.expect("a log");
    assert!(&read == b"hello\n" && text.starts_with("bye\n") && text.ends_with("refused\n"), "{text}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_namespace_ends_with_its_pod_and_with_the_cluster() {
    let Some(cluster) = cluster().await else { return };
    let one = serve(&cluster, "one", "0.0.0.0:8080", json!({})).await;
    let two = serve(&cluster, "two", "0.0.0.0:8080", json!({})).await;
    assert!(device(&one).exists() && device(&two).exists());
    pods(&cluster).delete("one", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    gone(&cluster, "one").await;
    let is_gone = async |address: &str| (!device(address).exists()).then_some(());
    eventually("the device of the deleted pod is gone", async || is_gone(&one).await).await;
    drop(cluster);
    eventually("the devices of the cluster are gone", async || is_gone(&two).await).await;
}

/// The records that the cluster's DNS has for a name, and whether the name exists.
async fn asked_dns(server: &str, name: &str, kind: TYPE) -> (RCODE, Vec<String>) {
    let mut query = Packet::new_query(9);
    let qname = Name::new(name).expect("a name").into_owned();
    query.questions.push(Question::new(qname, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    let query = query.build_bytes_vec().expect("a query");
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.send_to(&query, (server, 53)).await.expect("sent");
    let mut by_udp = vec![0; 512];
    let received = tokio::time::timeout(crate::within(10), socket.recv(&mut by_udp));
    let length = received.await.expect("in time").expect("an answer");
    by_udp.truncate(length);
    let mut stream = tokio::net::TcpStream::connect((server, 53)).await.expect("it listens");
    let framed = [&u16::try_from(query.len()).expect("short").to_be_bytes()[..], &query].concat();
    stream.write_all(&framed).await.expect("sent");
    let mut by_tcp = vec![0; stream.read_u16().await.expect("an answer").into()];
    stream.read_exact(&mut by_tcp).await.expect("an answer");
    assert_eq!(by_udp, by_tcp);
    let reply = Packet::parse(&by_udp).expect("an answer");
    let text = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::A(a) => Ipv4Addr::from(a.address).to_string(),
        RData::CNAME(name) => name.to_string(),
        RData::SRV(srv) => format!("{} {}", srv.port, srv.target),
        other => format!("{other:?}"),
    };
    (reply.rcode(), reply.answers.iter().map(text).collect())
}

#[tokio::test]
async fn pods_find_services_by_dns() {
    let Some(cluster) = cluster().await else { return };
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = nodes.get("kubewright").await.expect("the node").status.and_then(|status| status.addresses);
    let server = node.and_then(|all| Some(all.first()?.address.clone())).expect("an address");
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let make = async |name: &str, spec: Value| {
        let service = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a service");
        let made = services.create(&PostParams::default(), &service).await.expect("created");
        made.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default()
    };
    let web = make("web", json!({"ports": [{"name": "http", "port": 80}]})).await;
    make("alias", json!({"type": "ExternalName", "externalName": "web.default.svc.cluster.local"})).await;
    let base = "web.default.svc.cluster.local";
    // The node learns of Services shortly after clients do.
    eventually("the alias", async || {
        let answer = asked_dns(&server, "alias.default.svc.cluster.local", TYPE::A).await;
        (answer == (RCODE::NoError, vec![base.to_owned(), web.clone()])).then_some(())
    })
    .await;
    for (name, kind, code, records) in [
        (base, TYPE::A, RCODE::NoError, vec![web.clone()]),
        (base, TYPE::AAAA, RCODE::NoError, vec![]),
        ("_http._tcp.web.default.svc.cluster.local", TYPE::SRV, RCODE::NoError, vec![format!("80 {base}")]),
        ("absent.default.svc.cluster.local", TYPE::A, RCODE::NameError, vec![]),
    ] {
        assert_eq!(asked_dns(&server, name, kind).await, (code, records), "{name}");
    }
    let system: Api<Service> = Api::namespaced(cluster.client(), "kube-system");
    let dns = system.get("kube-dns").await.expect("the Service of the server").spec.and_then(|spec| spec.cluster_ip);
    let dns = dns.expect("an address");
    let by_service = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": [dns]}});
    // The proxy learns of the Service shortly after it is there.
    let resolve = format!("until getent ahostsv4 alias.{}; do sleep 0.1; done", &base[4..]);
    create(&cluster, &pod("resolver", &resolve, by_service)).await;
    until(&cluster, "resolver", |pod| exit_code(pod).is_some()).await;
    let text = pods(&cluster).logs("resolver", &LogParams::default()).await.expect("a log");
    assert!(text.starts_with(&web), "{text}");
    // The hosts file doesn't have aliases.
    create(&cluster, &pod("reader", "cat /etc/resolv.conf; getent ahostsv4 alias | head -n 1", json!({}))).await;
    until(&cluster, "reader", |pod| exit_code(pod).is_some()).await;
    let text = pods(&cluster).logs("reader", &LogParams::default()).await.expect("a log");
    assert!(text.contains(&format!("nameserver {server}\noptions ndots:5\n")), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with(&web)), "{text}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn kernel_parameters_are_those_of_the_pod() {
    let Some(cluster) = cluster().await else { return };
    let parameters = json!([{"name": "kernel.shm_rmid_forced", "value": "1"},
        {"name": "net.ipv4.ip_local_port_range", "value": "30000 31000"}]);
    let files = ["kernel/shm_rmid_forced", "net/ipv4/ip_local_port_range"].map(|file| format!("/proc/sys/{file}"));
    let before = files.each_ref().map(|file| std::fs::read_to_string(file).expect("it can be read"));
    let spec = json!({"securityContext": {"sysctls": parameters}});
    create(&cluster, &pod("tuned", &format!("cat {}", files.join(" ")), spec)).await;
    assert_eq!(exit_code(&until(&cluster, "tuned", |pod| exit_code(pod).is_some()).await), Some(0));
    let log = pods(&cluster).logs("tuned", &LogParams::default()).await.expect("a log");
    assert_eq!(log.split_whitespace().collect::<Vec<_>>(), ["1", "30000", "31000"]);
    assert_eq!(files.map(|file| std::fs::read_to_string(file).expect("it can be read")), before, "those of the host");
    cluster.shutdown().await;
}
