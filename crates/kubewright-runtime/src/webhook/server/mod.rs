//! The HTTPS server of webhooks.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kubewright_apimachinery::{clock::SharedClock, status::Status};
use prometheus::Registry;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use super::{
    Names, Registrations, WebhookServer,
    cert_rotator::{self, CertRotator},
    handler::Handler,
    manifests::CONVERT,
    options::{ClientVerifier, Publish, host},
    response::AdmissionResponse,
    review::{Review, ReviewError},
};
use crate::{
    conversion::{self, AnyHub},
    http::{BindError, Server, ServerOptions},
    metrics::{Metrics, PathMetrics, WebhookMetrics},
    panic,
    probe::Checks,
    tls::{CertResolver, Certificates, authority::Keys, files::Files},
};

/// The largest review in bytes, as in controller-runtime: two objects of the largest size with some reserve.
const BODY_LIMIT: usize = 7 * 1024 * 1024;
/// The longest time that the API server waits for a webhook.
const LONGEST: Duration = Duration::from_secs(30);
/// The time for which the start waits for a certificate.
const START: Duration = Duration::from_secs(5);
/// The time limit of reviews in flight when the server stops: the timeout in our configurations.
const DRAIN: Duration = Duration::from_secs(10);
/// The time after which an idle connection is closed. The API server closes idle connections after 90 seconds; if we
/// closed them first, a review could be sent on a closing one.
const IDLE: Duration = Duration::from_secs(300);

/// The parts of its manager that a server uses.
pub(crate) struct Dependencies<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a SharedClock,
    pub(crate) metrics: &'a Metrics,
    pub(crate) readyz: &'a Checks,
}

/// Configurations that are removed when the server stops.
struct Installed {
    client: Client,
    names: Names,
}

/// A running webhook server. Dropping it stops it at once.
pub(crate) struct Running {
    server: Server,
    rotator: JoinHandle<()>,
    installed: Option<Installed>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.rotator.abort();
    }
}

impl Running {
    /// Starts the server, for all clients or only those that `callers` verifies; `None` if the address is disabled.
    /// Returns once there is a certificate, or after a while without. The readiness check is `webhook`.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub(crate) async fn start(
        registrations: Registrations,
        options: WebhookServer,
        callers: Option<ClientVerifier>,
        dependencies: Dependencies<'_>,
    ) -> Result<Option<Self>, BindError> {
        let Dependencies { client, clock, metrics, readyz } = dependencies;
        let resolver = CertResolver::new("webhooks");
        let certificates = metrics.certificates().clone();
        let metrics = WebhookMetrics::new(metrics.registry(), clock.clone());
        let manner = ServerOptions {
            tls: Some(resolver.tls_for(&options.tls_options, callers)),
            idle: IDLE,
            drain: DRAIN,
            ..ServerOptions::default()
        };
        let router = router(&registrations, clock, &metrics);
        let server = Server::start_as("webhooks", "--webhook-bind-address", &options.address, router, manner).await?;
        let Some(server) = server else { return Ok(None) };
        add_check(readyz, &resolver, clock);

        let names = options.names();
        let url = match &options.publish {
            Publish::No => None,
            Publish::Url(url) => Some(url.clone()),
            Publish::Address => Some(format!("https://{}", server.address())),
        };
        // A URL that isn't from a flag is not checked here: the API server refuses an invalid one.
        let url = url.map(|url| (host(&url).unwrap_or_default(), url)).map(|(host, url)| (url, host));
        let (looked, has_looked) = oneshot::channel();
        // After a timeout there is no receiver.
        let looked = || looked.send(()).unwrap_or_default();
        let mut installed = None;
        let rotator = match options.certificates {
            Certificates::Directory { path, certificate, key } => {
                let files = Files { certificate: path.join(certificate), key: path.join(key) };
                tokio::spawn(files.follow(resolver, certificates, options.interval, looked))
            }
            Certificates::SelfManaged => {
                installed = url.is_some().then(|| Installed { client: client.clone(), names: names.clone() });
                let rotator = CertRotator {
                    client: client.clone(),
                    clock: clock.clone(),
                    metrics: certificates,
                    names,
                    namespace: options.namespace.unwrap_or_else(|| client.default_namespace().into()),
                    webhooks: registrations.webhooks.into_iter().map(|webhook| webhook.description).collect(),
                    conversions: registrations.hubs.iter().map(|hub| hub.describe()).collect(),
                    url,
                    resolver,
                    keys: Keys::System,
                    known: cert_rotator::RotationState::default(),
                };
                tokio::spawn(rotator.follow(options.interval, looked))
            }
        };
        // The rest of the manager doesn't need it, and `/readyz` shows that it is missing.
        let _ = timeout(START, has_looked).await;
        Ok(Some(Self { server, rotator, installed }))
    }

    /// Removes the configurations that it has installed, lets reviews in flight finish for ten seconds, and stops.
    pub(crate) async fn shutdown(mut self) {
        self.rotator.abort();
        let _ = (&mut self.rotator).await;
        if let Some(Installed { client, names }) = self.installed.take() {
            cert_rotator::remove(&client, &names).await;
        }
        self.server.stop().await;
    }
}

fn add_check(readyz: &Checks, resolver: &CertResolver, clock: &SharedClock) {
    let (resolver, clock) = (resolver.clone(), clock.clone());
    readyz.add("webhook", move || {
        let result = match resolver.get() {
            None => Err("no certificate yet".into()),
            Some(key) if key.is_valid_at(clock.now()) => Ok(()),
            Some(key) => Err(format!("the certificate is not valid now; it expires {}", key.not_after())),
        };
        std::future::ready(result)
    });
}

