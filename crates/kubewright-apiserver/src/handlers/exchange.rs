//! What surrounds the handling of every request: the headers of the response, metrics, and `HEAD`.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Method, header, request::Parts};
use http_body::Body as _;

use super::{
    decode, pretty,
    query::Query,
    request_audit::RequestAudit,
    route::{Route, Target},
};
use crate::{
    auth::{Attributes, UserInfo},
    body::Body,
    compression,
    flow_control::Flow,
    metrics::{InFlight, Labels},
    response::Response,
    state::State,
    websocket::{Content, Upgrade},
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The subresources whose requests last as long as the client wants. They aren't subject to priority and fairness.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The handling of one request.
pub(super) struct Exchange<'s> {
    state: &'s State,
    audit_id: HeaderValue,
    method: Method,
    /// The monotonic time at which the request arrived.
    started: Duration,
    upgrade: Option<Upgrade>,
    /// Whether JSON is indented.
    is_pretty: bool,
    /// Whether large responses are compressed.
    is_compressed: bool,
    /// The classification, once the user is known.
    flow: Option<Flow>,
    /// The labels of the metrics, once the route is known.
    labels: Option<Labels>,
    in_flight: Option<InFlight<'s>>,
    audit: RequestAudit,
}

impl<'s> Exchange<'s> {
    pub(super) fn begin(state: &'s State, parts: &Parts) -> Self {
        let started = state.clock.monotonic();
        if let Some(oldest) = state.compaction.advance(started, || state.store.revision()) {
            state.store.compact(oldest);
        }
        let sent = parts.headers.get(AUDIT_ID).filter(|id| !id.is_empty());
        let random = || HeaderValue::try_from(state.random.uuid()).unwrap_or(HeaderValue::from_static(""));
        Self {
            state,
            audit_id: sent.cloned().unwrap_or_else(random),
            method: parts.method.clone(),
            started,
            upgrade: Upgrade::requested(parts),
            is_pretty: pretty::is_requested(parts),
            is_compressed: compression::is_accepted(&parts.headers),
            flow: None,
            labels: None,
            in_flight: None,
            audit: RequestAudit::default(),
        }
    }

    /// Begins the record of the request in the audit log, if there is one. There is no user if the credentials are
    /// invalid.
    pub(super) fn begin_audit(
        &mut self,
        parts: &Parts,
        route: &Route,
        user: Option<Arc<UserInfo>>,
        attributes: impl FnOnce() -> Attributes,
    ) {
        if let Some(log) = &self.state.audit_log {
            let id = self.audit_id.to_str().unwrap_or_default();
            self.audit = RequestAudit::begin(log, self.state.clock.clone(), id, parts, route, user, &attributes());
        }
    }

    /// Returns the record of the request in the audit log.
    pub(super) fn audit(&mut self) -> &mut RequestAudit {
        &mut self.audit
    }

    /// Records the classification of the request, which is the same for all requests of a flow.
    pub(super) fn classify(&mut self, route: &Route, flow: Flow) {
        let long_running = match route {
            Route::Resource(target) => is_long_running(target),
            _ => false,
        };
        if !long_running {
            self.flow = Some(flow);
        }
    }

    /// Leaves the body of the response as another server sends it.
    pub(super) fn pass_through(&mut self) {
        self.is_pretty = false;
        self.is_compressed = false;
    }

    /// Counts an authorized request.
    pub(super) fn count(&mut self, parts: &Parts, route: &Route) {
        self.labels = labels(parts, route);
        self.is_pretty &= !matches!(route, Route::OpenApiV2 | Route::OpenApiV3Index | Route::OpenApiV3(_));
        let long_running = self.labels.as_ref().is_some_and(is_long_running_label);
        self.is_compressed &= !long_running && has_objects(route);
        if !long_running {
            let mutating = !matches!(self.method, Method::GET | Method::HEAD);
            self.in_flight = Some(self.state.metrics.begin(mutating));
        }
    }

