//! `metrics.k8s.io`: what nodes and pods use.

use http::Request;
use jiff::Timestamp;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_cluster::{Cluster, Pods, ResourceUsage};
use serde_json::{Value, json};

use crate::{
    create, eventually,
    exec::{Exec, V5, path},
    is_running, pod, running, until,
    wire::listen,
};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

async fn get(cluster: &Cluster, path: &str) -> Result<Value, String> {
    get_as(cluster, path, "application/json").await
}

async fn get_as(cluster: &Cluster, path: &str, accept: &str) -> Result<Value, String> {
    let request =
        Request::get(format!("{METRICS}{path}")).header("accept", accept).body(Vec::new()).expect("a request");
    cluster.client().request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("items").iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn simulated_pods_use_what_the_test_says() {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    let builder = Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1));
    let cluster = builder.start().await.expect("a cluster");
    let mut web = pod("web", "sleep 3600", json!({}));
    web.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    create(&cluster, &web).await;
    create(&cluster, &pod("idle", "sleep 3600", json!({}))).await;
    until(&cluster, "web", is_running).await;
    until(&cluster, "idle", is_running).await;
    cluster.set_usage(|pod, container| match (pod["metadata"]["name"].as_str(), container) {
        (Some("web"), "main") => ResourceUsage { cpu_nanocores: 250_000_000, memory_bytes: 64 << 20 },
        _ => ResourceUsage::default(),
    });

    let web = get(&cluster, "/namespaces/default/pods/web").await.expect("metrics");
    assert_eq!(web["containers"], json!([{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}]));
    assert_eq!((&web["window"], &web["metadata"]["labels"]), (&json!("15s"), &json!({"app": "web"})));
    assert_eq!((&web["kind"], &web["apiVersion"]), (&json!("PodMetrics"), &json!("metrics.k8s.io/v1beta1")));
    let node = get(&cluster, "/nodes/kubewright").await.expect("metrics");
    assert_eq!(node["usage"], json!({"cpu": "250m", "memory": "64Mi"}));

    let check = async |path: &str, expect: &[&str]| {
        let list = get(&cluster, path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(names(&list), expect, "{path}");
    };
    check("/pods", &["idle", "web"]).await;
    check("/namespaces/default/pods", &["idle", "web"]).await;
    check("/namespaces/other/pods", &[]).await;
    check("/pods?labelSelector=app%3Dweb", &["web"]).await;
    check("/pods?fieldSelector=metadata.name%3Didle", &["idle"]).await;
    check("/nodes", &["kubewright"]).await;

    let table = get_as(&cluster, "/pods", kubewright_apiserver::table::CONTENT_TYPE).await.expect("a table");
    let titles: Vec<_> = table["columnDefinitions"].as_array().expect("columns").iter().map(|it| &it["name"]).collect();
    assert_eq!(titles, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][1]["cells"], json!(["web", "250m", "64Mi", "15s"]));

    let missing = get(&cluster, "/namespaces/default/pods/none").await.expect_err("no such pod");
    assert_eq!(missing, "pods \"none\" not found");
    cluster.finish_pod("default", "idle", 0).await.expect("it ends");
    until(&cluster, "idle", |pod| crate::phase(pod) == "Succeeded").await;
    let ended = get(&cluster, "/namespaces/default/pods/idle").await.expect_err("it has ended");
    assert_eq!(ended, "podmetrics.metrics.k8s.io \"default/idle\" not found");

    let discovered = get(&cluster, "").await.expect("discovery");
    let resources: Vec<_> =
        discovered["resources"].as_array().expect("resources").iter().map(|one| &one["kind"]).collect();
    assert_eq!(resources, ["NodeMetrics", "PodMetrics"]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_container_that_computes_uses_cpu() {
    let cluster = running().await;
    let missing = get(&cluster, "/namespaces/default/pods/busy").await.expect_err("no such pod");
    assert_eq!(missing, "pods \"busy\" not found");
    // The child process computes, the leader waits for it.
    create(&cluster, &pod("busy", "(while :; do :; done) & wait", json!({}))).await;
    create(&cluster, &pod("entered", "sleep 3600", json!({}))).await;
    until(&cluster, "entered", is_running).await;
    let command = path("entered", "stdout=true", &["sh", "-c", "echo begins; while :; do :; done"]);
    let mut command = Exec::open(&listen(&cluster).await, V5, &command).await;
    command.until("begins").await;
    let milli_cores = |metrics: &Value| {
        let cpu = metrics["containers"][0]["usage"]["cpu"].as_str()?.to_owned();
        let number: String = cpu.chars().take_while(char::is_ascii_digit).collect();
        let number: u64 = number.parse().ok()?;
        Some(match cpu.trim_start_matches(|c: char| c.is_ascii_digit()) {
            "n" => number / 1_000_000,
            "u" => number / 1000,
            "m" => number,
            _ => number * 1000,
        })
    };
    let uses_cpu = async |name: &str| {
        let metrics = get(&cluster, &format!("/namespaces/default/pods/{name}")).await.ok()?;
        milli_cores(&metrics).filter(|used| *used > 20).map(|_| metrics)
    };
    eventually("the command uses CPU of its container", async || uses_cpu("entered").await).await;
    let busy = eventually("the pod uses CPU", async || uses_cpu("busy").await).await;
    assert_ne!(busy["containers"][0]["usage"]["memory"], "0");
    assert!(get(&cluster, "/nodes/kubewright").await.expect("metrics")["usage"]["memory"].is_string());
    cluster.shutdown().await;
}

/// kubectl reads the document of all kinds before it creates an object that can't be patched, such as an access review,
/// and refuses one with a reference that leads nowhere.
#[tokio::test(start_paused = true)]
async fn references_of_documents_lead_to_a_schema() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let check = async |path: &str, prefix: &str, schemas: &str| {
        let request = Request::get(path).header("accept", "application/json").body(Vec::new()).expect("a request");
        let document: Value = cluster.client().request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let schemas = document.pointer(schemas).and_then(Value::as_object).expect("schemas");
        let kind = "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics";
        assert!(schemas[kind]["properties"]["containers"].is_object(), "{path}");
        let text = document.to_string();
        let named = text.split(prefix).skip(1).filter_map(|rest| rest.split('"').next());
        let lost: Vec<_> = named.filter(|name| !schemas.contains_key(*name)).collect();
        assert_eq!(lost, [""; 0], "{path}");
    };
    check("/openapi/v2", "\"#/definitions/", "/definitions").await;
    check("/openapi/v3/apis/metrics.k8s.io/v1beta1", "\"#/components/schemas/", "/components/schemas").await;
}
