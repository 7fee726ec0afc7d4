//! The metrics of a manager, compared with the names of controller-runtime, for which dashboards and alerts exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    api::ListParams,
    client::{Body, ClientBuilder},
};
use kubewright_runtime::{
    leader::LeaderOptions,
    manager::{Manager, NotRunning},
    metrics::Metrics,
    probe::BindAddress,
    webhook::{Denied, Request, ValidationErrors, Validator, Webhook, WebhookServer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::service_fn;

use crate::world::{FleetReconciler, World, controller, own_address, run, until};

/// Name, type and labels. Metrics that would have nothing to count are not served:
/// `rest_client_rate_limiter_duration_seconds`, since there is no limit by default, and
/// `rest_client_request_retries_total`, since the client repeats no requests.
const FAMILIES: [(&str, &str, &[&str]); 40] = [
    ("controller_runtime_reconcile_total", "counter", &["controller", "result"]),
    ("controller_runtime_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_panics_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_timeouts_total", "counter", &["controller"]),
    ("controller_runtime_reconcile_time_seconds", "histogram", &["controller"]),
    ("controller_runtime_max_concurrent_reconciles", "gauge", &["controller"]),
    ("controller_runtime_active_workers", "gauge", &["controller"]),
    ("controller_runtime_webhook_latency_seconds", "histogram", &["webhook"]),
    ("controller_runtime_webhook_requests_total", "counter", &["code", "webhook"]),
    ("controller_runtime_webhook_requests_in_flight", "gauge", &["webhook"]),
    ("controller_runtime_webhook_panics_total", "counter", &[]),
    ("controller_runtime_conversion_webhook_panics_total", "counter", &[]),
    ("workqueue_depth", "gauge", &["controller", "name", "priority"]),
    ("workqueue_adds_total", "counter", &["controller", "name"]),
    ("workqueue_queue_duration_seconds", "histogram", &["controller", "name"]),
    ("workqueue_work_duration_seconds", "histogram", &["controller", "name"]),
    ("workqueue_unfinished_work_seconds", "gauge", &["controller", "name"]),
    ("workqueue_longest_running_processor_seconds", "gauge", &["controller", "name"]),
    ("workqueue_retries_total", "counter", &["controller", "name"]),
    ("rest_client_requests_total", "counter", &["code", "host", "method"]),
    ("rest_client_request_duration_seconds", "histogram", &["host", "verb"]),
    ("rest_client_request_size_bytes", "histogram", &["host", "verb"]),
    ("rest_client_response_size_bytes", "histogram", &["host", "verb"]),
    ("certwatcher_read_certificate_total", "counter", &[]),
    ("certwatcher_read_certificate_errors_total", "counter", &[]),
    ("leader_election_master_status", "gauge", &["name"]),
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
    // Additional metrics, which controller-runtime doesn't have.
    ("kubewright_read_your_writes_waits_total", "counter", &["controller"]),
    ("kubewright_read_your_writes_timeouts_total", "counter", &["controller"]),
    ("tokio_alive_tasks", "gauge", &[]),
    ("tokio_global_queue_depth", "gauge", &[]),
    ("tokio_worker_busy_seconds_total", "counter", &[]),
    ("tokio_worker_parks_total", "counter", &[]),
    ("tokio_workers", "gauge", &[]),
];

struct Anything;

impl Validator<ConfigMap> for Anything {
    async fn validate_create(&self, _: &ConfigMap, _: &Request) -> Result<ValidationErrors, Denied> {
        Ok(ValidationErrors::default())
    }
}

/// Wraps a client as a manager that is configured by flags does, for a cluster in this process.
fn counted(client: Client, metrics: &Metrics) -> Client {
    let service = service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    ClientBuilder::new(service, "default").with_layer(&metrics.client_layer("cluster:443")).build()
}

async fn scrape(address: SocketAddr) -> String {
    scrape_as(address, "*/*").await
}

async fn scrape_as(address: SocketAddr, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the metrics are served");
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

type Family = (String, BTreeSet<String>);

/// Returns the type and labels of each family that has a sample.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut types = BTreeMap::new();
    let mut found = BTreeMap::<String, Family>::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            types.insert(name.to_owned(), kind.to_owned());
            continue;
        }
        let Some((sample, _)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else { continue };
        let (name, labels) = sample.trim_end_matches('}').split_once('{').unwrap_or((sample, ""));
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        let Some(name) = [name].into_iter().chain(parts).find(|name| types.contains_key(*name)) else { continue };
        let family = found.entry(name.to_owned()).or_insert_with(|| (types[name].clone(), BTreeSet::new()));
        let labels = labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(label, _)| label.to_owned());
        family.1.extend(labels.filter(|label| label != "le"));
    }
    found
}

