//! What surrounds the handling of every request: the headers of the response, metrics, and `HEAD`.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts};
use http_body::Body as _;

use super::{
    decode::{self, Format},
    pretty,
    query::Query,
    route::{Route, Target},
};
use crate::{
    audit::{AuditContext, AuditedRequest},
    auth::{Attributes, UserInfo},
    body::Body,
    codec, compression,
    flow_control::Flow,
    metrics::{InFlight, Labels},
    object_type::ObjectType,
    response::Response,
    state::State,
    websocket::{ConnectionTasks, Content, Upgrade},
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The subresources whose requests last as long as the client wants. They aren't subject to priority and fairness.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// A body that may be recorded in the audit log.
struct Received {
    /// The format of an object. A patch has none.
    format: Option<Format>,
    body: Bytes,
    /// The `(group, version, kind)` of the objects that a subresource takes.
    kind: Option<(&'static str, &'static str, &'static str)>,
}

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
    audit: AuditContext,
    /// The body, if it may be recorded in the audit log.
    received: Option<Received>,
}

impl<'s> Exchange<'s> {
    pub(super) fn begin(state: &'s State, parts: &Parts) -> Self {
        let started = state.clock.monotonic();
        state.compaction.advance(started, || state.store.revision());
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
            audit: AuditContext::default(),
            received: None,
        }
    }

    /// Begins the record of the request in the audit log, if there is one. There is no user if the credentials are invalid.
    pub(super) fn begin_audit(
        &mut self,
        parts: &Parts,
        route: &Route,
        user: Option<Arc<UserInfo>>,
        attributes: impl FnOnce() -> Attributes,
    ) {
        let Some(log) = &self.state.audit_log else { return };
        let version = match route {
            Route::Resource(target) => &*target.resource.version,
            Route::Unknown(segments) => match segments.first().map(String::as_str) {
                Some("api") => segments.get(1).map(String::as_str).unwrap_or_default(),
                _ => segments.get(2).map(String::as_str).unwrap_or_default(),
            },
            _ => "",
        };
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let request = AuditedRequest {
            clock: self.state.clock.clone(),
            id: text(&self.audit_id),
            uri: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            user,
            user_agent: parts.headers.get(header::USER_AGENT).map(text).unwrap_or_default(),
            source_ips: source_ips(parts),
            attributes: &attributes(),
            version,
        };
        self.audit = AuditContext::begin(log, request);
    }

    /// Returns the record of the request in the audit log.
    pub(super) fn audit(&self) -> &AuditContext {
        &self.audit
    }

    /// Keeps the body for the audit log, if that wants it.
    pub(super) fn receive(&mut self, headers: &HeaderMap, target: &Target, body: &Bytes) {
        if self.audit.wants_request() && !body.is_empty() {
            let format = Format::of(headers).ok();
            self.received = Some(Received { format, body: body.clone(), kind: kind_of_subresource(target) });
        }
    }

    /// Records that the handler has panicked.
    pub(super) fn panicked(&mut self, message: &str) {
        self.audit.panicked(message);
        self.audit = AuditContext::default();
    }

    /// Records the body of the request, unless a handler has recorded its object.
    fn audit_request(&self) {
        let Some(Received { format, body, kind }) = self.received.as_ref().filter(|_| self.audit.wants_request())
        else {
            return;
        };
        // A patch has a media type of its own. What can't be parsed isn't recorded.
        let formats = format.map_or(vec![Format::Json, Format::Yaml], |format| vec![format]);
        let decoded = formats.into_iter().find_map(|format| decode::decode(format, body).ok());
        let Some(mut object) = decoded.map(|decoded| decoded.value) else { return };
        if self.method == Method::DELETE && object.is_object() {
            object["kind"] = "DeleteOptions".into();
            object["apiVersion"] = "meta.k8s.io/__internal".into();
        } else if let Some((group, version, kind)) = kind.filter(|_| self.method != Method::PATCH && object.is_object())
        {
            codec::set_type(&mut object, group, version, kind);
            if let Some(ty) = ObjectType::of(group, version, kind) {
                ty.complete(&mut object);
            }
        }
        self.audit.request_body(object);
    }

    /// Records the response.
    fn audit_response(&self, response: &Response) {
        self.audit_request();
        let code = response.status();
        let is_wanted = self.audit.wants_response() || !code.is_success() || self.method == Method::DELETE;
        let body = response.body().whole().filter(|_| is_wanted).and_then(|body| {
            let kind = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
            let format = match kind.split(';').next()?.trim() {
                "application/json" => Format::Json,
                "application/yaml" => Format::Yaml,
                crate::protobuf::MEDIA_TYPE => Format::Protobuf,
                _ => return None,
            };
            decode::decode(format, body).ok()
        });
        self.audit.respond(code.as_u16(), body.map(|decoded| decoded.value));
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
        if self.audit.is_enabled() {
            self.audit_response(&response);
        }
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
            ..
        } = self;
        drop(in_flight);
        let content = response.extensions_mut().remove::<Content>();
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let is_long_running = labels.as_ref().is_some_and(is_long_running_label);
        if let Some(flow) = flow {
            state.flow_control.add_headers(headers, flow);
        }
        if let Some(labels) = labels {
            let duration = state.clock.monotonic().saturating_sub(started);
            state.metrics.record(&labels, response.status().as_u16(), duration);
            if is_long_running && response.status().is_success() {
                let running = state.metrics.begin_long_running(labels);
                response = response.map(|body| body.with_guard(running));
            }
        }
        if is_long_running && audit.is_authenticated() && audit.is_enabled() {
            let end = audit.start_response();
            response = response.map(|body| body.with_guard(end));
        } else {
            audit.complete();
        }
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
    match route {
        Route::Resource(_) | Route::CoreVersions | Route::Groups | Route::Group(_) | Route::GroupVersion(..) => true,
        Route::Health { .. }
        | Route::Index
        | Route::Version
        | Route::OpenApiV2
        | Route::OpenApiV3Index
        | Route::OpenApiV3(_)
        | Route::Metrics
        | Route::HealthMetrics
        | Route::StatusPage
        | Route::FlagsPage
        | Route::OpenIdConfiguration
        | Route::OpenIdKeys
        | Route::Unknown(_) => false,
    }
}

/// Removes the body of a response, and keeps its length.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    response.map(|_| Body::empty())
}

/// Returns the `(group, version, kind)` of the objects that a subresource takes, if they aren't those of the resource.
fn kind_of_subresource(target: &Target) -> Option<(&'static str, &'static str, &'static str)> {
    let name = target.subresource.as_deref()?;
    match target.resource.subresources.iter().find(|one| one.name == name) {
        Some(subresource) => Some(subresource.kind),
        None if name == "scale" && target.resource.scale.is_some() => Some(("autoscaling", "v1", "Scale")),
        None => None,
    }
}

/// Returns the addresses from which a request comes: those that proxies tell, and that of the connection.
fn source_ips(parts: &Parts) -> Vec<String> {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = header("x-forwarded-for").split(',').map(str::trim).chain([header("x-real-ip").trim()]);
    let mut ips: Vec<String> = forwarded.filter_map(|ip| Some(ip.parse::<IpAddr>().ok()?.to_string())).collect();
    let connection = parts.extensions.get::<Arc<ConnectionTasks>>().and_then(|tasks| tasks.remote);
    // In-process clients are on this machine.
    ips.push(connection.unwrap_or(IpAddr::from([127, 0, 0, 1])).to_string());
    let mut seen = BTreeSet::new();
    ips.retain(|ip| seen.insert(ip.clone()));
    ips
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
