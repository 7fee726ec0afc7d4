//! NetworkPolicies, for pods with network namespaces.

use k8s_openapi::api::{core::v1::Service, networking::v1::NetworkPolicy};
use kube::{
    Api,
    api::{DeleteParams, Patch, PostParams},
};
use kubewright_cluster::{Cluster, Endpoint};
use serde_json::{Value, json};

use crate::{
    eventually,
    exec::{Exec, encoded},
    player::ask,
    pod_network::{cluster, serve},
    pods,
    wire::listen,
};

/// Returns whether a connection from a container of a pod to an address is accepted.
async fn connects(endpoint: &Endpoint, pod: &str, address: &str) -> bool {
    let script = format!("timeout 1 bash -c 'exec 3<>/dev/tcp/{address}' 2>/dev/null && echo yes || echo no");
    let words: String = ["bash", "-c", &script].iter().map(|word| format!("&command={}", encoded(word))).collect();
    let path = format!("/api/v1/namespaces/default/pods/{pod}/exec?stdout=true&stderr=true{words}");
    let (out, err, _) = Exec::open(endpoint, "v5.channel.k8s.io", &path).await.rest().await;
    match out.trim() {
        "yes" => true,
        "no" => false,
        _ => panic!("{out}{err}"),
    }
}

async fn until_connects(endpoint: &Endpoint, pod: &str, address: &str, expected: bool) {
    let what = format!("{pod} reaches {address}: {expected}");
    eventually(&what, async || (connects(endpoint, pod, address).await == expected).then_some(())).await;
}

async fn create_policy(cluster: &Cluster, name: &str, spec: Value) {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    let policy = serde_json::from_value(policy).expect("a policy");
    let policies: Api<NetworkPolicy> = Api::default_namespaced(cluster.client());
    policies.create(&PostParams::default(), &policy).await.expect("created");
}

/// Creates a server with a label, and returns the address at which it listens.
async fn serve_with_label(cluster: &Cluster, name: &str, role: &str) -> String {
    let address = serve(cluster, name, "0.0.0.0:8080", json!({})).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"role": role}}}));
    pods(cluster).patch(name, &Default::default(), &label).await.expect("patched");
    format!("{address}/8080")
}

#[tokio::test]
async fn policies_limit_the_connections_of_pods() {
    let Some(cluster) = cluster().await else { return };
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        return;
    }
    let endpoint = listen(&cluster).await;
    let web = serve_with_label(&cluster, "web", "web").await;
    let friend = serve_with_label(&cluster, "friend", "friend").await;
    serve_with_label(&cluster, "other", "other").await;
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "selector": {"role": "web"},
        "ports": [{"port": 80, "targetPort": 8080}]}});
    let service = serde_json::from_value(service).expect("a service");
    let made = services.create(&PostParams::default(), &service).await.expect("created").spec.unwrap_or_default();
    let service = format!("{}/80", made.cluster_ip.unwrap_or_default());
    let node_port = made.ports.into_iter().flatten().find_map(|port| port.node_port).expect("a port");
    for address in [&web, &service] {
        until_connects(&endpoint, "friend", address, true).await;
        until_connects(&endpoint, "other", address, true).await;
    }

    let ingress = json!([{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": 8080}]}]);
    create_policy(
        &cluster,
        "web",
        json!({"podSelector": {"matchLabels": {"role": "web"}}, "policyTypes": ["Ingress"], "ingress": ingress}),
    )
    .await;
    for address in [&web, &service] {
        until_connects(&endpoint, "other", address, false).await;
        assert!(connects(&endpoint, "friend", address).await, "{address}");
        assert!(connects(&endpoint, "web", address).await, "a pod reaches itself at {address}");
        let from_node = ask(&address.replace('/', ":"), "/").await;
        assert_eq!(from_node, Some((200, "web".to_owned())), "the node reaches {address}");
    }
    assert_eq!(ask(&format!("127.0.0.1:{node_port}"), "/").await, Some((200, "web".to_owned())));
    assert!(connects(&endpoint, "web", &friend).await, "nothing limits what it sends");

    // A pod that is selected when it starts is isolated before it listens; here, all of its clients are others.
    create_policy(&cluster, "new", json!({"podSelector": {"matchLabels": {"app": "new"}}, "policyTypes": ["Ingress"]}))
        .await;
    let mut new = crate::pod(
        "new",
        "",
        json!({"containers": [
            {"name": "main", "image": "web", "env": [{"name": "LISTEN", "value": "0.0.0.0:8080"}]},
        ]}),
    );
    new.metadata.labels = Some([("app".to_owned(), "new".to_owned())].into());
    crate::create(&cluster, &new).await;
    let new = format!("{}/8080", crate::address(&crate::until(&cluster, "new", crate::is_running).await));
    eventually("it listens", async || ask(&new.replace('/', ":"), "/").await).await;
    assert!(!connects(&endpoint, "friend", &new).await);

    // Without egress, only the node is left, and with it the API server.
    let api_server = services.get("kubernetes").await.expect("the Service").spec.and_then(|spec| spec.cluster_ip);
    let api_server = format!("{}/443", api_server.expect("an address"));
    create_policy(
        &cluster,
        "friend",
        json!({"podSelector": {"matchLabels": {"role": "friend"}}, "policyTypes": ["Egress"]}),
    )
    .await;
    for address in [&web, &service] {
        until_connects(&endpoint, "friend", address, false).await;
    }
    assert!(connects(&endpoint, "other", &friend).await, "nothing limits what it receives");
    until_connects(&endpoint, "friend", &api_server, true).await;

    let policies: Api<NetworkPolicy> = Api::default_namespaced(cluster.client());
    policies.delete_collection(&DeleteParams::default(), &Default::default()).await.expect("deleted");
    for address in [&web, &service, &new] {
        until_connects(&endpoint, "friend", address, true).await;
        until_connects(&endpoint, "other", address, true).await;
    }
    cluster.shutdown().await;
}
