//! A webhook server over TLS whose responses a test sets.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// The response of a webhook.
pub(crate) enum Reply {
    /// A response to either kind of review. It gets the uid of its request if it has none.
    Response(Value),
    /// An arbitrary body.
    Raw(StatusCode, Vec<u8>),
    /// No response.
    Silence,
}

type Handler = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// A server that runs until it is dropped.
pub(crate) struct Hook {
    pub(crate) address: SocketAddr,
    pub(crate) authority: String,
    /// The requests so far, each with its path.
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hook {
    /// A server for localhost.
    pub(crate) async fn start(handler: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_as(&["127.0.0.1", "hook.default.svc"], handler).await
    }

    /// A server whose certificate is for these names.
    pub(crate) async fn start_as(
        names: &[&str],
        handler: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let handler: Arc<Handler> = Arc::new(handler);
        let task = tokio::spawn(serve(listener, config.into(), handler, seen.clone(), connections.clone()));
        Self { address, authority: STANDARD.encode(certificate.pem()), seen, connections, task }
    }

    /// Returns a `clientConfig` for this server.
    pub(crate) fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.authority})
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<Value> {
        std::mem::take(&mut *self.seen.lock()).into_iter().map(|(_, request)| request).collect()
    }

    /// Returns the paths of the requests since the last call.
    pub(crate) fn paths(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock()).into_iter().map(|(path, _)| path).collect()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    handler: Arc<Handler>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        stream.set_nodelay(true).unwrap();
        let (acceptor, handler, seen) = (TlsAcceptor::from(config.clone()), handler.clone(), seen.clone());
        let connections = connections.clone();
        tasks.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            connections.fetch_add(1, Ordering::Relaxed);
            let service = service_fn(|request| answer(request, &handler, &seen));
            // A client may break off its connection, which is not an error of this server.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    handler: &Arc<Handler>,
    seen: &Mutex<Vec<(String, Value)>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let (kind, version) = (&review["kind"], &review["apiVersion"]);
    match kind.as_str() {
        Some("AdmissionReview") => assert_eq!(version, "admission.k8s.io/v1"),
        _ => assert_eq!((kind, version), (&json!("ConversionReview"), &json!("apiextensions.k8s.io/v1"))),
    }
    let request = &review["request"];
    let reply = handler(&path, request);
    seen.lock().push((path, request.clone()));
    let (code, body) = match reply {
        Reply::Response(mut response) => {
            if response.get("uid").is_none() {
                response["uid"] = request["uid"].clone();
            }
            let review = json!({"kind": kind, "apiVersion": version, "response": response});
            (StatusCode::OK, review.to_string().into_bytes())
        }
        Reply::Raw(code, body) => (code, body),
        Reply::Silence => std::future::pending().await,
    };
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = code;
    Ok(answer)
}

/// Allows the request.
pub(crate) fn allow() -> Reply {
    Reply::Response(json!({"allowed": true}))
}

/// Allows the request, with a JSON patch.
pub(crate) fn patch(operations: &Value) -> Reply {
    let patch = STANDARD.encode(operations.to_string());
    Reply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Sets an annotation by a patch that works with or without other annotations.
pub(crate) fn annotate(request: &Value, key: &str, value: &str) -> Reply {
    let mut annotations = request["object"]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(key.into(), value.into());
    patch(&json!([{"op": "add", "path": "/metadata/annotations", "value": annotations}]))
}
