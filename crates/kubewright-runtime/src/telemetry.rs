//! Spans for OpenTelemetry: what each reconcile and each of its requests took, sent to a collector by OTLP over HTTP.
//!
//! It is there with the cargo feature `opentelemetry`, and the [log](crate::log) starts it if the environment asks for it, by
//! OpenTelemetry's own variables:
//!
//! | variable | what it says |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | where the collector is, such as `http://collector:4318`; without one nothing is sent |
//! | `OTEL_TRACES_EXPORTER` | `otlp` sends to `http://localhost:4318` if nothing else is said, `none` nowhere |
//! | `OTEL_SDK_DISABLED` | `true` switches it off |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | who sends; by default the name of the program |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | which spans; by default all |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` | heads such as a token, and how many milliseconds a request may take (10,000) |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE` | a file of authorities to trust beside those of the system |
//! | `OTEL_BSP_…` | how many spans wait to be sent (2,048; what comes beyond it is dropped), and how long (5 s) |
//!
//! Only protobuf over HTTP is spoken (`OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`). Spans are sent by a thread of their own: no
//! reconcile waits for them. When a manager has stopped, it lets the last ones go, for at most two seconds.
//!
//! A `reconcile` has the attributes `controller`, `object` and `reconcile_id`, as in the log, and of Kubernetes'
//! `k8s.object.api_version`, `k8s.object.kind`, `k8s.object.name` and `k8s.namespace.name`; a `request` below it has those of what it
//! is about, its verb and status. Log lines of a reconcile are its span's events, and an error is its status. Spans of the
//! operator's own, down to the level `info`, are sent too.
//!
//! A program with a subscriber of its own adds [`layer`] to it.

use std::{env, fs::File, io, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request as HttpRequest, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use kubewright_connect::{Connector, Proxies};
use opentelemetry::{KeyValue, trace::Status, trace::TracerProvider};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use thiserror::Error;
use tokio::{runtime::Handle, sync::oneshot, time::timeout};
use tracing::{Instrument, Span, Subscriber, error_span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::{
    args::program_name,
    client::{Answer, Call, ClientError},
    object::{KindName, ObjectKey},
};

/// How long a collector may take for an answer, if the environment doesn't say.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last spans may take at the end.
const GRACE: Duration = Duration::from_secs(2);
/// The longest answer of a collector to read.
const LONGEST_ANSWER: usize = 1 << 20;

/// What has been started, to be flushed at the end.
static STARTED: Mutex<Option<SdkTracerProvider>> = Mutex::new(None);

/// Why no spans can be sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A variable says something that is not spoken here.
    #[error("{variable}={value}: only http/protobuf is spoken")]
    Protocol {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// Nothing could send them.
    #[error("spans are sent by a tokio runtime: begin in one")]
    NoRuntime,
    /// The authorities that the collector's certificate is to be checked with can't be read.
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE={path}: {why}")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The exporter doesn't take what the environment says.
    #[error("the exporter of spans can't be made: {0}")]
    Exporter(String),
}

/// Starts to send spans, if the environment asks for it, and gives the layer that makes them. Call it once, in a tokio runtime
/// that lasts as long as the program: it sends.
///
/// # Errors
/// When the environment asks for something that can't be.
pub fn layer<S>() -> Result<Option<impl Layer<S>>, TelemetryError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if !is_wanted(variable) {
        return Ok(None);
    }
    let provider = provider()?;
    *STARTED.lock() = Some(provider.clone());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("kubewright"));
    let layer = layer.with_location(false).with_threads(false).with_target(false).with_tracked_inactivity(false);
    Ok(Some(layer.with_filter(LevelFilter::INFO)))
}

/// Sends what waits to be sent, for at most two seconds. A [manager](crate::manager::Manager) does so when it has stopped.
pub async fn flush() {
    let Some(provider) = STARTED.lock().clone() else { return };
    let (done, flushed) = oneshot::channel();
    // It blocks, and would hold up the end of the runtime if it were a task of it.
    let flush = move || {
        if let Err(error) = provider.force_flush() {
            tracing::warn!(%error, "the last spans were not sent");
        }
        done.send(()).unwrap_or_default();
    };
    if thread::Builder::new().name("last spans".into()).spawn(flush).is_ok() && timeout(GRACE, flushed).await.is_err() {
        tracing::warn!("the last spans were not sent within {GRACE:?}");
    }
}

/// Tells a reconcile's span of which object it is.
pub(crate) fn describe(span: &Span, kind: &KindName, key: &ObjectKey, attempt: u32) {
    name_object(span, kind, key.namespace(), Some(key.name()));
    span.set_attribute("kubewright.reconcile.attempt", i64::from(attempt));
}

