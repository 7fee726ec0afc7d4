//! Horizontal pod autoscalers.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{Event, Pod},
    },
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_cluster::{Cluster, Pods, ResourceUsage};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::{eventually, running};

fn api<K>(client: Client) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client, "default")
}

async fn create<K>(cluster: &Cluster, object: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + serde::Serialize,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let object = serde_json::from_value(object).expect("an object");
    api::<K>(cluster.client()).create(&PostParams::default(), &object).await.expect("created");
}

fn deployment(command: &str) -> Value {
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", command], "resources": {"requests": {"cpu": "100m"}},
    });
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn autoscaler(most: i64) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    json!({"metadata": {"name": "web"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }})
}

async fn replicas(cluster: &Cluster) -> i32 {
    let found = api::<Deployment>(cluster.client()).get("web").await.expect("the deployment");
    found.spec.and_then(|spec| spec.replicas).unwrap_or_default()
}

async fn status(cluster: &Cluster) -> Value {
    let found = api::<HorizontalPodAutoscaler>(cluster.client()).get("web").await.expect("the autoscaler");
    serde_json::to_value(found.status).expect("a status")
}

fn reasons(status: &Value) -> Vec<(&str, &str, &str)> {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions
        .iter()
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            (text("type"), text("status"), text("reason"))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_follows_its_load() {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    let builder = Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1));
    let cluster = builder.start().await.expect("a cluster");
    let load = Arc::new(AtomicU64::new(100_000_000));
    let used = load.clone();
    cluster.set_usage(move |_, _| ResourceUsage { cpu_nanocores: used.load(Ordering::Relaxed), memory_bytes: 1 << 20 });
    create::<Deployment>(&cluster, deployment("sleep 3600")).await;
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler(5)).await;

    // Each pod uses all that it requests, twice the target. It has to be ready during a whole measurement first.
    eventually("it is scaled up", async || {
        tokio::time::sleep(Duration::from_secs(5)).await;
        (replicas(&cluster).await == 5).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = status(&cluster).await;
    assert_eq!((&found["currentReplicas"], &found["desiredReplicas"]), (&json!(5), &json!(5)));
    let current = json!({"averageUtilization": 100, "averageValue": "100m"});
    assert_eq!(found["currentMetrics"], json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]));
    let expected = [
        ("AbleToScale", "True", "ReadyForNewScale"),
        ("ScalingActive", "True", "ValidMetricFound"),
        ("ScalingLimited", "True", "TooManyReplicas"),
    ];
    assert_eq!(reasons(&found), expected);
    assert!(found["lastScaleTime"].is_string());

    load.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(replicas(&cluster).await, 5, "recommendations of the last five minutes keep it");
    assert_eq!(reasons(&status(&cluster).await)[0], ("AbleToScale", "True", "ScaleDownStabilized"));
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(replicas(&cluster).await, 1);

    let events = api::<Event>(cluster.client()).list(&Default::default()).await.expect("events");
    let own = events.items.iter().filter(|event| event.involved_object.name.as_deref() == Some("web"));
    let own = own.filter(|event| event.reason.as_deref() == Some("SuccessfulRescale"));
    let messages: Vec<_> = own.filter_map(|event| event.message.as_deref()).collect();
    let up = "New size: 2; reason: cpu resource utilization (percentage of request) above target";
    assert!(messages.contains(&up), "{messages:?}");
    assert!(messages.contains(&"New size: 1; reason: All metrics below target"), "{messages:?}");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn bounds_and_targets() {
    let clock = VirtualClock::starting_at(Timestamp::from_second(1_700_000_000).expect("a time"));
    let builder = Cluster::builder().pods(Pods::Simulate).clock(clock).random(Random::seeded(1));
    let cluster = builder.start().await.expect("a cluster");
    let mut autoscaler = autoscaler(5);
    autoscaler["spec"]["minReplicas"] = 3.into();
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let found = status(&cluster).await;
    assert_eq!(reasons(&found), [("AbleToScale", "False", "FailedGetScale")]);
    let why = "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found";
    assert_eq!(found["conditions"][0]["message"], why);

    create::<Deployment>(&cluster, deployment("sleep 3600")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 3, "the minimum");
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 0}}));
    let deployments = api::<Deployment>(cluster.client());
    deployments.patch("web", &Default::default(), &patch).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 0);
    assert!(reasons(&status(&cluster).await).contains(&("ScalingActive", "False", "ScalingDisabled")));
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 9}}));
    deployments.patch("web", &Default::default(), &patch).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(replicas(&cluster).await, 5, "the maximum");
    cluster.shutdown().await;
}

