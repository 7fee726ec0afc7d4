//! Spans as a collector receives them, from a separate process, since they are configured once for a whole process, by
//! environment variables.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kubewright_runtime::{
    action::Action,
    context::Context,
    controller::{Controller, Reconciler},
    log::LogArgs,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::{net::TcpListener, time::timeout};

use crate::world::{Fleet, World, run, until};

const ROLE: &str = "KUBEWRIGHT_TEST_TELEMETRY";

/// The checked part of what is exported: `ExportTraceServiceRequest` of OTLP.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    /// 3 is the client kind.
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    /// 2 is an error.
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

fn values(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let value = |value: &AnyValue| value.text.clone().or(value.number.map(|number| number.to_string()));
    attributes.iter().filter_map(|pair| Some((pair.key.as_str(), value(pair.value.as_ref()?)?))).collect()
}

/// Creates a config map for `good`, and fails for `bad`.
struct Moody;

impl Reconciler<Fleet> for Moody {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: &Fleet, ctx: &Context<Fleet>) -> anyhow::Result<Action> {
        anyhow::ensure!(ctx.key().name() == "good", "as its name says");
        if ctx.children::<ConfigMap>()?.is_empty() {
            let metadata = ObjectMeta { name: Some("ship".into()), ..ObjectMeta::default() };
            ctx.create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        }
        Ok(Action::await_change())
    }
}

/// The child process, if this is one: it runs a manager.
#[tokio::test]
async fn child() -> anyhow::Result<()> {
    if std::env::var(ROLE).is_err() {
        return Ok(());
    }
    LogArgs { log_level: Some("off".into()), ..LogArgs::default() }.init()?;
    let world = World::new().await;
    let manager = run(world.manager().controller(Controller::<Fleet>::new(Moody).owns::<ConfigMap>()));
    for name in ["bad", "good"] {
        world.create_fleet(name, 1).await;
    }
    until("the ship is there", || async { !world.ship_names().await.is_empty() }).await;
    timeout(Duration::from_secs(10), manager.stop()).await?;
    Ok(())
}

/// Runs a child process, and waits for its exit.
async fn live(endpoint: &str) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "telemetry::child", "--nocapture"])
        .env(ROLE, "1")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
        .env("OTEL_SERVICE_NAME", "fleets")
        .env("OTEL_TRACES_SAMPLER", "always_on")
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let ended = tokio::task::spawn_blocking(move || child.wait()).await.expect("no panic");
    assert!(ended.expect("it ends").success());
}

#[tokio::test]
async fn a_collector_gets_spans_of_reconciles_and_of_their_requests() {
    let seen = Arc::new(Mutex::new(Vec::<Export>::new()));
    let take = async |State(seen): State<Arc<Mutex<Vec<Export>>>>, heads: HeaderMap, body: Bytes| {
        assert_eq!(heads["x-token"], "secret");
        seen.lock().push(Export::decode(body).expect("protobuf"));
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().route("/v1/traces", post(take)).with_state(seen.clone());
    let server = tokio::spawn(axum::serve(listener, router).into_future());
    live(&endpoint).await;
    server.abort();

    let exports = seen.lock();
    let resources = exports.iter().flat_map(|export| &export.resources);
    let service = |resource: &Resource| values(&resource.attributes).remove("service.name");
    assert!(resources.clone().all(|spans| spans.resource.as_ref().and_then(service).as_deref() == Some("fleets")));
    let spans: Vec<_> = resources.flat_map(|resource| &resource.scopes).flat_map(|scope| &scope.spans).collect();

    let request = spans.iter().find(|span| span.name == "create configmaps default/ship").expect("the creation");
    let attributes = values(&request.attributes);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("k8s.namespace.name", "default"),
        ("k8s.object.api_version", "v1"),
        ("k8s.object.kind", "ConfigMap"),
        ("k8s.object.name", "ship"),
        ("kubewright.request.verb", "create"),
    ] {
        assert_eq!(attributes.get(key).map(String::as_str), Some(value), "{key} of {attributes:?}");
    }
    assert_eq!(request.kind, 3, "a client's");

    let parent = spans.iter().find(|span| span.id == request.parent).expect("the reconcile it is of");
    assert_eq!((parent.name.as_str(), &parent.trace), ("reconcile", &request.trace));
    let attributes = values(&parent.attributes);
    for (key, value) in [
        ("controller", "fleet"),
        ("k8s.namespace.name", "default"),
        ("k8s.object.api_version", "test.kubewright.dev/v1"),
        ("k8s.object.kind", "Fleet"),
        ("k8s.object.name", "good"),
        ("kubewright.reconcile.attempt", "1"),
        ("object", "default/good"),
    ] {
        assert_eq!(attributes.get(key).map(String::as_str), Some(value), "{key} of {attributes:?}");
    }
    let is_failure = |span: &&&Span| values(&span.attributes).get("k8s.object.name").is_some_and(|name| name == "bad");
    let failure = spans.iter().find(is_failure).expect("the failure");
    assert_eq!(failure.status.as_ref().map(|status| status.code), Some(2), "{:?}", failure.status);
}

#[tokio::test]
async fn a_collector_that_is_silent_holds_up_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    live(&format!("http://{}", listener.local_addr().expect("an address"))).await;
}