/// Returns routes whose requests are counted nowhere else.
pub(crate) fn uncounted_router(registrations: &Registrations, clock: &SharedClock) -> Router {
    router(registrations, clock, &WebhookMetrics::new(&Registry::new(), clock.clone()))
}

pub(super) fn router(registrations: &Registrations, clock: &SharedClock, metrics: &WebhookMetrics) -> Router {
    let admission = registrations
        .webhooks
        .iter()
        .map(|it| (it.description.path.clone(), PathHandler::Admission(it.handler.clone())));
    let hubs = (!registrations.hubs.is_empty())
        .then(|| (CONVERT.to_owned(), PathHandler::Conversion(registrations.hubs.clone())));
    admission.chain(hubs).fold(Router::new(), |router, (path, handler)| {
        let (clock, metrics) = (clock.clone(), metrics.path(&path));
        let route = Arc::new(Route { path: path.clone(), handler, clock, metrics });
        router.route(&path, any(move |request: Request| route.clone().serve(request)))
    })
}

/// The handler of a path.
enum PathHandler {
    Admission(Arc<dyn Handler>),
    Conversion(Vec<Arc<dyn AnyHub>>),
}

/// A path with its handler, metrics and clock.
struct Route {
    path: String,
    handler: PathHandler,
    clock: SharedClock,
    metrics: PathMetrics,
}

/// An HTTP error instead of a review. The API server shows its text.
struct HttpError(StatusCode, String);

impl From<ReviewError> for HttpError {
    fn from(error: ReviewError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<conversion::review::ReviewError> for HttpError {
    fn from(error: conversion::review::ReviewError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl Route {
    async fn serve(self: Arc<Self>, request: Request) -> Response {
        let _in_flight = self.metrics.started();
        let response = match self.review(request).await {
            Ok(review) => ([(header::CONTENT_TYPE, "application/json")], review).into_response(),
            Err(HttpError(code, text)) => {
                tracing::warn!(path = self.path, code = code.as_u16(), text, "invalid review");
                (code, text).into_response()
            }
        };
        self.metrics.answered(response.status().as_u16());
        response
    }

    async fn review(&self, request: Request) -> Result<String, HttpError> {
        let limit = time_limit(request.uri().query());
        let kind = request.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
        let kind = kind.unwrap_or_default().to_owned();
        // A client that sends slowly occupies memory no longer than an API server would wait.
        let Ok(body) = timeout(limit, read(request.into_body())).await else {
            let text = format!("the review was not received within {limit:?}");
            return Err(HttpError(StatusCode::REQUEST_TIMEOUT, text));
        };
        let body = body?;
        if body.is_empty() {
            return Err(HttpError(StatusCode::BAD_REQUEST, "request body is empty".into()));
        }
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let text = format!("contentType={kind}, expected application/json");
            return Err(HttpError(StatusCode::BAD_REQUEST, text));
        }
        match &self.handler {
            PathHandler::Admission(handler) => {
                let review = Review::read(&body, &self.clock)?;
                drop(body);
                Ok(self.admitted(&**handler, &review, limit).await)
            }
            PathHandler::Conversion(hubs) => self.converted(hubs, &body),
        }
    }

    async fn admitted(&self, handler: &dyn Handler, review: &Review, limit: Duration) -> String {
        let response = self.isolated(handler, review, limit).await;
        if let Some(refusal) = &response.refusal {
            let request = &review.request;
            let (path, operation) = (&self.path, request.operation);
            tracing::debug!(path, %operation, namespace = ?request.namespace, name = request.name, %refusal, "refused");
        }
        review.response(response).to_string()
    }

    fn converted(&self, hubs: &[Arc<dyn AnyHub>], body: &[u8]) -> Result<String, HttpError> {
        let conversion::review::ConversionOutcome { review, panicked } = conversion::review::answer(body, hubs)?;
        if panicked {
            self.metrics.conversion_panicked();
        }
        serde_json::to_string(&review).map_err(|error| HttpError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// Calls the webhook, which may panic or never return.
    async fn isolated(&self, handler: &dyn Handler, review: &Review, limit: Duration) -> AdmissionResponse {
        let path = &self.path;
        let call = AssertUnwindSafe(async { handler.handle(review).await }).catch_unwind();
        match timeout(limit, call).await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => {
                self.metrics.panicked();
                let panic = panic::message(panic.as_ref());
                tracing::error!(path, panic, "a webhook panicked");
                AdmissionResponse::denied(Status::new(500, "InternalError", format!("panic: {panic} [recovered]")))
            }
            Err(_) => {
                tracing::error!(path, "a webhook took longer than {limit:?}");
                AdmissionResponse::denied(Status::new(
                    504,
                    "Timeout",
                    format!("the webhook took longer than {limit:?}"),
                ))
            }
        }
    }
}

async fn read(body: Body) -> Result<Bytes, HttpError> {
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
        true => HttpError(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("request entity is too large; limit is {BODY_LIMIT} bytes"),
        ),
        false => HttpError(StatusCode::BAD_REQUEST, format!("can't read the body: {error}")),
    })
}

/// Returns how long the API server waits: `?timeout=10s`.
fn time_limit(query: Option<&str>) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let seconds = parameters.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok()).next();
    seconds.map_or(LONGEST, |seconds: u64| Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST))
}

#[cfg(test)]
mod tests;
