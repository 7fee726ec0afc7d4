//! Spans for OpenTelemetry: the duration of each reconcile and of its requests, exported by OTLP over HTTP.
//!
//! It needs the cargo feature `opentelemetry`. [Logging](crate::log) starts it if OpenTelemetry's environment variables
//! ask for it:
//!
//! | variable | meaning |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | the URL of the collector, such as `http://collector:4318`; without it nothing is exported |
//! | `OTEL_TRACES_EXPORTER` | `otlp` exports to `http://localhost:4318` by default, `none` disables the export |
//! | `OTEL_SDK_DISABLED` | `true` disables the export |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | the service; by default the name of the program |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | the sampled spans; by default all |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` | headers such as a token, and the timeout of a request in milliseconds (10,000) |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE` | a file of certificate authorities to trust besides those of the system |
//! | `OTEL_BSP_…` | the size of the queue (2,048 spans; further ones are dropped) and the delay (5 s) |
//!
//! Only protobuf over HTTP is supported (`OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`), directly or through the proxy
//! that the environment names. Spans are exported by a thread of their own, so no reconcile waits for them. A manager
//! that stops exports the last ones, for at most two seconds.
//!
//! A `reconcile` span has the attributes `controller`, `object` and `reconcile_id`, as in the log, and
//! `k8s.object.api_version`, `k8s.object.kind`, `k8s.object.name` and `k8s.namespace.name`. A `request` span below it
//! has the latter for its object, its verb and its status. Log lines of a reconcile are events of its span, and an
//! error is its status. The operator's own spans of the level `info` and above are exported too.
//!
//! A program with its own subscriber adds [`layer`] to it.

use std::{env, fs::File, io, sync::Arc, thread, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use kubewright_connect::{Connector, Proxies, crypto_provider};
use opentelemetry::{
    KeyValue,
    trace::{Status, TraceContextExt, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use thiserror::Error;
use tokio::{runtime::Handle, sync::oneshot, time::timeout};
use tracing::{Span, Subscriber, error_span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::{
    client::{Call, ClientError, ObservedRequest, ParsedResponse, RequestObserver},
    object::{KindName, ObjectKey},
    process::program_name,
};

/// The default timeout of a request to the collector.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit for the export of the last spans.
const GRACE: Duration = Duration::from_secs(2);
/// The longest response of a collector that is read.
const LONGEST_ANSWER: usize = 1 << 20;

/// The provider that was started, to be flushed at the end.
static STARTED: Mutex<Option<SdkTracerProvider>> = Mutex::new(None);

/// An error that prevents the export of spans.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The protocol is not supported.
    #[error("{variable}={value} is not supported: use http/protobuf")]
    Protocol {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// There is no tokio runtime.
    #[error("the export of spans needs a tokio runtime: start it in one")]
    NoRuntime,
    /// The certificate authorities for the collector can't be read.
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE={path}: {why}")]
    Certificate {
        /// The file.
        path: String,
        /// The error.
        why: String,
    },
    /// The exporter refuses the environment's settings.
    #[error("can't create the exporter of spans: {0}")]
    Exporter(String),
}

/// Starts the export of spans, if the environment asks for it, and returns the layer that makes them. Call it once, in
/// the tokio runtime of the program, which sends them.
///
/// # Errors
/// If the environment asks for something that is not supported.
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

/// Exports the spans that are queued, for at most two seconds. A [manager](crate::manager::Manager) does so when it
/// stops.
pub async fn flush() {
    let Some(provider) = STARTED.lock().clone() else { return };
    let (done, flushed) = oneshot::channel();
    // It blocks, and as a task it would delay the end of the runtime.
    let flush = move || {
        if let Err(error) = provider.force_flush() {
            tracing::warn!(%error, "can't export the last spans");
        }
        done.send(()).unwrap_or_default();
    };
    if thread::Builder::new().name("last spans".into()).spawn(flush).is_ok() && timeout(GRACE, flushed).await.is_err() {
        tracing::warn!("can't export the last spans within {GRACE:?}");
    }
}

/// Adds the attributes of its object to a reconcile's span.
pub(crate) fn describe(span: &Span, kind: &KindName, key: &ObjectKey, attempt: u32) {
    name_object(span, kind, key.namespace(), Some(key.name()));
    span.set_attribute("kubewright.reconcile.attempt", i64::from(attempt));
}

/// Returns the ID of the trace to which a span belongs, if it is exported.
pub(crate) fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span().span_context().clone();
    (span.is_valid() && span.is_sampled()).then(|| span.trace_id().to_string())
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

/// Gives each request of a reconcile a span of its own.
pub(crate) struct RequestSpans;

impl RequestObserver for RequestSpans {
    fn begin<'a>(&'a self, call: &Call, request: &HttpRequest<Vec<u8>>) -> Box<dyn ObservedRequest + 'a> {
        // At the level of errors, so that it is sent whatever the level, as a reconcile's own span is.
        let span = error_span!("request", otel.name = %call, otel.kind = "client");
        name_object(&span, call.kind(), call.namespace(), call.name());
        span.set_attribute("http.request.method", request.method().as_str().to_owned());
        span.set_attribute("kubewright.request.verb", call.operation().as_str());
        if let Some(part) = call.subresource() {
            span.set_attribute("kubewright.request.subresource", part.to_owned());
        }
        Box::new(RequestSpan(span))
    }
}

struct RequestSpan(Span);

impl ObservedRequest for RequestSpan {
    fn span(&self) -> Option<Span> {
        Some(self.0.clone())
    }

    fn answered(self: Box<Self>, _: &Call, answer: &Result<ParsedResponse, ClientError>) {
        let Self(span) = *self;
        let status = match answer {
            Ok(answer) => Some(answer.status()),
            Err(error) => {
                span.set_status(Status::error(error.to_string()));
                error.status().map(|status| status.code)
            }
        };
        match status {
            Some(status) => span.set_attribute("http.response.status_code", i64::from(status)),
            None => span.set_attribute("error.type", "no_answer"),
        }
    }
}

/// Returns a variable of the environment; an empty one counts as not set.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Returns the exporter's variable for traces, or else that for all signals.
fn exporter_variable(suffix: &str) -> Option<String> {
    variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{suffix}"))
        .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{suffix}")))
}

/// Returns whether the environment requests spans.
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

/// The service that exports.
fn resource() -> Resource {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named = variable("OTEL_SERVICE_NAME").is_some()
        || attributes.split(',').any(|pair| pair.trim_start().starts_with("service.name="));
    let resource = Resource::builder();
    let resource = if is_named { resource } else { resource.with_service_name(program_name()) };
    let instance = KeyValue::new("service.instance.id", crate::process::hostname());
    resource.with_attribute(instance).build()
}

type Https = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Creates a client that trusts the authorities of this machine and those that the environment names.
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
    let config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TelemetryError::Exporter(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = Connector::new(Proxies::from_env(), config.clone());
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    let connector = https.wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Sends the requests of the exporter, whose thread has no runtime, on that of the program.
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
    fn the_environment_enables_the_export() {
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
