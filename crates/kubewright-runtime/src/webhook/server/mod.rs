//! The HTTPS server: its routes, its certificate, its end.

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
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use super::{
    Certificates, Content, Names, WebhookServer,
    answer::Answer,
    certificate::{
        Slot,
        files::Files,
        keeper::{self, Keeper},
    },
    handler::Handler,
    manifests::CONVERT,
    options::{Callers, Publish, host},
    review::{Review, ReviewError},
};
use crate::{
    conversion::{self, AnyHub},
    metrics::{Metrics, PathMetrics, WebhookMetrics},
    panic,
    probe::{BindError, Checks, Manner, Server},
};

/// The bytes that a review may have, as in controller-runtime: two objects of the largest size, and room to spare.
const BODY_LIMIT: usize = 7 * 1024 * 1024;
/// How long the API server waits for a webhook at most.
const LONGEST: Duration = Duration::from_secs(30);
/// How long the start waits for the certificate.
const START: Duration = Duration::from_secs(5);
/// Reviews under way get this long when the server stops: what a webhook is given in the configurations we make.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a connection may wait for its next request. The API server gives up idle ones itself, after 90 seconds; were we
/// first, a review could run into the closing.
const IDLE: Duration = Duration::from_secs(300);

/// What a server needs of its manager.
pub(crate) struct Surroundings<'a> {
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a SharedClock,
    pub(crate) metrics: &'a Metrics,
    pub(crate) readyz: &'a Checks,
}

/// Configurations that go when the server ends.
struct Installed {
    client: Client,
    names: Names,
}

/// A webhook server that runs. Dropped, it ends at once.
pub(crate) struct Running {
    server: Server,
    keeper: JoinHandle<()>,
    installed: Option<Installed>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Running {
    /// Listens and serves, all or only those that `callers` knows, and returns when there is a certificate, or when that takes too long; none when the address is
    /// disabled. Its readiness check is `webhook`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) async fn start(
        content: Content,
        options: WebhookServer,
        callers: Option<Callers>,
        surroundings: Surroundings<'_>,
    ) -> Result<Option<Self>, BindError> {
        let Surroundings { client, clock, metrics, readyz } = surroundings;
        let slot = Slot::new("webhooks");
        let certificates = metrics.certificates().clone();
        let metrics = WebhookMetrics::new(metrics.registry(), clock.clone());
        let manner = Manner { tls: Some(slot.tls_for(callers)), idle: IDLE, drain: DRAIN, ..Manner::default() };
        let router = router(&content, clock, &metrics);
        let server = Server::start_as("webhooks", "--webhook-bind-address", &options.address, router, manner).await?;
        let Some(server) = server else { return Ok(None) };
        add_check(readyz, &slot, clock);

        let names = options.names();
        let url = match &options.publish {
            Publish::No => None,
            Publish::Url(url) => Some(url.clone()),
            Publish::Address => Some(format!("https://{}", server.address())),
        };
        // A URL that was not checked as a flag and is none fails where the API server is told of it.
        let url = url.map(|url| (host(&url).unwrap_or_default(), url)).map(|(host, url)| (url, host));
        let (looked, has_looked) = oneshot::channel();
        // Nobody waits any more when it took too long.
        let looked = || looked.send(()).unwrap_or_default();
        let mut installed = None;
        let keeper = match options.certificates {
            Certificates::Directory { path, certificate, key } => {
                let files = Files { certificate: path.join(certificate), key: path.join(key) };
                tokio::spawn(files.follow(slot, certificates, options.interval, looked))
            }
            Certificates::SelfManaged => {
                installed = url.is_some().then(|| Installed { client: client.clone(), names: names.clone() });
                let keeper = Keeper {
                    client: client.clone(),
                    clock: clock.clone(),
                    metrics: certificates,
                    names,
                    namespace: options.namespace.unwrap_or_else(|| client.default_namespace().into()),
                    webhooks: content.webhooks.into_iter().map(|webhook| webhook.description).collect(),
                    conversions: content.hubs.iter().map(|hub| hub.describe()).collect(),
                    url,
                    slot,
                    known: keeper::Known::default(),
                };
                tokio::spawn(keeper.follow(options.interval, looked))
            }
        };
        // The rest of the manager doesn't depend on it, and `/readyz` tells.
        let _ = timeout(START, has_looked).await;
        Ok(Some(Self { server, keeper, installed }))
    }

    /// Takes away what it has installed, lets reviews under way finish for ten seconds, and ends.
    pub(crate) async fn shutdown(mut self) {
        self.keeper.abort();
        let _ = (&mut self.keeper).await;
        if let Some(Installed { client, names }) = self.installed.take() {
            keeper::remove(&client, &names).await;
        }
        self.server.stop().await;
    }
}

fn add_check(readyz: &Checks, slot: &Slot, clock: &SharedClock) {
    let (slot, clock) = (slot.clone(), clock.clone());
    readyz.add("webhook", move || {
        let result = match slot.get() {
            None => Err("there is no certificate yet".into()),
            Some(pair) if pair.is_valid_at(clock.now()) => Ok(()),
            Some(pair) => Err(format!("the certificate is not valid now; it ends {}", pair.not_after())),
        };
        std::future::ready(result)
    });
}

