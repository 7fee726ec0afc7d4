//! The metrics server on a socket with TLS, with service account tokens.

use std::sync::Arc;

use axum::routing::get;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::PostParams};
use kubewright_apimachinery::clock::{SystemClock, VirtualClock};
use kubewright_apiserver::ApiServer;
use kubewright_apiserver::UserInfo;
use kubewright_cluster::faults::Faults;
use kubewright_connect::crypto_provider;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::TlsVersion;

struct Scene {
    api: ApiServer,
    client: Client,
    metrics: Metrics,
    clock: SharedClock,
    /// Records the requests; no faults are injected.
    faults: Faults,
}

impl Scene {
    fn new() -> Self {
        let clock = SystemClock::shared();
        let api = ApiServer::builder().clock(clock.clone()).build();
        let (client, metrics) = (api.client(), Metrics::new(clock.clone()));
        Self { api, client, metrics, clock, faults: Faults::new() }
    }

    /// Returns the number of token and access reviews sent to the API server.
    fn reviews(&self) -> usize {
        self.faults.requests().iter().filter(|seen| seen.request.resource.ends_with("reviews")).count()
    }

    async fn serve(&self, server: MetricsServer) -> Running {
        let handlers = vec![("/extra".to_owned(), get(async || "more"))];
        let traces = axum::Router::new().route("/debug/traces", get(async || "traces"));
        let running = server
            .start(&self.metrics, handlers, traces, &self.faults.client(&self.client), &self.clock)
            .await
            .unwrap();
        running.expect("it is enabled")
    }

    /// Creates a service account, with or without permission to read metrics, and returns a token for it.
    async fn token(&self, name: &str, may: bool) -> String {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), "default");
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        if may {
            let role = json!({"metadata": {"name": "metrics-reader"}, "rules": [{"nonResourceURLs": ["/metrics", "/debug/traces"], "verbs": ["get"]}]});
            let roles = Api::<ClusterRole>::all(self.client.clone());
            roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
            let binding = json!({
                "metadata": {"name": "metrics-reader"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            });
            let bindings = Api::<ClusterRoleBinding>::all(self.client.clone());
            bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        }
        let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
        let made = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token.unwrap()
    }
}

/// Returns a TLS connector that trusts only this certificate.
fn trust(certificate: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Accepts any certificate, as `curl --insecure` does.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the status code and the text of a response.
async fn fetch(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, token: Option<&str>) -> (u16, String) {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Some responses end without a TLS close.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let code = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[tokio::test]
async fn a_guarded_server_requires_a_token_and_the_right() {
    let scene = Scene::new();
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(directory.path().join("tls.crt"), made.pem()).unwrap();
    std::fs::write(directory.path().join("tls.key"), key.serialize_pem()).unwrap();
    let (certificate, key) = ("tls.crt".to_owned(), "tls.key".to_owned());
    let certificates = Certificates::Directory { path: directory.path().into(), certificate, key };
    let address = "127.0.0.1:0".parse().unwrap();
    let running = scene.serve(MetricsServer::new(address).tls(certificates).guarded(true)).await;
    let connector = trust(made.der());
    let address = running.server.address();
    let get = async |path: &str, token: Option<&str>| {
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        fetch(stream, path, token).await
    };

    assert_eq!(get("/metrics", None).await, (401, "Unauthorized".into()));
    assert_eq!(get("/metrics", Some("nonsense")).await.0, 401);
    let (stranger, reader) = (scene.token("stranger", false).await, scene.token("reader", true).await);
    let denied = "Authorization denied for user system:serviceaccount:default:stranger";
    assert_eq!(get("/metrics", Some(&stranger)).await, (403, denied.into()));
    let (code, text) = get("/metrics", Some(&reader)).await;
    assert!(code == 200 && text.contains("certwatcher_read_certificate_total 1"), "{code} {text}");
    assert_eq!(get("/extra", Some(&reader)).await.0, 403, "the role doesn't name the path");
    assert_eq!(get("/debug/traces", Some(&reader)).await, (200, "traces".into()));
    assert_eq!(get("/debug/traces", None).await.0, 401);

    // Cached results aren't requested again.
    let asked = scene.reviews();
    assert!(asked >= 6, "{asked}");
    for token in [&reader, &stranger] {
        get("/metrics", Some(token)).await;
    }
    assert_eq!(scene.reviews(), asked);
    running.shutdown().await;
}

#[tokio::test]
async fn an_unguarded_server_answers_everyone_and_never_serves_traces() {
    let scene = Scene::new();
    let address: BindAddress = "127.0.0.1:0".parse().unwrap();
    let plain = scene.serve(MetricsServer::new(address.clone())).await;
    let stream = TcpStream::connect(plain.server.address()).await.unwrap();
    assert_eq!(fetch(stream, "/extra", None).await, (200, "more".into()));
    let stream = TcpStream::connect(plain.server.address()).await.unwrap();
    assert_eq!(fetch(stream, "/debug/traces", None).await.0, 404, "traces are served only behind authentication");
    plain.shutdown().await;

    let secure = scene.serve(MetricsServer::new(address).tls(Certificates::SelfManaged)).await;
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified)).with_no_client_auth();
    let stream = TcpStream::connect(secure.server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(fetch(stream, "/extra", None).await, (200, "more".into()));
    secure.shutdown().await;
}

#[tokio::test]
async fn only_the_allowed_tls_versions_are_agreed_to() {
    let scene = Scene::new();
    let server = MetricsServer::new("127.0.0.1:0".parse().unwrap()).tls(Certificates::SelfManaged);
    let server = scene.serve(server.tls_options(TlsOptions::new().min_version(TlsVersion::Tls13))).await;
    let connect = async |version| {
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto_provider()));
        let builder = builder.with_protocol_versions(&[version]).unwrap().dangerous();
        let config = builder.with_custom_certificate_verifier(Arc::new(Unverified)).with_no_client_auth();
        let stream = TcpStream::connect(server.server.address()).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    };
    let stream = connect(&rustls::version::TLS13).await.unwrap();
    assert_eq!(fetch(stream, "/extra", None).await.0, 200);
    let error = connect(&rustls::version::TLS12).await.expect_err("it is too old").to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
    server.shutdown().await;
}

#[tokio::test]
async fn requests_are_denied_while_tokens_cannot_be_reviewed() {
    let scene = Scene::new();
    // The operator itself lacks permission to create reviews.
    let nobody = UserInfo::new("operator", [""; 0]);
    let scene = Scene { client: scene.api.client_of(nobody), ..scene };
    let address = "127.0.0.1:0".parse().unwrap();
    let running = scene.serve(MetricsServer::new(address).guarded(true)).await;
    let stream = TcpStream::connect(running.server.address()).await.unwrap();
    assert_eq!(fetch(stream, "/metrics", Some("anything")).await, (500, "Authentication failed".into()));
    running.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_self_signed_certificate_is_renewed_before_it_expires() {
    let virtual_clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (resolver, clock): (_, SharedClock) = (CertResolver::new("metrics"), virtual_clock);
    let own = make(&resolver, None, &clock);
    let first = resolver.get().unwrap().not_after();
    let rotator = tokio::spawn(renew(resolver.clone(), own, clock.clone()));
    while clock.now() <= first {
        assert!(resolver.get().unwrap().is_valid_at(clock.now()), "at {}", clock.now());
        tokio::time::sleep(Duration::from_secs(6 * 3600)).await;
    }
    let second = resolver.get().unwrap();
    assert!(second.not_after() > first && second.is_valid_at(clock.now()));
    rotator.abort();
}
