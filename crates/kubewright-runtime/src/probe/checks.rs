//! Named health checks and their HTTP pages.

use std::{collections::BTreeMap, convert::Infallible, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{FromRequestParts, Path, RawQuery},
    http::{StatusCode, request::Parts},
    response::Response,
    routing::get,
};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::http::{is_local, text};

/// The timeout of a check, after which it counts as failed.
const DEADLINE: Duration = Duration::from_secs(5);

/// The result of a check; the error is the reason of the failure.
pub type CheckResult = Result<(), String>;

type Check = Arc<dyn Fn() -> BoxFuture<'static, CheckResult> + Send + Sync>;

/// A set of checks under one path. Clones share the set, and checks may be added while it is served.
#[derive(Clone)]
pub struct Checks {
    path: &'static str,
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.checks.lock().keys().cloned().collect();
        f.debug_struct("Checks").field("path", &self.path).field("checks", &names).finish()
    }
}

impl Checks {
    /// Creates an empty set, served under this path (without a slash). An empty set is healthy.
    pub(super) fn new(path: &'static str) -> Self {
        Self { path, checks: Arc::default() }
    }

    /// Adds a check, or replaces the check of this name. A check fails if it panics or takes more than five seconds.
    pub fn add<F, R>(&self, name: impl Into<String>, check: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = CheckResult> + Send + 'static,
    {
        self.checks.lock().insert(name.into(), Arc::new(move || check().boxed()));
    }

    /// Runs a check in this process; `None` if there is no check of this name.
    pub async fn run(&self, name: &str) -> Option<CheckResult> {
        Some(run(self.snapshot().remove(name)?).await)
    }

    pub(super) fn router(&self) -> Router {
        let (all, one) = (self.clone(), self.clone());
        Router::new()
            .route(
                &format!("/{}", self.path),
                get(async move |origin: RequestOrigin, RawQuery(query): RawQuery| all.answer(origin, query).await),
            )
            .route(
                &format!("/{}/{{check}}", self.path),
                get(async move |origin: RequestOrigin, Path(name): Path<String>| one.one(origin, &name).await),
            )
    }

    fn snapshot(&self) -> BTreeMap<String, Check> {
        let mut checks = self.checks.lock().clone();
        if checks.is_empty() {
            checks.insert("ping".into(), Arc::new(|| std::future::ready(Ok(())).boxed()));
        }
        checks
    }

    /// Returns the page with the result of all checks: `ok`, or with `?verbose` or after a failure a line for each.
    async fn answer(&self, origin: RequestOrigin, query: Option<String>) -> Response {
        let query = query.unwrap_or_default();
        let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut excluded: Vec<_> = parameters().filter(|(key, _)| *key == "exclude").map(|(_, name)| name).collect();
        let (mut healthy, mut page) = (true, String::new());
        for (name, check) in self.snapshot() {
            if excluded.contains(&name.as_str()) {
                excluded.retain(|excluded| *excluded != name);
                page += &format!("[+]{name} excluded: ok\n");
            } else if let Err(error) = run(check).await {
                healthy = false;
                tracing::info!(check = name, error, "{} check failed", self.path);
                page += &format!("[-]{name} failed: {}\n", origin.reason(&error));
            } else {
                page += &format!("[+]{name} ok\n");
            }
        }
        if !excluded.is_empty() {
            let names: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
            page += &format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", "));
        }
        match healthy {
            true if parameters().any(|(key, _)| key == "verbose") => {
                text(StatusCode::OK, page + &format!("{} check passed\n", self.path))
            }
            true => text(StatusCode::OK, "ok".into()),
            false => text(StatusCode::INTERNAL_SERVER_ERROR, page + &format!("{} check failed\n", self.path)),
        }
    }

    async fn one(&self, origin: RequestOrigin, name: &str) -> Response {
        match self.run(name).await {
            None => text(StatusCode::NOT_FOUND, format!("no check {name:?} under /{}\n", self.path)),
            Some(Ok(())) => text(StatusCode::OK, "ok".into()),
            Some(Err(error)) => {
                let page = format!("internal server error: {}\n", origin.reason(&error));
                text(StatusCode::INTERNAL_SERVER_ERROR, page)
            }
        }
    }
}

/// The sender of a request. The reasons of failures are shown only to [local](crate::http::is_local) requests.
struct RequestOrigin {
    is_local: bool,
}

impl<S: Sync> FromRequestParts<S> for RequestOrigin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self { is_local: is_local(&parts.uri, &parts.headers, &parts.extensions) })
    }
}

impl RequestOrigin {
    fn reason<'a>(&self, error: &'a str) -> &'a str {
        if self.is_local { error } else { "reason withheld" }
    }
}

async fn run(check: Check) -> CheckResult {
    let outcome = AssertUnwindSafe(timeout(DEADLINE, async move { check().await })).catch_unwind().await;
    match outcome {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(format!("no result within {DEADLINE:?}")),
        Err(_) => Err("the check panicked".into()),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn fetch(checks: &Checks, uri: &str) -> (u16, String) {
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let answer = checks.router().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn checks() -> Checks {
        let checks = Checks::new("readyz");
        checks.add("ping", async || Ok(()));
        checks.add("cache", async || Err("pods never arrived".into()));
        checks
    }

    #[tokio::test]
    async fn an_empty_set_is_healthy() {
        let none = Checks::new("healthz");
        assert_eq!(fetch(&none, "/healthz").await, (200, "ok".into()));
        assert_eq!(fetch(&none, "/healthz?verbose").await, (200, "[+]ping ok\nhealthz check passed\n".into()));
        assert_eq!(fetch(&none, "/healthz/ping").await, (200, "ok".into()));
    }

    #[tokio::test]
    async fn a_failure_lists_all_checks_without_reasons() {
        let page = "[-]cache failed: reason withheld\n[+]ping ok\nreadyz check failed\n";
        assert_eq!(fetch(&checks(), "/readyz").await, (500, page.into()));
        assert_eq!(fetch(&checks(), "/readyz/ping").await, (200, "ok".into()));
        let one = (500, "internal server error: reason withheld\n".into());
        assert_eq!(fetch(&checks(), "/readyz/cache").await, one);
        assert_eq!(fetch(&checks(), "/readyz/other").await.0, 404);
    }

    #[tokio::test]
    async fn a_check_can_be_excluded() {
        assert_eq!(fetch(&checks(), "/readyz?exclude=cache").await, (200, "ok".into()));
        let page = "[+]cache excluded: ok\n[+]ping ok\n\
                    warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n";
        assert_eq!(fetch(&checks(), "/readyz?verbose=1&exclude=cache&exclude=x").await, (200, page.into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_panics_or_hangs_has_failed() {
        let checks = Checks::new("healthz");
        checks.add("hang", std::future::pending);
        checks.add("panic", || -> std::future::Ready<CheckResult> { panic!("on purpose") });
        let (code, page) = fetch(&checks, "/healthz").await;
        assert_eq!(code, 500);
        assert!(page.starts_with("[-]hang failed: reason withheld\n[-]panic failed: reason withheld\n"), "{page}");
    }
}
