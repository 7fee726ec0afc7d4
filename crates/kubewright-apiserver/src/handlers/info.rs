//! Responses for everything but resources: health, version, metrics, discovery, OpenAPI and OpenID documents.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderValue, Method, StatusCode, header, request::Parts, uri::Authority};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use kubewright_apimachinery::status::Status;
use serde::Serialize;
use serde_json::json;

use super::{health, pages, query::Query, route::Route};
use crate::{
    aggregation::RemoteVersion,
    body::Body,
    discovery::{self, Others},
    openapi::{Document, has_document},
    registry::Registry,
    response::{self, Accept, Encoding, Response},
    state::State,
    version::{MAJOR, MIN_COMPATIBILITY_MINOR, MINOR, VERSION},
};

pub(super) async fn respond(state: &State, parts: &Parts, route: Route) -> Result<Response, Status> {
    let may_be_aggregated = matches!(route, Route::CoreVersions | Route::Groups);
    let accept = Accept::of_discovery(&parts.headers, may_be_aggregated);
    let is_aggregated = matches!(accept, Ok((_, true)));
    let others = others(state, &route, is_aggregated).await;
    if !exists(&state.registry, &others, &route) {
        return match route {
            Route::OpenApiV3(_) => Ok(no_document()),
            _ => not_found(&state.registry, parts),
        };
    }
    if !has_method(&state.registry, &route, &parts.method) {
        return Err(Status::method_not_allowed());
    }
    if is_aggregated {
        let core = matches!(route, Route::CoreVersions);
        let (document, tag) = discovery::aggregated(&state.registry, &others, core);
        return Ok(aggregated(parts, accept?.0, &tag, &document));
    }
    if let Some((document, content_type)) = open_api(state, &others, parts, &route) {
        let tag = format!("\"{}\"", document.hash);
        let query = Query::parse(parts.uri.query());
        let hash = query.get("hash").filter(|_| matches!(route, Route::OpenApiV3(_)));
        if hash.is_some_and(|hash| *hash != *document.hash) {
            return Ok(moved(&format!("{}?hash={}", parts.uri.path(), document.hash)));
        }
        let mut response = tagged(parts, content_type, &tag, document.body);
        if hash.is_some() {
            keep(&mut response, state.clock.now());
        }
        return Ok(response);
    }
    let document = match route {
        Route::Health { is_single: true, .. } => return Ok(health::single()),
        Route::Health { path, .. } => return Ok(state.health.respond(path, &Query::parse(parts.uri.query()))),
        Route::Metrics => return metrics(state),
        Route::HealthMetrics => return Ok(state.health.metrics(&parts.method, state.started)),
        Route::StatusPage => return Ok(pages::status(state, parts)),
        Route::FlagsPage => return Ok(pages::flags(state, parts)),
        Route::OpenIdConfiguration => {
            return open_id(parts, "application/json", &state.authenticator.open_id(address(parts)));
        }
        Route::OpenIdKeys => return open_id(parts, "application/jwk-set+json", &state.authenticator.keys()),
        Route::Index => return raw(parts, &index(&state.registry)),
        Route::Version => return raw(parts, &version()),
        Route::CoreVersions => discovery::core_versions(address(parts)),
        Route::Groups => discovery::group_list(&state.registry, &others),
        Route::Group(group) => {
            discovery::group(&state.registry, &others, &group).ok_or_else(Status::no_such_resource)?
        }
        Route::GroupVersion(group, version) => {
            discovery::resource_list(&state.registry, &group, &version).ok_or_else(Status::no_such_resource)?
        }
        _ => return Err(Status::no_such_resource()),
    };
    Ok(response::value(StatusCode::OK, accept?.0, &document))
}