#[tokio::test]
async fn metrics_of_processes_are_read() {
    let cluster = running().await;
    create::<Deployment>(&cluster, deployment("while :; do :; done")).await;
    create::<HorizontalPodAutoscaler>(&cluster, autoscaler(1)).await;
    // In the first minutes only a pod that was ready during a whole measurement counts.
    eventually("the autoscaler sees the CPU", async || {
        let found = status(&cluster).await;
        let seen = reasons(&found).contains(&("ScalingActive", "True", "ValidMetricFound"));
        (seen && found["currentMetrics"][0]["resource"]["current"]["averageUtilization"].as_i64()? > 50).then_some(())
    })
    .await;
    cluster.shutdown().await;
}

/// An extension API server with fixed answers by path and query.
struct MetricServer {
    port: u16,
    answers: Arc<Mutex<BTreeMap<String, Value>>>,
    task: JoinHandle<()>,
}

impl Drop for MetricServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MetricServer {
    async fn start() -> Self {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["metrics.default.svc".to_owned()];
        let certificate = CertificateParams::new(names).expect("names").self_signed(&key).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let answers = Arc::<Mutex<BTreeMap<String, Value>>>::default();
        let (acceptor, shared) = (TlsAcceptor::from(Arc::new(config)), answers.clone());
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answers) = (acceptor.clone(), shared.clone());
                tasks.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, &answers));
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let _ = connection.await;
                });
            }
        });
        Self { port, answers, task }
    }

    /// Registers the server for a version, and waits until the cluster reaches it.
    async fn register(&self, cluster: &Cluster, group: &str, version: &str) {
        let resources =
            json!({"kind": "APIResourceList", "groupVersion": format!("{group}/{version}"), "resources": []});
        self.answers.lock().insert(format!("/apis/{group}/{version}"), resources);
        let name = format!("{version}.{group}");
        let spec = json!({
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "metrics", "port": self.port},
        });
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec});
        cluster.apply_yaml(&service.to_string()).await.expect("applied");
        let is_available = |all: &[&APIService]| {
            let found = all.iter().find(|service| service.name_any() == name);
            let conditions = found.and_then(|service| service.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Available" && one.status == "True"))
        };
        cluster.expect(is_available).await.expect("available");
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: &Mutex<BTreeMap<String, Value>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let not_found =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "unknown"});
    let found = answers.lock().get(path).cloned();
    let code = if found.is_some() { 200 } else { 404 };
    let body = found.unwrap_or(not_found).to_string();
    Ok(Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.into())
        .expect("a response"))
}

#[tokio::test]
async fn metrics_of_extension_servers_are_read() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let server = MetricServer::start().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    cluster.apply_yaml(&service.to_string()).await.expect("applied");
    server.register(&cluster, "custom.metrics.k8s.io", "v1beta2").await;
    server.register(&cluster, "external.metrics.k8s.io", "v1beta1").await;
    create::<Deployment>(&cluster, deployment("sleep 3600")).await;
    let pods = cluster
        .expect::<Pod>(|pods| {
            pods.iter().any(|pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running")))
        })
        .await
        .expect("a pod");
    let item = |name: &str, value: &str| json!({"describedObject": {"kind": "Pod", "name": name}, "value": value});
    let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
    let answers = [
        (format!("{custom}/pods/*/rps?labelSelector=app%3Dweb"), json!([item(&pods[0].name_any(), "15")])),
        (format!("{custom}/services/metrics/rps"), json!([item("metrics", "30")])),
        ("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue".to_owned(), json!([{"value": "40"}])),
    ];
    server.answers.lock().extend(answers.map(|(path, items)| (path, json!({"items": items}))));
    let ten = json!({"type": "AverageValue", "averageValue": "10"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "metrics"});
    let mut scaled = autoscaler(9);
    scaled["spec"]["metrics"] = json!([
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": ten}},
        {"type": "Object", "object": {"metric": {"name": "rps"}, "describedObject": service, "target": ten}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": ten}},
    ]);
    create::<HorizontalPodAutoscaler>(&cluster, scaled).await;
    eventually("it is scaled to what the greatest metric asks for", async || {
        (replicas(&cluster).await == 4).then_some(())
    })
    .await;
    let found = eventually("the status", async || {
        let found = status(&cluster).await;
        (found["desiredReplicas"] == 4).then_some(found)
    })
    .await;
    assert_eq!(reasons(&found)[1], ("ScalingActive", "True", "ValidMetricFound"));
    let kinds: Vec<_> = found["currentMetrics"].as_array().into_iter().flatten().map(|one| &one["type"]).collect();
    assert_eq!(kinds, ["Pods", "Object", "External"]);
    assert_eq!(found["currentMetrics"][0]["pods"]["current"], json!({"averageValue": "15"}));
    cluster.shutdown().await;
}