fn name_object(span: &Span, kind: &KindName, namespace: Option<&str>, name: Option<&str>) {
    span.set_attribute("k8s.object.api_version", kind.api_version());
    span.set_attribute("k8s.object.kind", kind.kind.clone());
    if let Some(namespace) = namespace {
        span.set_attribute("k8s.namespace.name", namespace.to_owned());
    }
    if let Some(name) = name {
        span.set_attribute("k8s.object.name", name.to_owned());
    }
}

/// The span of a request of a reconcile.
pub(crate) struct Request(Span);

impl Request {
    pub(crate) fn begin(call: &Call, method: &Method) -> Self {
        // Whatever level is sent, like a reconcile's own.
        let span = error_span!("request", otel.name = %call, otel.kind = "client");
        name_object(&span, call.kind(), call.namespace(), call.name());
        span.set_attribute("http.request.method", method.as_str().to_owned());
        span.set_attribute("kubewright.request.verb", call.operation().as_str());
        if let Some(part) = call.subresource() {
            span.set_attribute("kubewright.request.subresource", part.to_owned());
        }
        Self(span)
    }

    /// Sends the request, within its span if it has one.
    pub(crate) async fn follow(
        request: Option<Self>,
        answer: impl Future<Output = Result<Answer, ClientError>>,
    ) -> Result<Answer, ClientError> {
        let Some(Self(span)) = request else { return answer.await };
        let answer = answer.instrument(span.clone()).await;
        let status = match &answer {
            Ok(answer) => Some(answer.status),
            Err(error) => {
                span.set_status(Status::error(error.to_string()));
                error.status().map(|status| status.code)
            }
        };
        match status {
            Some(status) => span.set_attribute("http.response.status_code", i64::from(status)),
            None => span.set_attribute("error.type", "no_answer"),
        }
        answer
    }
}

/// A variable of the environment that is set, and not empty: that is as if it weren't.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The variable for traces alone, or else that for all signals.
fn exporter_variable(suffix: &str) -> Option<String> {
    variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{suffix}"))
        .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{suffix}")))
}

/// Whether the environment asks for spans.
fn is_wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let endpoints = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
    let exporter = variable("OTEL_TRACES_EXPORTER");
    let is_asked = match exporter.as_deref() {
        Some(names) => names.split(',').any(|name| name.trim() == "otlp"),
        None => endpoints.iter().any(|name| variable(name).is_some()),
    };
    is_asked && !is_off
}

fn provider() -> Result<SdkTracerProvider, TelemetryError> {
    for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        if let Some(value) = variable(name) {
            match value.as_str() {
                "http/protobuf" => break,
                _ => return Err(TelemetryError::Protocol { variable: name, value }),
            }
        }
    }
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let limit = exporter_variable("TIMEOUT").and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
    let sender = Sender { client: client()?, runtime, limit: limit.unwrap_or(PATIENCE) };
    let exporter = SpanExporter::builder().with_http().with_http_client(sender).with_protocol(Protocol::HttpBinary);
    let exporter = exporter.build().map_err(|error| TelemetryError::Exporter(error.to_string()))?;
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build())
}

/// Who sends.
fn resource() -> Resource {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named = variable("OTEL_SERVICE_NAME").is_some()
        || attributes.split(',').any(|pair| pair.trim_start().starts_with("service.name="));
    let resource = Resource::builder();
    let resource = if is_named { resource } else { resource.with_service_name(program_name()) };
    let instance = KeyValue::new("service.instance.id", crate::args::hostname());
    resource.with_attribute(instance).build()
}

type Https = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// A client that trusts what this machine trusts, and the authorities that the environment names.
fn client() -> Result<Https, TelemetryError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = exporter_variable("CERTIFICATE") {
        let read = || -> Result<Vec<_>, String> {
            let file = File::open(&path).map_err(|error: io::Error| error.to_string())?;
            CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
        };
        let trusted = read().map_err(|why| TelemetryError::Certificate { path: path.clone(), why })?;
        roots.add_parsable_certificates(trusted);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TelemetryError::Exporter(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = Connector::new(Proxies::from_env(), config.clone());
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    let connector = https.wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Sends for the exporter, whose thread has no runtime, by that of the program.
#[derive(Clone, Debug)]
struct Sender {
    client: Https,
    runtime: Handle,
    limit: Duration,
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: HttpRequest<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.client.request(request.map(Full::new));
        let exchange = async move {
            let (parts, body) = answer.await?.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        let limit = self.limit;
        self.runtime.spawn(async move { timeout(limit, exchange).await }).await??
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        let check = |set: &[(&str, &str)], expected: bool| {
            let lookup = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(is_wanted(lookup), expected, "{set:?}");
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        check(&[], false);
        check(&[endpoint], true);
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces")], true);
        check(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], false);
        check(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], false);
        check(&[("OTEL_TRACES_EXPORTER", "otlp")], true);
    }
}
