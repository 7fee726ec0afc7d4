//! `/proxy`: requests to pods, services and nodes through the API server.

use std::num::NonZero;

use http::{HeaderValue, Method, StatusCode, header};
use kubewright_apimachinery::status::Status;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::call::Call;
use crate::{
    body::Body,
    proxy::{self, Identifier, ProxyRequest},
    registry::Subresource,
    response::{self, Response},
};

/// The port of the kubelet, for which actions answer.
const KUBELET_PORT: &str = "10250";
/// The characters that are escaped in a path.
const PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`').add(b'{').add(b'}');

/// The methods that are sent on.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// Sends a request on to the object of a call.
pub(super) async fn proxy(call: Call, subresource: &Subresource) -> Result<Response, Status> {
    if !METHODS.contains(&call.parts.method) {
        return Err(Status::method_not_allowed());
    }
    let (prefix, path) = split(&call);
    let mut options = json!({"kind": subresource.kind.2, "apiVersion": "v1"});
    if !path.is_empty() {
        options["path"] = path.as_str().into();
    }
    let admitted = call.admit_connection(subresource, options.clone()).await?;
    let path = if admitted.object == options { path } else { changed_path(&options, &admitted.object)? };
    let (store, storage) = (&call.state.store, &call.resource.storage);
    let mut backend = (call.state.proxy_resolver)(store, storage, &call.namespace, &call.name)?;
    // Browsers resolve the links of a page by its path.
    if path.is_empty() && matches!(call.parts.method, Method::GET | Method::HEAD) {
        return Ok(redirect(&call));
    }
    if let Some(count) = NonZero::new(backend.addresses.len() as u64) {
        let first = usize::try_from(call.state.random.u64() % count).unwrap_or_default();
        backend.addresses.rotate_left(first);
    }
    let query = call.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = if path.is_empty() { format!("/{query}") } else { format!("{path}{query}") };
    let request = ProxyRequest { prefix, target, body: call.body, parts: call.parts };
    let mut response = proxy::forward(request, &backend).await?;
    response::add_warnings(&mut response, &admitted.warnings);
    Ok(response)
}

/// Returns the path of the options of a connection that admission has changed.
fn changed_path(before: &Value, after: &Value) -> Result<String, Status> {
    let others = |options: &Value| {
        let mut fields = options.as_object().cloned().unwrap_or_default();
        fields.remove("path");
        fields
    };
    if others(before) != others(after) {
        return Err(Status::internal("an admission webhook attempted to modify the options of a connection"));
    }
    let path = after["path"].as_str().unwrap_or_default();
    let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
    Ok(format!("{slash}{}", utf8_percent_encode(path, PATH)))
}

/// Finds the object of an action that answers for a server, such as a node's `proxy`: the identifier in the path may have the scheme and
/// the port of the server.
pub(super) fn find_object(mut call: Call) -> Result<Call, Status> {
    let identifier = std::mem::take(&mut call.name);
    let Identifier { name, port, .. } = Identifier::parse(&call.resource.singular, &identifier)?;
    call.name = name.to_owned();
    call.present()?;
    if !matches!(port, "" | KUBELET_PORT) {
        let why = format!("error trying to reach service: nothing listens on port {port} of {name:?}");
        return Err(Status::new(503, "ServiceUnavailable", why));
    }
    Ok(call)
}

/// Splits the path of a request after `/proxy`. The rest isn't decoded.
fn split(call: &Call) -> (String, String) {
    let path = call.parts.uri.path();
    // `api`, `v1`, `namespaces`, the namespace, the resource, the name, `proxy`.
    let mut left = 7;
    let mut inside = false;
    for (index, byte) in path.bytes().enumerate() {
        if byte == b'/' && inside {
            left -= 1;
            if left == 0 {
                return (path[..index].to_owned(), path[index..].to_owned());
            }
        }
        inside = byte != b'/';
    }
    (path.to_owned(), String::new())
}

fn redirect(call: &Call) -> Response {
    let uri = &call.parts.uri;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
