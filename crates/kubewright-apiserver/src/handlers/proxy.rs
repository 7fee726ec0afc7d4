//! `/proxy`: requests to pods, services and nodes through the API server.

use std::num::NonZero;

use http::{HeaderValue, Method, StatusCode, header};
use kubewright_apimachinery::status::Status;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

use super::call::Call;
use crate::{
    body::Body,
    proxy::{self, Backend, Identifier, ProxyRequest},
    registry::Subresource,
    response::{self, Response},
};

/// The characters that are escaped in a path.
const PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`').add(b'{').add(b'}');

/// The methods that are sent on.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// Sends a request on to the object of a call. For a kubelet that is part of this process, an action answers.
pub(super) async fn proxy(mut call: Call, subresource: Subresource, name: &str) -> Result<Response, Status> {
    if !METHODS.contains(&call.parts.method) {
        return Err(Status::method_not_allowed());
    }
    call.check_connection()?;
    let (prefix, path) = split(&call);
    let mut options = json!({"kind": subresource.kind.2, "apiVersion": "v1"});
    if !path.is_empty() {
        options["path"] = path.as_str().into();
    }
    let admitted = call.admit_connection(&subresource, options.clone()).await?;
    let path = if admitted.object == options { path } else { changed_path(&options, &admitted.object)? };
    let (store, storage) = (&call.state.store, &call.resource.storage);
    let kubelets = &call.state.kubelets;
    let backend = (call.state.proxy_resolver)(store, kubelets, storage, &call.namespace, &call.name)?;
    let is_own = matches!(&backend, Backend::Kubelet(kubelet) if kubelet.is_own);
    let mut endpoint = backend.locate(kubelets).await?;
    // Browsers resolve the links of a page by its path.
    if path.is_empty() && matches!(call.parts.method, Method::GET | Method::HEAD) {
        return Ok(redirect(&call));
    }
    if is_own && let Some(action) = call.state.actions.find(&call.resource, name) {
        call.name = Identifier::parse(&call.resource.singular, &call.name)?.name.to_owned();
        let subresource = format!("{}{}", subresource.name, percent_decode_str(&path).decode_utf8_lossy());
        let mut response = action.call(call.into_action(&subresource)?).await?;
        response::add_warnings(&mut response, &admitted.warnings);
        return Ok(response);
    }
    if let Some(count) = NonZero::new(endpoint.addresses.len() as u64) {
        let first = usize::try_from(call.state.random.u64() % count).unwrap_or_default();
        endpoint.addresses.rotate_left(first);
    }
    let query = call.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = if path.is_empty() { format!("/{query}") } else { format!("{path}{query}") };
    let request = ProxyRequest { prefix, target, body: call.body, parts: call.parts };
    let mut response = proxy::forward(request, &endpoint).await?;
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

/// Splits the path of a request after `/proxy`. The rest isn't decoded.
fn split(call: &Call) -> (String, String) {
    let path = call.parts.uri.path();
    // `api`, `v1`, `namespaces` and the namespace if there is one, the resource, the name, `proxy`.
    let mut left = if call.resource.namespaced { 7 } else { 5 };
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