    /// Completes the response.
    pub(super) fn finish(self, mut response: Response) -> Response {
        self.audit.respond(&self.method, &response);
        let Self {
            state,
            audit_id,
            method,
            started,
            upgrade,
            is_pretty,
            is_compressed,
            flow,
            labels,
            in_flight,
            audit,
        } = self;
        drop(in_flight);
        let content = response.extensions_mut().remove::<Content>();
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let is_long_running = labels.as_ref().is_some_and(is_long_running_label);
        if let Some(flow) = flow {
            flow.add_headers(headers);
        }
        if let Some(labels) = labels {
            let duration = state.clock.monotonic().saturating_sub(started);
            state.metrics.record(&labels, response.status().as_u16(), duration);
            if is_long_running && response.status().is_success() {
                let running = state.metrics.begin_long_running(labels);
                response = response.map(|body| body.with_guard(running));
            }
        }
        response = audit.complete(response, is_long_running);
        if is_pretty && !(is_long_running && response.status().is_success()) {
            response = pretty::indent(response);
        }
        if is_compressed {
            response = compression::compress(response);
        }
        match (upgrade, content) {
            // The response to a handshake has no other headers, as in Kubernetes.
            (Some(upgrade), Some(content)) => upgrade.respond(response.into_body(), content),
            _ if method == Method::HEAD => without_body(response),
            _ => response,
        }
    }
}

/// Returns whether the response to a request for a route is an object or a discovery document.
fn has_objects(route: &Route) -> bool {
    matches!(
        route,
        Route::Resource(_) | Route::CoreVersions | Route::Groups | Route::Group(_) | Route::GroupVersion(..)
    )
}

/// Removes the body of a response, and keeps its length.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    response.map(|_| Body::empty())
}

fn is_long_running(target: &Target) -> bool {
    let subresource = target.subresource.as_deref().unwrap_or_default();
    LONG_RUNNING.contains(&subresource.split('/').next().unwrap_or_default())
}

/// Returns whether the response to a request lasts as long as the client wants.
pub(super) fn lasts(parts: &Parts, route: &Route) -> bool {
    labels(parts, route).as_ref().is_some_and(is_long_running_label)
}

/// Returns whether the response lasts as long as the client wants.
fn is_long_running_label(labels: &Labels) -> bool {
    labels.verb == "WATCH" || (labels.resource.is_some() && LONG_RUNNING.contains(&labels.subresource))
}

/// Returns the labels of a request; `None` for routes that don't exist.
fn labels(parts: &Parts, route: &Route) -> Option<Labels> {
    let method = match parts.method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    let Route::Resource(target) = route else {
        return Some(Labels { verb: method, subresource: route.label()?, ..Labels::default() });
    };
    let Target { resource, namespace, name, subresource, watch } = target;
    let subresource = match subresource.as_deref().map(|path| path.split('/').next().unwrap_or_default()) {
        None => "",
        Some("status") if resource.status => "status",
        Some("scale") if resource.scale.is_some() => "scale",
        Some(name) => resource.subresources.iter().find(|subresource| subresource.name == name)?.name,
    };
    let query = Query::parse(parts.uri.query());
    let scope = match (name, &parts.method) {
        (Some(_), _) | (_, &Method::POST) => "resource",
        _ if namespace.is_empty() => "cluster",
        _ => "namespace",
    };
    let apply = || parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == decode::APPLY);
    let verb = match method {
        _ if LONG_RUNNING.contains(&subresource) => "CONNECT",
        "GET" if *watch || (subresource.is_empty() && query.flag("watch") == Some(true)) => "WATCH",
        "GET" if name.is_none() => "LIST",
        "PATCH" if apply() => "APPLY",
        method => method,
    };
    Some(Labels { verb, resource: Some(resource.clone()), subresource, scope, dry_run: query.get("dryRun").is_some() })
}