fn router(content: &Content, clock: &SharedClock, metrics: &WebhookMetrics) -> Router {
    let admission =
        content.webhooks.iter().map(|it| (it.description.path.clone(), Answerer::Admission(it.handler.clone())));
    let hubs = (!content.hubs.is_empty()).then(|| (CONVERT.to_owned(), Answerer::Conversion(content.hubs.clone())));
    admission.chain(hubs).fold(Router::new(), |router, (path, answerer)| {
        let (clock, metrics) = (clock.clone(), metrics.path(&path));
        let served = Arc::new(Served { path: path.clone(), answerer, clock, metrics });
        router.route(&path, any(move |request: Request| served.clone().answer(request)))
    })
}

/// What answers a path's reviews.
enum Answerer {
    Admission(Arc<dyn Handler>),
    Conversion(Vec<Arc<dyn AnyHub>>),
}

/// A path with what it counts and where it takes the time from.
struct Served {
    path: String,
    answerer: Answerer,
    clock: SharedClock,
    metrics: PathMetrics,
}

/// Why there is no review in answer: an HTTP error, whose text the API server shows.
struct Unanswerable(StatusCode, String);

impl From<ReviewError> for Unanswerable {
    fn from(error: ReviewError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<conversion::review::ReviewError> for Unanswerable {
    fn from(error: conversion::review::ReviewError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl Served {
    async fn answer(self: Arc<Self>, request: Request) -> Response {
        let _in_flight = self.metrics.started();
        let response = match self.review(request).await {
            Ok(review) => ([(header::CONTENT_TYPE, "application/json")], review).into_response(),
            Err(Unanswerable(code, text)) => {
                tracing::warn!(path = self.path, code = code.as_u16(), text, "bad review");
                (code, text).into_response()
            }
        };
        self.metrics.answered(response.status().as_u16());
        response
    }

    async fn review(&self, request: Request) -> Result<String, Unanswerable> {
        let limit = time_limit(request.uri().query());
        let kind = request.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
        let kind = kind.unwrap_or_default().to_owned();
        // Whoever sends slowly on purpose holds memory no longer than an API server would wait.
        let Ok(body) = timeout(limit, read(request.into_body())).await else {
            let text = format!("the review did not come within {limit:?}");
            return Err(Unanswerable(StatusCode::REQUEST_TIMEOUT, text));
        };
        let body = body?;
        if body.is_empty() {
            return Err(Unanswerable(StatusCode::BAD_REQUEST, "request body is empty".into()));
        }
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let text = format!("contentType={kind}, expected application/json");
            return Err(Unanswerable(StatusCode::BAD_REQUEST, text));
        }
        match &self.answerer {
            Answerer::Admission(handler) => {
                let review = Review::read(&body, &self.clock)?;
                drop(body);
                Ok(self.admitted(&**handler, &review, limit).await)
            }
            Answerer::Conversion(hubs) => self.converted(hubs, &body),
        }
    }

    async fn admitted(&self, handler: &dyn Handler, review: &Review, limit: Duration) -> String {
        let answer = self.isolated(handler, review, limit).await;
        if let Some(refusal) = &answer.refusal {
            let request = &review.request;
            let (path, operation) = (&self.path, request.operation);
            tracing::debug!(path, %operation, namespace = ?request.namespace, name = request.name, %refusal, "refused");
        }
        review.answer(answer).to_string()
    }

    fn converted(&self, hubs: &[Arc<dyn AnyHub>], body: &[u8]) -> Result<String, Unanswerable> {
        let conversion::review::Answered { review, panicked } = conversion::review::answer(body, hubs)?;
        if panicked {
            self.metrics.panicked();
        }
        serde_json::to_string(&review)
            .map_err(|error| Unanswerable(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    /// Asks the webhook, which may panic or take for ever.
    async fn isolated(&self, handler: &dyn Handler, review: &Review, limit: Duration) -> Answer {
        let path = &self.path;
        let asked = AssertUnwindSafe(async { handler.answer(review).await }).catch_unwind();
        match timeout(limit, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => {
                self.metrics.panicked();
                let panic = panic::message(panic.as_ref());
                tracing::error!(path, panic, "a webhook panicked");
                Answer::refused(Status::new(500, "InternalError", format!("panic: {panic} [recovered]")))
            }
            Err(_) => {
                tracing::error!(path, "a webhook took longer than {limit:?}");
                Answer::refused(Status::new(504, "Timeout", format!("the webhook took longer than {limit:?}")))
            }
        }
    }
}

async fn read(body: Body) -> Result<Bytes, Unanswerable> {
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
        true => Unanswerable(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("request entity is too large; limit is {BODY_LIMIT} bytes"),
        ),
        false => Unanswerable(StatusCode::BAD_REQUEST, format!("the body can't be read: {error}")),
    })
}

/// How long the API server waits: `?timeout=10s`.
fn time_limit(query: Option<&str>) -> Duration {
    let parameters = query.unwrap_or_default().split('&');
    let seconds = parameters.filter_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok()).next();
    seconds.map_or(LONGEST, |seconds: u64| Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST))
}

#[cfg(test)]
mod tests;
