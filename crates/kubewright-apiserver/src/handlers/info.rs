//! What the server tells about itself: health, version, discovery, OpenAPI.

use http::{Method, StatusCode, request::Parts};
use kubewright_apimachinery::status::Status;
use serde_json::json;

use super::{Query, Route, method_not_allowed};
use crate::{
    discovery,
    respond::{self, Accept, Answer},
    server::Inner,
};

/// The Kubernetes version that is spoken: that of the k8s-openapi feature in use.
const MINOR: &str = "36";

pub(super) fn answer(server: &Inner, parts: &Parts, route: Route) -> Result<Answer, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(if matches!(route, Route::Unknown) { Status::no_such_resource() } else { method_not_allowed() });
    }
    let accept = || Accept::parse(&parts.headers);
    let document = match route {
        Route::Health { check } => return Ok(health(check, &Query::parse(parts.uri.query()))),
        Route::Version => version(),
        Route::CoreVersions => discovery::core_versions("127.0.0.1:6443"),
        Route::Groups => discovery::group_list(&server.registry),
        Route::Group(group) => discovery::group(&server.registry, &group).ok_or_else(Status::no_such_resource)?,
        Route::GroupVersion(group, version) => {
            discovery::resource_list(&server.registry, &group, &version).ok_or_else(Status::no_such_resource)?
        }
        _ => return Err(Status::no_such_resource()),
    };
    Ok(respond::value(StatusCode::OK, accept()?.text, &document))
}

fn health(check: &str, query: &Query) -> Answer {
    let text = match query.flag("verbose") {
        Some(true) => format!("[+]ping ok\n[+]storage ok\n{check} check passed\n"),
        _ => "ok".into(),
    };
    respond::plain(StatusCode::OK, text)
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.0-kubewright"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