#[tokio::test]
async fn a_manager_serves_what_dashboards_ask_for() {
    let world = World::new().await;
    // Long after 1970: the certificate of the webhooks is issued for the time of the test's clock, and is valid from
    // before then.
    world.clock.jump(SignedDuration::from_hours(24 * 365 * 56));
    let address = own_address();
    let metrics = Metrics::new(world.clock.clone()).measure_requests();
    let manager = Manager::new(counted(world.client.clone(), &metrics))
        .clock(world.clock.clone())
        .random(world.random.clone())
        .metrics(metrics)
        .metrics_address(BindAddress::Host(address.ip().to_string(), address.port()))
        .leader_election(LeaderOptions::new("default", "fleets", "first"))
        .webhook(Webhook::<ConfigMap>::new().validating(Anything))
        .webhook_server(WebhookServer::local())
        .controller(controller(FleetReconciler::default()));
    let running = run(manager);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let text = scrape(address).await;
    let found = families(&text);
    for (name, kind, labels) in FAMILIES {
        let expected = (kind.to_owned(), labels.iter().map(ToString::to_string).collect());
        assert_eq!(found.get(name), Some(&expected), "{name} in\n{text}");
    }
    let ours = |name: &&String| FAMILIES.iter().all(|(known, ..)| known != name);
    let unknown: Vec<_> = found.keys().filter(ours).filter(|name| !name.starts_with("kubewright_")).collect();
    assert!(unknown.iter().all(|name| name.starts_with("process_")), "{unknown:?}: name them here");
    running.stop().await;
}

/// Prometheus gets OpenMetrics. Once it has asked, a reconcile is named in the bucket of its duration.
#[tokio::test]
async fn the_format_of_metrics_is_negotiated() {
    let world = World::new().await;
    let address = own_address();
    let bind = BindAddress::Host(address.ip().to_string(), address.port());
    let running = run(world.manager().metrics_address(bind).controller(controller(FleetReconciler::default())));
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    let accepts = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let before = scrape_as(address, accepts).await;
    let lines = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert!(
        before.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{before}"
    );
    assert!(before.contains("\n# TYPE controller_runtime_reconcile counter\n"), "{before}");
    assert!(before.contains("\n# EOF\n"), "{before}");
    assert_eq!(lines(&before, " # {"), 0, "no exemplars are kept before the first request for OpenMetrics");
    world.create_fleet("b", 1).await;
    world.wait_for_size("b", 1).await;
    let buckets = "controller_runtime_reconcile_time_seconds_bucket{controller=\"fleet\",le=\"";
    until("a reconcile is an exemplar", || async {
        let text = scrape_as(address, accepts).await;
        text.lines().any(|line| line.starts_with(buckets) && line.contains(" # {reconcile_id=\""))
    })
    .await;
    let plain = scrape(address).await;
    assert!(plain.contains("\r\ncontent-type: text/plain; version=0.0.4\r\n"), "{plain}");
    assert_eq!((lines(&plain, "# EOF"), lines(&plain, " # {")), (0, 0));
    running.stop().await;
}

/// What a program adds before the manager runs.
#[tokio::test]
async fn a_program_has_families_and_a_client_before_the_manager_runs() {
    let world = World::new().await;
    let address = own_address();
    let manager = Manager::new(world.client.clone()).clock(world.clock.clone()).random(world.random.clone());
    let manager = manager
        .metrics_address(BindAddress::Host(address.ip().to_string(), address.port()))
        .controller(controller(FleetReconciler::default()));
    let gauge = prometheus::IntGauge::new("shop_orders", "Orders.").expect("a valid name");
    manager.metrics_registry().register(Box::new(gauge.clone())).expect("a new name");
    let handle = manager.client_handle();
    assert_eq!(handle.get().err(), Some(NotRunning));
    gauge.set(7);
    let running = run(manager);
    world.create_fleet("a", 1).await;
    world.wait_for_size("a", 1).await;
    handle.get().expect("a client").kind::<ConfigMap>().list(&ListParams::default()).await.expect("a list");
    let text = scrape(address).await;
    assert!(text.contains("\nshop_orders 7\n") && text.contains("\nworkqueue_depth{"), "{text}");
    running.stop().await;
}
