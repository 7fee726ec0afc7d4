//! The record of a request in the audit log, as far as it doesn't depend on the handler.

use std::{collections::BTreeSet, net::IpAddr, ops::Deref, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header, request::Parts};
use kubewright_apimachinery::clock::SharedClock;

use super::{
    decode::{self, Format},
    route::{Route, Target},
};
use crate::{
    audit::{AuditContext, AuditLog, AuditedRequest},
    auth::{Attributes, UserInfo},
    codec,
    object_type::ObjectType,
    protobuf,
    response::Response,
    websocket::ConnectionTasks,
};

/// The record of a request, and its body.
#[derive(Default)]
pub(super) struct RequestAudit {
    context: AuditContext,
    received: Option<Received>,
}

/// A body that may be recorded in the audit log.
struct Received {
    /// The format of an object. A patch has none.
    format: Option<Format>,
    body: Bytes,
    /// The `(group, version, kind)` of the objects that a subresource takes.
    kind: Option<(&'static str, &'static str, &'static str)>,
}

impl Deref for RequestAudit {
    type Target = AuditContext;

    fn deref(&self) -> &AuditContext {
        &self.context
    }
}

impl RequestAudit {
    /// Begins the record of a request. There is no user if the credentials are invalid.
    pub(super) fn begin(
        log: &Arc<AuditLog>,
        clock: SharedClock,
        id: &str,
        parts: &Parts,
        route: &Route,
        user: Option<Arc<UserInfo>>,
        attributes: &Attributes,
    ) -> Self {
        let version = match route {
            Route::Resource(target) => &*target.resource.version,
            Route::Unknown(segments) => {
                let place = if segments.first().is_some_and(|first| first == "api") { 1 } else { 2 };
                segments.get(place).map(String::as_str).unwrap_or_default()
            }
            _ => "",
        };
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let request = AuditedRequest {
            clock,
            id: id.to_owned(),
            uri: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            user,
            user_agent: parts.headers.get(header::USER_AGENT).map(text).unwrap_or_default(),
            source_ips: source_ips(parts),
            attributes,
            version,
        };
        Self { context: AuditContext::begin(log, request), received: None }
    }

    /// Returns the record, for handlers to add to it.
    pub(super) fn context(&self) -> AuditContext {
        self.context.clone()
    }

    /// Keeps the body of the request, if the log wants it.
    pub(super) fn receive(&mut self, headers: &HeaderMap, target: &Target, body: &Bytes) {
        if self.wants_request() && !body.is_empty() {
            let format = Format::of(headers).ok();
            self.received = Some(Received { format, body: body.clone(), kind: kind_of_subresource(target) });
        }
    }

    /// Ends the record of a request whose handler has panicked.
    pub(super) fn panicked(&mut self, message: &str) {
        self.context.panicked(message);
        *self = Self::default();
    }

    /// Records the response, and the body of the request, unless a handler has recorded its object.
    pub(super) fn respond(&self, method: &Method, response: &Response) {
        if !self.is_enabled() {
            return;
        }
        if let Some(received) = self.received.as_ref().filter(|_| self.wants_request()) {
            self.request_body(received, method);
        }
        let code = response.status();
        let is_wanted = self.wants_response() || !code.is_success() || *method == Method::DELETE;
        let body = response.body().whole().filter(|_| is_wanted).and_then(|body| {
            let media_type = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
            let format = match media_type.split(';').next()?.trim() {
                "application/json" => Format::Json,
                "application/yaml" => Format::Yaml,
                protobuf::MEDIA_TYPE => Format::Protobuf,
                _ => return None,
            };
            decode::decode(format, body).ok()
        });
        self.context.respond(code.as_u16(), body.map(|decoded| decoded.value));
    }

    fn request_body(&self, received: &Received, method: &Method) {
        let Received { format, body, kind } = received;
        // A patch has a media type of its own. What can't be parsed isn't recorded.
        let formats = format.map_or(vec![Format::Json, Format::Yaml], |format| vec![format]);
        let decoded = formats.into_iter().find_map(|format| decode::decode(format, body).ok());
        let Some(mut object) = decoded.map(|decoded| decoded.value) else { return };
        if *method == Method::DELETE && object.is_object() {
            codec::set_type(&mut object, "meta.k8s.io", "__internal", "DeleteOptions");
        } else if let Some((group, version, kind)) = kind.filter(|_| *method != Method::PATCH && object.is_object()) {
            codec::set_type(&mut object, group, version, kind);
            if let Some(ty) = ObjectType::of(group, version, kind) {
                ty.complete(&mut object);
            }
        }
        self.context.request_body(object);
    }

    /// Records the end of the request, or of the response if that lasts as long as the client wants.
    pub(super) fn complete(self, response: Response, is_long_running: bool) -> Response {
        if !is_long_running || !self.is_enabled() || !self.is_authenticated() {
            self.context.complete();
            return response;
        }
        let end = self.context.start_response();
        response.map(|body| body.with_guard(end))
    }
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
