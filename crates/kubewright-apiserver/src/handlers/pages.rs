//! `/statusz` and `/flagz`: what the server is, for people and as objects
//! (<https://kubernetes.io/docs/reference/instrumentation/zpages/>).

use http::{HeaderValue, StatusCode, header, request::Parts};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    response::{self, Accept, Page, Response},
    state::State,
    version::{MAJOR, MINOR},
};

const COMPONENT: &str = "apiserver";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";
/// The version of the compiler, in Go's place.
pub(super) const GO_VERSION: &str = "none";
/// The paths that `/statusz` lists.
const PATHS: [&str; 7] = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];

/// Returns `/statusz`.
pub(super) fn status(state: &State, parts: &Parts) -> Response {
    let started = state.started;
    let seconds = state.clock.now().as_second().saturating_sub(started.as_second()).max(0);
    let version = format!("{MAJOR}.{MINOR}");
    let text = || {
        let uptime = format!("{} hr {:02} min {:02} sec", seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!(
            "\nStarted: {}\nUp: {uptime}\nGo version: {GO_VERSION}\nBinary version: {version}\n\
             Emulation version: {version}\nPaths: {}\n",
            unix_date(started),
            PATHS.join(" ")
        )
    };
    respond(parts, "Statusz", text, || {
        json!({
            "startTime": crate::meta::time(started), "uptimeSeconds": seconds, "goVersion": GO_VERSION,
            "binaryVersion": version, "emulationVersion": version, "paths": PATHS,
        })
    })
}

/// Returns `/flagz`: those of kube-apiserver's flags that have a counterpart here.
pub(super) fn flags(state: &State, parts: &Parts) -> Response {
    let issuer = state.authenticator.open_id("")["issuer"].as_str().unwrap_or_default().to_owned();
    let flags = [
        ("allow-privileged", "true".to_owned()),
        ("anonymous-auth", "true".to_owned()),
        ("authorization-mode", "[RBAC]".to_owned()),
        ("enable-priority-and-fairness", "true".to_owned()),
        ("service-account-issuer", format!("[{issuer}]")),
    ];
    let text = || flags.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let object = || json!({"flags": flags.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<Map<_, _>>()});
    respond(parts, "Flagz", text, object)
}

/// Returns a page as the client accepts it: as text, or as an object of a kind.
fn respond(parts: &Parts, kind: &str, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) -> Response {
    let page = match Accept::of_page(&parts.headers, kind) {
        Ok(page) => page,
        Err(status) => return response::error(&parts.headers, &status),
    };
    let Page::Object { encoding, version } = page else {
        let title = format!("\n{COMPONENT} {}\n{WARNING}\n", kind.to_ascii_lowercase());
        return response::plain(StatusCode::OK, title + &text());
    };
    let mut document = object();
    document["kind"] = kind.into();
    document["apiVersion"] = format!("{}/{version}", response::PAGE_GROUP).into();
    document["metadata"] = json!({"name": COMPONENT});
    let mut response = response::value(StatusCode::OK, encoding, &document);
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = format!("{};g={};v={version};as={kind}", media_type.unwrap_or_default(), response::PAGE_GROUP);
    if let Ok(content_type) = HeaderValue::from_str(&content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    if version != response::PAGE_VERSIONS[0] {
        let warning = format!(
            "This version of the {} endpoint is deprecated. Please use a newer version.",
            kind.to_ascii_lowercase()
        );
        response::add_warnings(&mut response, &[warning]);
    }
    response
}

/// Returns a time as `date` prints it.
fn unix_date(time: Timestamp) -> String {
    time.strftime("%a %b %e %H:%M:%S UTC %Y").to_string()
}
