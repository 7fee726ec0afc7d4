//! Health, version, discovery and OpenAPI documents.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority};
use kubewright_apimachinery::status::Status;
use serde_json::json;

use super::{call::method_not_allowed, query::Query, route::Route};
use crate::{
    body::Body,
    discovery::{self, Aggregated},
    openapi::Document,
    response::{self, Accept, Response},
    state::State,
};

/// The minor version of Kubernetes, determined by the enabled k8s-openapi feature.
const MINOR: &str = "36";

pub(super) fn respond(state: &State, parts: &Parts, route: Route) -> Result<Response, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(if matches!(route, Route::Unknown(_)) { Status::no_such_resource() } else { method_not_allowed() });
    }
    if let (Route::CoreVersions | Route::Groups, Some(form)) = (&route, aggregated_form(&parts.headers)) {
        let core = matches!(route, Route::CoreVersions);
        let (document, tag) = discovery::aggregated(&state.registry, core, form);
        return Ok(tagged(parts, form.content_type(), &tag, document.to_string()));
    }
    if let Some((document, content_type)) = open_api(state, parts, &route) {
        let tag = format!("\"{}\"", document.hash);
        return Ok(tagged(parts, content_type, &tag, document.body));
    }
    let document = match route {
        Route::Health { check } => return Ok(health(check, &Query::parse(parts.uri.query()))),
        Route::Version => version(),
        Route::CoreVersions => discovery::core_versions(address(parts)),
        Route::Groups => discovery::group_list(&state.registry),
        Route::Group(group) => discovery::group(&state.registry, &group).ok_or_else(Status::no_such_resource)?,
        Route::GroupVersion(group, version) => {
            discovery::resource_list(&state.registry, &group, &version).ok_or_else(Status::no_such_resource)?
        }
        _ => return Err(Status::no_such_resource()),
    };
    Ok(response::value(StatusCode::OK, Accept::parse(&parts.headers)?.text, &document))
}

/// Returns the OpenAPI document of a route, and its content type.
fn open_api(state: &State, parts: &Parts, route: &Route) -> Option<(Document, &'static str)> {
    const JSON: &str = "application/json";
    let (api, registry) = (&state.openapi, &state.registry);
    match route {
        Route::OpenApiV3Index => Some((api.v3_index(registry), JSON)),
        Route::OpenApiV3(path) => Some((api.v3(registry, path)?, JSON)),
        Route::OpenApiV2 => {
            let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            Some(api.v2(registry, accept))
        }
        _ => None,
    }
}

/// Returns the host and port at which the client reached the server.
fn address(parts: &Parts) -> &str {
    let host = parts.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    host.or(parts.uri.authority().map(Authority::as_str)).unwrap_or("127.0.0.1")
}

/// Returns the version of aggregated discovery, if the client prefers it to plain discovery.
fn aggregated_form(headers: &HeaderMap) -> Option<Aggregated> {
    for value in headers.get_all(header::ACCEPT) {
        for clause in value.to_str().unwrap_or_default().split(',') {
            let parts: Vec<_> = clause.split(';').map(str::trim).collect();
            let aggregated = parts.contains(&"as=APIGroupDiscoveryList") && parts.contains(&"g=apidiscovery.k8s.io");
            match parts.first() {
                Some(&"application/json") if aggregated && parts.contains(&"v=v2") => return Some(Aggregated::V2),
                Some(&"application/json") if aggregated && parts.contains(&"v=v2beta1") => {
                    return Some(Aggregated::V2Beta1);
                }
                Some(&("application/json" | "*/*")) if !aggregated => return None,
                _ => {}
            }
        }
    }
    None
}

/// Returns a response with a document and its entity tag, or 304 if the client already has the document.
fn tagged(parts: &Parts, content_type: &'static str, tag: &str, document: impl Into<Body>) -> Response {
    let known = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag)) {
        response::bytes(StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        response::bytes(StatusCode::OK, document)
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn health(check: &str, query: &Query) -> Response {
    let text = match query.flag("verbose") {
        Some(true) => format!("[+]ping ok\n[+]storage ok\n{check} check passed\n"),
        _ => "ok".into(),
    };
    response::plain(StatusCode::OK, text)
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.0-kubewright"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