/// Returns an aggregated discovery document, which clients may keep.
fn aggregated(parts: &Parts, encoding: Encoding, tag: &str, document: &serde_json::Value) -> Response {
    let whole = response::value(StatusCode::OK, encoding, document);
    let media_type = whole.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = format!("{};{}", media_type.unwrap_or_default(), discovery::AGGREGATED);
    let mut response = tagged(parts, &content_type, tag, whole.into_body());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// Returns what the document of a route contains beside the resources of this server. Their servers are only asked for
/// documents that contain their resources.
async fn others(state: &State, route: &Route, is_aggregated: bool) -> Others {
    let aggregation = &state.aggregation;
    let versions = match route {
        Route::Groups if is_aggregated => aggregation.versions().await,
        Route::OpenApiV3Index => aggregation.versions().await,
        Route::Groups | Route::Group(_) => aggregation.known_versions(),
        _ => return Others::default(),
    };
    Others { versions, priorities: aggregation.services.priorities() }
}

/// Returns whether a route leads to something.
fn exists(registry: &Registry, others: &Others, route: &Route) -> bool {
    match route {
        Route::Group(group) => {
            !group.is_empty()
                && (registry.first(|entry| *entry.group == **group).is_some()
                    || others.versions.iter().any(|version| version.group == *group))
        }
        Route::GroupVersion(group, version) => {
            registry.first(|entry| *entry.group == **group && *entry.version == **version).is_some()
        }
        Route::OpenApiV3(path) => has_document(registry, path),
        Route::Unknown(_) => false,
        _ => true,
    }
}

/// Returns whether a route supports a method. The versions of built-in groups, and the group that the aggregator itself
/// serves, can only be read with GET. Kubernetes serves the other groups, which the aggregator lists, and the documents
/// beside discovery with any method.
fn has_method(registry: &Registry, route: &Route, method: &Method) -> bool {
    match route {
        Route::Group(group) if group != "apiregistration.k8s.io" => true,
        Route::GroupVersion(group, _) if !registry.has_builtin_group(group) => true,
        Route::Groups => true,
        Route::Index
        | Route::Health { .. }
        | Route::Metrics
        | Route::HealthMetrics
        | Route::StatusPage
        | Route::FlagsPage
        | Route::OpenApiV2
        | Route::OpenApiV3Index
        | Route::OpenApiV3(_) => true,
        _ => method == Method::GET,
    }
}

/// Returns 404: a `Status` below the paths of built-in groups, otherwise plain text.
fn not_found(registry: &Registry, parts: &Parts) -> Result<Response, Status> {
    let segments: Vec<_> = parts.uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let known = match segments.as_slice() {
        ["api" | "version", ..] | [".well-known", "openid-configuration", ..] | ["openid", "v1", "jwks", ..] => true,
        ["apis", group, ..] => registry.has_builtin_group(group),
        _ => false,
    };
    if known { Err(Status::no_such_resource()) } else { Ok(page_not_found()) }
}

/// Returns 404 for an OpenAPI document, which has no body.
fn no_document() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Returns 404 in plain text.
pub(super) fn page_not_found() -> Response {
    let mut response = response::plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns `/`, the paths of all documents.
fn index(registry: &Registry) -> serde_json::Value {
    let fixed = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/apis/",
        "/flagz",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/statusz",
        "/version",
    ];
    let mut paths: BTreeSet<_> = fixed.map(str::to_owned).into();
    for health in health::PATHS {
        paths.insert(health.into());
        paths.extend(health::checks(health).iter().map(|check| format!("{health}/{check}")));
    }
    for entry in registry.all() {
        let (group, version) = (&entry.group, &entry.version);
        if group.is_empty() {
            paths.insert(format!("/api/{version}"));
        } else {
            paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
        }
    }
    json!({"paths": paths})
}

fn metrics(state: &State) -> Result<Response, Status> {
    let mut objects = BTreeMap::new();
    let entries = state.registry.all();
    // Reviews and computed objects aren't stored.
    for entry in entries.iter().filter(|entry| entry.verbs.contains(&"watch")) {
        let (group, plural) = entry.storage.split_once('/').unwrap_or_default();
        objects.entry((plural, group)).or_insert_with(|| state.store.snapshot(&entry.storage).objects.len());
    }
    let objects: Vec<_> = objects.into_iter().collect();
    let text = state.metrics.text(&objects, &state.flow_control.limits()).map_err(Status::internal)?;
    Ok(health::metrics_text(text, state.started))
}

/// Returns an OpenID document, which may be cached.
fn open_id(parts: &Parts, content_type: &'static str, document: &serde_json::Value) -> Result<Response, Status> {
    Accept::check(&parts.headers, content_type)?;
    let mut response = response::bytes(StatusCode::OK, document.to_string());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}

/// Returns the OpenAPI document of a route, and its content type.
fn open_api(state: &State, others: &Others, parts: &Parts, route: &Route) -> Option<(Document, &'static str)> {
    const JSON: &str = "application/json";
    let (api, registry) = (&state.openapi, &state.registry);
    match route {
        Route::OpenApiV3Index => {
            let path = |version: &RemoteVersion| format!("apis/{}/{}", version.group, version.version);
            let others = others.versions.iter().filter_map(|one| Some((path(one), one.open_api.clone()?)));
            // As in Kubernetes, which leaves the type to be guessed.
            Some((api.v3_index(registry, others), "text/plain; charset=utf-8"))
        }
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

/// Returns a response that leads to another address.
fn moved(address: &str) -> Response {
    let mut response = response::bytes(StatusCode::MOVED_PERMANENTLY, Body::empty());
    response.headers_mut().remove(header::CONTENT_TYPE);
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    response
}

/// Lets clients keep a response for a year, since another document has another address.
fn keep(response: &mut Response, now: Timestamp) {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    let end = now.to_zoned(TimeZone::UTC).saturating_add(1.year());
    if let Ok(end) = HeaderValue::from_str(&end.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()) {
        headers.insert(header::EXPIRES, end);
    }
}

/// Returns a response with a document and its entity tag, or 304 if the client already has the document.
fn tagged(parts: &Parts, content_type: &str, tag: &str, document: impl Into<Body>) -> Response {
    let known = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag)) {
        response::bytes(StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        response::bytes(StatusCode::OK, document)
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    for (name, value) in [(header::CONTENT_TYPE, content_type), (header::ETAG, tag)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}

/// The version of the server, with its fields in the order of Kubernetes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

fn version() -> Version {
    Version {
        major: MAJOR,
        minor: MINOR,
        emulation_major: MAJOR,
        emulation_minor: MINOR,
        min_compatibility_major: MAJOR,
        min_compatibility_minor: MIN_COMPATIBILITY_MINOR,
        git_version: VERSION,
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: pages::GO_VERSION,
        compiler: "rustc",
        platform: format!("{}/{}", of_go(std::env::consts::OS), of_go(std::env::consts::ARCH)),
    }
}

/// Returns a document that is only sent as JSON.
fn raw(parts: &Parts, document: &impl Serialize) -> Result<Response, Status> {
    Accept::parse(&parts.headers)?;
    Ok(response::indented(document))
}

/// Returns Go's name of an operating system or architecture, which programs compare with those of images.
fn of_go(name: &str) -> &str {
    match name {
        "macos" => "darwin",
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
