//! Versions that another API server serves.

use std::{convert::Infallible, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kubewright_apiserver::{ApiServer, ListenOptions, UserInfo};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use crate::{admission::create, raw::send};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.ext.example.com";

/// A request as the other server got it.
#[derive(Clone, Debug)]
struct Seen {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Seen {
    fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// Another API server. It accepts connections with a certificate of the front proxy only.
struct Extension {
    port: u16,
    authority: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Extension {
    /// Starts a server that trusts the front proxy of an API server, as its ConfigMap describes it.
    async fn start(api: &ApiServer) -> Self {
        let path = "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let config = send(api, path, &[], "").await.json();
        let front_proxy = config["data"]["requestheader-client-ca-file"].as_str().unwrap();
        assert_eq!(config["data"]["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(front_proxy.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["ext.default.svc".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), seen.clone()));
        Self { port, authority: STANDARD.encode(certificate.pem()), seen, task }
    }

    /// Returns the requests since the last call, except for those of checks.
    fn seen(&self) -> Vec<Seen> {
        let all = std::mem::take(&mut *self.seen.lock());
        all.into_iter().filter(|one| one.all("x-remote-user") != ["system:kube-aggregator"]).collect()
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        tasks.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| answer(request, &seen));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: &Mutex<Vec<Seen>>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (parts, body) = request.into_parts();
    let line = format!("{} {}", parts.method, parts.uri);
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let body = body.collect().await.unwrap().to_bytes();
    seen.lock().push(Seen { line, headers, body: String::from_utf8_lossy(&body).into_owned() });
    let verbs = json!(["create", "get", "list", "watch"]);
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ext.example.com/v1", "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": verbs},
    ]});
    let open_api = json!({"paths": {"apis/ext.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/ext.example.com/v1?hash=X"}}});
    let whole = |code: StatusCode, value: Value| (code, Full::from(value.to_string()).boxed());
    let (code, body) = match parts.uri.path() {
        "/apis/ext.example.com/v1" => whole(StatusCode::OK, list),
        "/openapi/v3" => whole(StatusCode::OK, open_api),
        "/openapi/v3/apis/ext.example.com/v1" => whole(StatusCode::OK, json!({"openapi": "3.0.0"})),
        _ if parts.uri.query().is_some_and(|query| query.contains("watch=true")) => {
            // An event, and a stream that never ends.
            let event = Ok::<_, Infallible>(Frame::data(Bytes::from("{\"type\":\"ADDED\",\"object\":{}}\n")));
            (StatusCode::OK, BodyExt::boxed(StreamBody::new(stream::iter([event]).chain(stream::pending()))))
        }
        "/apis/ext.example.com/v1/namespaces/default/things" => whole(StatusCode::CREATED, json!({"kind": "Thing"})),
        _ => whole(StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404})),
    };
    let response = Response::builder().status(code).header("content-type", "application/json").body(body);
    Ok(response.unwrap())
}

/// Starts a server whose ConfigMap is published.
async fn start() -> (ApiServer, kubewright_apiserver::Listener) {
    let api = ApiServer::builder().build();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    (api, listener)
}

