//! The HTTP pages of traces.

use std::convert::Infallible;

use axum::{
    Router,
    extract::{FromRequestParts, Path, State},
    http::{StatusCode, header, request::Parts},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

use crate::{
    http::{only_local, text},
    object::ObjectKey,
    trace::{Overview, Traces},
};

/// The default of `?limit=`: the number of runs of a controller that are shown.
const RUNS: usize = 100;

/// Returns the routes below `/debug/traces`, for a server that authenticates or is reachable only from this machine.
pub(crate) fn traces_router(traces: Traces) -> Router {
    let router = if traces.is_on() {
        Router::new()
            .route("/debug/traces", get(overview))
            .route("/debug/traces/{controller}", get(controller))
            .route("/debug/traces/{controller}/{name}", get(cluster_scoped))
            .route("/debug/traces/{controller}/{namespace}/{name}", get(namespaced))
    } else {
        let off = "traces are disabled: start the operator without --traces=false\n";
        let answer = async move || text(StatusCode::NOT_FOUND, off.into());
        Router::new().route("/debug/traces", get(answer)).route("/debug/traces/{*rest}", get(answer))
    };
    router.with_state(traces)
}

/// Returns the routes below `/debug/traces`, restricted to local requests.
pub(crate) fn local_traces_router(traces: Traces) -> Router {
    traces_router(traces).layer(middleware::from_fn(only_local))
}

async fn overview(State(traces): State<Traces>, query: TraceQuery) -> Response {
    query.answer(&Overview::new(traces.controllers()))
}

async fn controller(State(traces): State<Traces>, Path(name): Path<String>, query: TraceQuery) -> Response {
    query.answer_if(traces.page(&name, query.limit), &traces, &name)
}

async fn cluster_scoped(
    State(traces): State<Traces>,
    Path((controller, name)): Path<(String, String)>,
    query: TraceQuery,
) -> Response {
    query.answer_if(traces.explain(&controller, &ObjectKey::cluster(&name)), &traces, &controller)
}

async fn namespaced(
    State(traces): State<Traces>,
    Path((controller, namespace, name)): Path<(String, String, String)>,
    query: TraceQuery,
) -> Response {
    let key = ObjectKey::namespaced(&namespace, &name);
    query.answer_if(traces.explain(&controller, &key), &traces, &controller)
}

/// The parameters of a request.
struct TraceQuery {
    text: bool,
    limit: usize,
}

impl<S: Sync> FromRequestParts<S> for TraceQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
        let parameter = |name: &str| pairs().find(|(key, _)| *key == name).map(|(_, value)| value);
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let text = match parameter("format") {
            Some(format) => format == "text",
            None => accept.contains("text/plain") && !accept.contains("json"),
        };
        Ok(Self { text, limit: parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(RUNS) })
    }
}

impl TraceQuery {
    fn answer<T: Serialize + ToString>(&self, page: &T) -> Response {
        if self.text {
            return text(StatusCode::OK, page.to_string());
        }
        match serde_json::to_vec(page) {
            Ok(page) => ([(header::CONTENT_TYPE, "application/json")], page).into_response(),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    fn answer_if<T: Serialize + ToString>(&self, page: Option<T>, traces: &Traces, controller: &str) -> Response {
        if let Some(page) = page {
            return self.answer(&page);
        }
        let names: Vec<_> = traces.controllers().into_iter().map(|controller| controller.name).collect();
        text(
            StatusCode::NOT_FOUND,
            format!("no controller {controller:?}; the controllers are: {}\n", names.join(", ")),
        )
    }
}
