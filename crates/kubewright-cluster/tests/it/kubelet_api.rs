//! The kubelet's own statistics, through `nodes/NAME/proxy`.

use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::PostParams};
use kubewright_apiserver::UserInfo;
use kubewright_cluster::{Cluster, Pods, ResourceUsage};
use serde_json::{Value, json};

use crate::{
    create, eventually, is_running, pod, pod_network, running, until,
    wire::{listen, request_to},
};

async fn get_of(client: Client, node: &str, path: &str) -> Result<String, kube::Error> {
    let request = Request::get(format!("/api/v1/nodes/{node}/proxy{path}")).header("accept", "text/plain");
    let request = request.body(Vec::new()).expect("a request");
    client.request_text(request).await
}

async fn get(cluster: &Cluster, path: &str) -> Result<String, kube::Error> {
    get_of(cluster.client(), "kubewright", path).await
}

fn code(result: Result<String, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn probes_are_counted() {
    let cluster = running().await;
    let mut probed = pod("web", "sleep 1000", json!({}));
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let containers = &mut probed.spec.as_mut().expect("a spec").containers;
    containers[0].readiness_probe = serde_json::from_value(probe).expect("a probe");
    create(&cluster, &probed).await;
    let uid = until(&cluster, "web", is_running).await.metadata.uid.unwrap_or_default();
    let labels = r#"container="main",namespace="default",pod="web","#;
    let sample =
        format!(r#"prober_probe_total{{{labels}pod_uid="{uid}",probe_type="Readiness",result="successful"}} "#);
    let durations = format!(r#"prober_probe_duration_seconds_count{{{labels}probe_type="Readiness"}} "#);
    let metrics = eventually("the probe has succeeded", async || {
        let text = get(&cluster, "/metrics/probes").await.ok()?;
        text.contains(&sample).then_some(text)
    });
    let metrics = metrics.await;
    assert!(metrics.contains(&durations) && metrics.contains("\nprocess_start_time_seconds "), "{metrics}");
    crate::pods(&cluster).delete("web", &kube::api::DeleteParams::default().grace_period(0)).await.expect("deleted");
    eventually("its probes are forgotten", async || {
        let text = get(&cluster, "/metrics/probes").await.ok()?;
        (!text.contains("prober_probe_total{")).then_some(())
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_that_computes_has_used_cpu() {
    let cluster = running().await;
    create(&cluster, &pod("busy", "(while :; do :; done) & wait", json!({}))).await;
    let busy = until(&cluster, "busy", is_running).await;
    let labels = r#"{container="main",namespace="default",pod="busy"}"#;
    let of = |text: &str, metric: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{metric}{labels} ")))?;
        line.split(' ').next()?.parse::<f64>().ok()
    };
    let metrics = eventually("the container has used CPU", async || {
        let text = get(&cluster, "/metrics/resource").await.ok()?;
        of(&text, "container_cpu_usage_seconds_total").filter(|used| *used > 0.02).map(|_| text)
    });
    let metrics = metrics.await;
    assert!(of(&metrics, "container_memory_working_set_bytes").is_some_and(|bytes| bytes > 0.0));
    assert!(of(&metrics, "container_start_time_seconds").is_some());
    assert!(metrics.contains("\nnode_cpu_usage_seconds_total "), "{metrics}");
    assert!(metrics.ends_with("resource_scrape_error 0\n"), "{metrics}");

    let summary: Value =
        serde_json::from_str(&get(&cluster, "/stats/summary").await.expect("a summary")).expect("JSON");
    let found = &summary["pods"][0];
    assert_eq!(found["podRef"], json!({"name": "busy", "namespace": "default", "uid": busy.metadata.uid}));
    assert!(found["containers"][0]["cpu"]["usageCoreNanoSeconds"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["node"]["nodeName"], "kubewright");
    assert!(summary["node"]["memory"]["availableBytes"].as_u64() > Some(0), "{summary}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_node_answers_what_a_kubelet_does() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    until(&cluster, "web", is_running).await;
    cluster.set_usage(|_, _| ResourceUsage { cpu_nanocores: 250_000_000, memory_bytes: 64 << 20 });
    for path in ["/healthz", "/%68ealthz"] {
        assert_eq!(get(&cluster, path).await.expect("healthy"), "ok", "{path}");
    }
    let metrics = get(&cluster, "/metrics/resource").await.expect("metrics");
    let sample = format!(
        r#"container_memory_working_set_bytes{{container="main",namespace="default",pod="web"}} {} "#,
        64 << 20
    );
    assert!(metrics.contains(&sample), "{metrics}");
    let metrics = get(&cluster, "/metrics/cadvisor").await.expect("metrics");
    let sample = metrics.lines().find(|line| line.starts_with(r#"container_memory_rss{container="main""#));
    assert!(sample.is_some_and(|line| line.contains(&format!(r#"pod="web"}} {} "#, 64 << 20))), "{metrics}");
    let list: Value = serde_json::from_str(&get(&cluster, "/pods").await.expect("pods")).expect("JSON");
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("PodList"), &json!("web")));
    let list: Value = serde_json::from_str(&get(&cluster, "/runningpods/").await.expect("pods")).expect("JSON");
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
    assert_eq!(list["items"][0]["spec"]["containers"], json!([{"name": "main", "image": "busybox", "resources": {}}]));
    let own = get(&cluster, "/metrics").await.expect("metrics");
    assert!(
        own.contains("\nkubelet_node_name{node=\"kubewright\"} 1\n") && own.contains("\nkubelet_running_pods 1\n"),
        "{own}"
    );
    assert!(own.contains("\nkubelet_started_containers_total{container_type=\"container\"} 1\n"), "{own}");
    cluster.finish_pod("default", "web", 139).await.expect("ended");
    let ended = r#"kubelet_terminated_containers_total{container_type="container",exit_code="139",reason="Error"} 1"#;
    eventually("the end is counted", async || {
        get(&cluster, "/metrics").await.expect("metrics").contains(ended).then_some(())
    })
    .await;
    assert!(get(&cluster, "/logs/").await.expect("a page").contains("<pre>"));
    assert_eq!(code(get(&cluster, "/logs/kubewright-nothing").await), 404);
    assert_eq!(code(get(&cluster, "/nothing").await), 404);
    let request = Request::post("/api/v1/nodes/kubewright/proxy/healthz").body(Vec::new()).expect("a request");
    assert_eq!(code(cluster.client().request_text(request).await), 405);
    assert_eq!(code(get_of(cluster.client(), "missing", "/healthz").await), 404);
    for identifier in ["kubewright:10250", "https:kubewright:10250"] {
        assert_eq!(get_of(cluster.client(), identifier, "/healthz").await.expect("healthy"), "ok");
    }
    for (identifier, expect) in [("kubewright:10256", 503), ("missing:10250", 404), ("ftp:kubewright:10250", 400)] {
        assert_eq!(code(get_of(cluster.client(), identifier, "/healthz").await), expect, "{identifier}");
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn other_nodes_have_kubelets_of_their_own() {
    for pods in [Pods::Simulate, Pods::None] {
        let cluster = Cluster::builder().pods(pods).start().await.expect("a cluster");
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        });
        let other = json!({"metadata": {"name": "other"}, "status": status});
        let other = serde_json::from_value::<Node>(other).expect("a node");
        Api::all(cluster.client()).create(&PostParams::default(), &other).await.expect("created");
        assert_eq!(code(get_of(cluster.client(), "other", "/healthz").await), 503);
        create(&cluster, &pod("web", "true", json!({"nodeName": "other"}))).await;
        let path = "/api/v1/namespaces/default/pods/web/log";
        let refused = cluster.client().request_text(Request::get(path).body(Vec::new()).expect("a request")).await;
        match refused {
            Err(kube::Error::Api(status)) => assert_eq!(
                status.message,
                "Get \"https://127.0.0.1:1/containerLogs/default/web/main\": dial tcp 127.0.0.1:1: connect: connection refused"
            ),
            other => panic!("{other:?}"),
        }
        cluster.shutdown().await;
    }
}

#[tokio::test]
async fn the_proxy_needs_its_own_permission() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    may_read(&cluster, "nodes", json!({"kind": "User", "name": "scraper", "apiGroup": "rbac.authorization.k8s.io"}))
        .await;
    let scraper = || cluster.api().client_of(UserInfo::new("scraper", ["system:authenticated"]));
    assert_eq!(code(get_of(scraper(), "kubewright", "/metrics/resource").await), 403);
    may_read_instead(&cluster, "nodes/proxy").await;
    get_of(scraper(), "kubewright", "/metrics/resource").await.expect("allowed");
    cluster.shutdown().await;
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn send(cluster: &Cluster, method: &str, path: String, body: Value) -> Value {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    cluster.client().request(request).await.expect("accepted")
}

fn role(resource: &str) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
    json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}, "rules": rules})
}

/// Lets a user get a resource.
async fn may_read(cluster: &Cluster, resource: &str, user: Value) {
    send(cluster, "POST", format!("{RBAC}/clusterroles"), role(resource)).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"});
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": role, "subjects": [user]});
    send(cluster, "POST", format!("{RBAC}/clusterrolebindings"), binding).await;
}

async fn may_read_instead(cluster: &Cluster, resource: &str) {
    send(cluster, "PUT", format!("{RBAC}/clusterroles/reader"), role(resource)).await;
}

#[tokio::test]
async fn the_port_of_the_kubelet_has_permissions_for_its_paths() {
    let Some(cluster) = pod_network::cluster().await else { return };
    let endpoint = listen(&cluster).await;
    let node = Api::<Node>::all(cluster.client()).get("kubewright").await.expect("a node").status.expect("a status");
    let port = node.daemon_endpoints.and_then(|endpoints| endpoints.kubelet_endpoint).map(|endpoint| endpoint.port);
    assert_eq!(port, Some(10250));
    let address = format!("{}:10250", node.addresses.expect("addresses")[0].address).parse().expect("an address");
    let get = async |path: &str, headers: &[&str]| {
        let (_, head) = request_to(address, endpoint.authority(), &format!("GET {path}"), headers).await;
        head.split(' ').nth(1).expect("a code").to_owned()
    };
    assert_eq!(get("/healthz", &[]).await, "401");
    assert_eq!(get("/healthz", &["Authorization: Bearer nobody"]).await, "401");
    may_read(&cluster, "nodes/healthz", json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"}))
        .await;
    let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = eventually("the account is there", async || {
        let request =
            Request::post(path).header("content-type", "application/json").body(request.to_string().into_bytes());
        cluster.client().request::<Value>(request.expect("a request")).await.ok()
    });
    let token = format!("Authorization: Bearer {}", answer.await["status"]["token"].as_str().expect("a token"));
    let codes = async || {
        [get("/healthz", &[&token]).await, get("/metrics/resource", &[&token]).await, get("/nothing", &[&token]).await]
    };
    assert_eq!(codes().await, ["200", "403", "403"]);
    may_read_instead(&cluster, "nodes/metrics").await;
    assert_eq!(codes().await, ["403", "200", "403"]);
    may_read_instead(&cluster, "nodes/proxy").await;
    assert_eq!(codes().await, ["200", "403", "404"]);
    cluster.shutdown().await;
}
