//! The web page of a guestbook, which accepts and lists entries: the program of the image `kubewright/guestbook`.
//!
//! | path | |
//! |---|---|
//! | `GET /` | the page |
//! | `POST /entries` | accepts the form field `entry`, and redirects to the page |
//! | `GET /healthz` | answers while the process works |
//! | `GET /readyz` | answers once the pod has the entries of the active one |
//! | `POST /replica` | replication between the pods |
//!
//! Entries are kept in the memory of all pods. The module `replica` describes which failures they survive.

mod book;
mod replica;
mod view;

use std::sync::Arc;

use anyhow::Context;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Form, Query, State, rejection::FormRejection},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use clap::Parser;
use kubewright::{
    clock::{SharedClock, SystemClock},
    probe::{BindAddress, Server},
    random::Random,
    signal::Signals,
};
use serde::Deserialize;

pub use self::book::{Book, Entry, EntryError, MAX_ENTRIES, MAX_LENGTH};
use self::{replica::Replica, view::Notice};
use crate::api::v1::Alias;

/// The maximum size of a form in bytes, which is larger than any percent-encoded entry.
const MAX_FORM: usize = 8 << 10;

/// The guestbook page: a small web server that takes an entry and lists the entries.
#[derive(Clone, Debug, Parser)]
#[command(name = "guestbook-page", version)]
pub struct Arguments {
    /// Where to listen: host:port, or :port for all interfaces.
    #[arg(long, env = "LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    listen: BindAddress,

    #[command(flatten)]
    settings: Settings,
}

/// The texts of the page.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The kind of entries: Phone, Address or Name.
    #[arg(long, env = "ALIAS", default_value = "Name", value_parser = alias)]
    pub alias: Alias,

    /// The title.
    #[arg(long, env = "TITLE", default_value = "Guestbook")]
    pub title: String,

    /// The text below the title.
    #[arg(long, env = "GREETING", default_value = "Welcome! Leave a line before you go.")]
    pub greeting: String,

    /// The name of the pod, shown in the footer.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,

    /// The address of the active pod as host:port; without it there are no other pods.
    #[arg(long, env = "SERVICE", value_name = "ADDRESS")]
    pub service: Option<String>,
}

fn alias(word: &str) -> Result<Alias, String> {
    let known = [Alias::Phone, Alias::Address, Alias::Name];
    known.into_iter().find(|alias| alias.as_str() == word).ok_or_else(|| "use Phone, Address or Name".into())
}

/// Serves the page until SIGTERM or SIGINT.
///
/// # Errors
/// If it can't listen.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let signals = Signals::install().context("listen for signals")?;
    let page = Page::new(arguments.settings, SystemClock::shared(), Random::from_entropy());
    let server = Server::start("the guestbook", "--listen", &arguments.listen, page.router()).await?;
    let server = server.context("--listen 0 leaves nothing to do: give an address")?;
    let shutdown = signals.shutdown();
    tokio::select! {
        () = page.replica.follow(page.settings.service.as_deref()) => {}
        () = shutdown.cancelled() => {}
    }
    server.shutdown().await;
    Ok(())
}

/// The page with its book. Clones share it.
#[derive(Clone)]
pub(crate) struct Page {
    settings: Arc<Settings>,
    replica: Arc<Replica>,
    clock: SharedClock,
    random: Arc<Random>,
}

impl Page {
    fn new(settings: Settings, clock: SharedClock, random: Random) -> Self {
        let replica = Replica::new(random.u64(), clock.clone(), settings.service.is_some());
        Self { settings: Arc::new(settings), replica, clock, random: Arc::new(random) }
    }

    fn router(&self) -> Router {
        let replica = post(replica::serve).layer(DefaultBodyLimit::max(replica::MAX_MESSAGE));
        Router::new()
            .route("/", get(show))
            .route("/entries", post(sign).get(async || Redirect::to("/")))
            .route("/replica", replica)
            .route("/healthz", get("ok"))
            .route("/readyz", get(readyz))
            .layer(DefaultBodyLimit::max(MAX_FORM))
            .with_state(self.clone())
    }

    fn answer(&self, status: StatusCode, notice: &Notice) -> Response {
        let html = view::page(&self.settings, &self.replica.book.lock(), notice);
        (status, headers(), Html(html)).into_response()
    }
}

#[derive(Deserialize)]
struct PageQuery {
    signed: Option<String>,
}

async fn show(State(page): State<Page>, Query(shown): Query<PageQuery>) -> Response {
    page.answer(StatusCode::OK, &shown.signed.map_or(Notice::None, |_| Notice::Thanks))
}

#[derive(Deserialize)]
struct Signature {
    #[serde(default)]
    entry: String,
}

async fn sign(
    State(page): State<Page>,
    headers: HeaderMap,
    signature: Result<Form<Signature>, FormRejection>,
) -> Response {
    // A form on another site must not sign on behalf of its visitors.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return page.answer(StatusCode::FORBIDDEN, &Notice::Unreadable);
    }
    let entry = match signature {
        Ok(Form(signature)) => signature.entry,
        Err(rejection) => return page.answer(rejection.status(), &Notice::Unreadable),
    };
    match page.replica.write(|book| book.add(page.clock.now(), page.random.u64(), &entry)) {
        Ok(count) => {
            page.replica.spread(count).await;
            Redirect::to("/?signed").into_response()
        }
        Err(refusal) => {
            let status =
                if refusal == EntryError::Full { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
            page.answer(status, &Notice::Refused(refusal, entry))
        }
    }
}

async fn readyz(State(page): State<Page>) -> (StatusCode, &'static str) {
    if page.replica.is_ready() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "asking the pod that serves for its entries")
    }
}

/// Security headers: no scripts, no external resources, no caching.
fn headers() -> [(HeaderName, HeaderValue); 4] {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
}

#[cfg(test)]
mod tests;