fn api_service(port: u16, more: Value) -> Value {
    let mut spec = json!({
        "group": "ext.example.com", "version": "v1", "groupPriorityMinimum": 17_900, "versionPriority": 15,
        "service": {"namespace": "default", "name": "ext", "port": port},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": NAME}, "spec": spec})
}

/// Creates the Service by which the other server is found, by an external name.
async fn external_name(api: &ApiServer) {
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(create(api, "/api/v1/namespaces/default/services", service).await.code, 201);
}

/// Checks the APIService, and writes the result to its status, as the controller of the cluster does.
async fn check(api: &ApiServer) -> (bool, &'static str, String) {
    let found = api.aggregation().check(NAME).await.unwrap();
    let status = if found.is_available { "True" } else { "False" };
    let condition = json!({"type": "Available", "status": status, "reason": found.reason, "message": found.message});
    let body = json!({"status": {"conditions": [condition]}}).to_string();
    let merge = "Content-Type: application/merge-patch+json";
    assert_eq!(send(api, &format!("PATCH {SERVICES}/{NAME}/status"), &[merge], body).await.code, 200);
    (found.is_available, found.reason, found.message)
}

#[tokio::test]
async fn requests_reach_the_server_of_their_version_with_the_user() {
    let (api, _listener) = start().await;
    let extension = Extension::start(&api).await;
    external_name(&api).await;
    let service = api_service(extension.port, json!({"caBundle": extension.authority}));
    assert_eq!(create(&api, SERVICES, service).await.code, 201);

    let path = "/apis/ext.example.com/v1/namespaces/default/things";
    let early = send(&api, &format!("GET {path}"), &[], "").await;
    assert_eq!((early.code, early.text.as_str()), (503, "service unavailable\n"));
    assert_eq!(early.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(check(&api).await, (true, "Passed", "all checks passed".to_owned()));
    extension.seen();

    let headers = ["X-Remote-User: mallory", "X-Remote-Group: system:masters", "X-Remote-Extra-A: b", "X-Mine: 1"];
    let created = send(&api, &format!("POST {path}?dryRun=All"), &headers, r#"{"a":1}"#).await;
    assert_eq!((created.code, created.json()["kind"].as_str()), (201, Some("Thing")));
    let seen = extension.seen().pop().unwrap();
    assert_eq!((seen.line.as_str(), seen.body.as_str()), (format!("POST {path}?dryRun=All").as_str(), r#"{"a":1}"#));
    assert_eq!(seen.all("x-remote-user"), ["system:admin"]);
    assert_eq!(seen.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!((seen.all("x-remote-extra-a"), seen.all("x-mine")), (vec![], vec!["1"]));
    assert!(seen.all("authorization").is_empty());
    let missing = send(&api, "GET /apis/ext.example.com/v1/none", &[], "").await;
    assert_eq!((missing.code, missing.json()["kind"].as_str()), (404, Some("Status")));

    // Without permission here, the other server isn't asked.
    extension.seen();
    let mut request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
    request.extensions_mut().insert(Arc::new(UserInfo::new("jane", ["system:authenticated"])));
    assert_eq!(api.handle(request).await.status(), 403);
    assert!(extension.seen().is_empty());
}

#[tokio::test]
async fn watches_are_streamed() {
    let (api, _listener) = start().await;
    let extension = Extension::start(&api).await;
    external_name(&api).await;
    let service = api_service(extension.port, json!({"insecureSkipTLSVerify": true}));
    assert_eq!(create(&api, SERVICES, service).await.code, 201);
    assert!(check(&api).await.0);
    let path = "/apis/ext.example.com/v1/things?watch=true";
    let mut request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
    request.extensions_mut().insert(Arc::new(UserInfo::admin()));
    let mut body = api.handle(request).await.into_body();
    let frame = tokio::time::timeout(Duration::from_secs(30), body.frame()).await.expect("an event");
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "{\"type\":\"ADDED\",\"object\":{}}\n");
}

#[tokio::test]
async fn discovery_and_open_api_are_merged() {
    const AGGREGATED: &str = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (api, _listener) = start().await;
    let extension = Extension::start(&api).await;
    external_name(&api).await;
    let service = api_service(extension.port, json!({"caBundle": extension.authority}));
    assert_eq!(create(&api, SERVICES, service).await.code, 201);

    let group = |document: &Value| document["items"][1].clone();
    let before = group(&send(&api, "GET /apis", &[AGGREGATED], "").await.json());
    assert_eq!(before["versions"], json!([{"version": "v1", "resources": [], "freshness": "Stale"}]));
    assert!(check(&api).await.0);
    let group = group(&send(&api, "GET /apis", &[AGGREGATED], "").await.json());
    assert_eq!(group["metadata"]["name"], "ext.example.com", "after apiregistration.k8s.io, before apps");
    assert_eq!(group["versions"][0]["freshness"], "Current");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "things");
    let plain = send(&api, "GET /apis", &["Accept: application/json"], "").await.json();
    assert_eq!(plain["groups"][1]["preferredVersion"], json!({"groupVersion": "ext.example.com/v1", "version": "v1"}));
    assert_eq!(send(&api, "GET /apis/ext.example.com", &[], "").await.json()["kind"], "APIGroup");
    assert_eq!(send(&api, "GET /apis/ext.example.com/v1", &[], "").await.json()["resources"][0]["kind"], "Thing");

    let index = send(&api, "GET /openapi/v3", &[], "").await.json();
    let address = index["paths"]["apis/ext.example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert_eq!(send(&api, &format!("GET {address}"), &[], "").await.json(), json!({"openapi": "3.0.0"}));
    assert!(index["paths"]["apis/apps/v1"].is_object());

    assert_eq!(send(&api, &format!("DELETE {SERVICES}/{NAME}"), &[], "").await.code, 200);
    assert_eq!(send(&api, "GET /apis/ext.example.com/v1", &[], "").await.code, 404);
    assert_eq!(send(&api, "GET /apis/ext.example.com", &[], "").await.code, 404);
}

#[tokio::test]
async fn an_unavailable_server_is_reported_with_the_reason() {
    let (api, _listener) = start().await;
    let extension = Extension::start(&api).await;
    let service = api_service(extension.port, json!({}));
    assert_eq!(create(&api, SERVICES, service).await.code, 201);
    let missing = |reason, message: String| (false, reason, message);
    let shown = "service/ext in \"default\"";
    assert_eq!(check(&api).await, missing("ServiceNotFound", format!("{shown} is not present")));

    let services = "/api/v1/namespaces/default/services";
    let mut service = json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 1}]}});
    assert_eq!(create(&api, services, service.clone()).await.code, 201);
    let message = format!("{shown} is not listening on port {}", extension.port);
    assert_eq!(check(&api).await, missing("ServicePortError", message));
    assert_eq!(send(&api, &format!("DELETE {services}/ext"), &[], "").await.code, 200);
    service["spec"]["ports"][0]["port"] = extension.port.into();
    assert_eq!(create(&api, services, service).await.code, 201);
    let message = format!("cannot find endpointslices for {shown}");
    assert_eq!(check(&api).await, missing("EndpointsNotFound", message));

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = |name: &str, port: &str| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "ext"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": port, "port": extension.port}],
        })
    };
    assert_eq!(create(&api, slices, slice("a", "other")).await.code, 201);
    let message = format!("endpointslices for {shown} have no addresses with port name \"https\"");
    assert_eq!(check(&api).await, missing("MissingEndpoints", message));
    assert_eq!(create(&api, slices, slice("b", "https")).await.code, 201);
    let (available, reason, message) = check(&api).await;
    assert_eq!((available, reason), (false, "FailedDiscoveryCheck"), "{message}");
    let failure = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(
        message.starts_with("failing or missing response from https://") && message.ends_with(failure),
        "{message}"
    );

    let patch = json!({"spec": {"insecureSkipTLSVerify": true}}).to_string();
    let merge = "Content-Type: application/merge-patch+json";
    assert_eq!(send(&api, &format!("PATCH {SERVICES}/{NAME}"), &[merge], patch).await.code, 200);
    assert!(check(&api).await.0);
}
