//! Requests between an operator and the API server: the lists that are answered from an older state.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Request, Response, Uri};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::time::sleep;
use tower::{BoxError, service_fn};

/// For how long an API server is behind.
const LAG: Duration = Duration::from_secs(60);

/// Returns a client of an API server whose watch cache is behind for custom kinds (`of_parents`) or for built-in ones: the first list of
/// each resource shows the state of this version, and watches begin late. Other requests aren't affected.
pub(super) fn behind(server: Client, version: String, of_parents: bool) -> Client {
    let (listed, namespace) = (Arc::new(Mutex::new(BTreeSet::new())), server.default_namespace().to_owned());
    let service = service_fn(move |mut request: Request<Body>| {
        let (server, listed, version) = (server.clone(), listed.clone(), version.clone());
        async move {
            let path = request.uri().path().to_owned();
            if path.contains("/bugs.kubewright.dev/") == of_parents {
                if is_watch(&request) {
                    sleep(LAG).await;
                } else if let Some(older) = older(&request, &version)
                    && listed.lock().insert(path)
                {
                    *request.uri_mut() = older;
                }
            }
            let answer: Response<Body> = server.send(request).await?;
            Ok::<_, BoxError>(answer)
        }
    });
    Client::new(service, namespace)
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().unwrap_or_default().contains("watch=")
}

/// Returns the address of the same list at this version, if the request is a first page.
fn older(request: &Request<Body>, version: &str) -> Option<Uri> {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    // Of a collection, whose last segment is a plural. Single objects are read without a limit.
    let is_list = request.method() == http::Method::GET && query.contains("limit=");
    let is_first = !query.contains("continue=") && !is_watch(request);
    let exact = format!("{}?{query}&resourceVersion={version}&resourceVersionMatch=Exact", uri.path());
    if is_list && is_first { exact.parse().ok() } else { None }
}
