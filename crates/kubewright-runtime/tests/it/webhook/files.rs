//! Certificates from a directory.

use std::{path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use kubewright_runtime::webhook::{Certificates, WebhookServer};

use super::scene::{Replica, Scene, until};

/// Writes a new certificate and its key, and returns the certificate.
fn renew(folder: &Path) -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["hook.test".into()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("my.crt"), certificate.pem()).unwrap();
    std::fs::write(folder.join("my.key"), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

async fn connect(replica: &Replica, trusted: &CertificateDer<'static>) -> std::io::Result<TlsStream<TcpStream>> {
    connect_as(replica, trusted, None).await
}

/// Connects with an optional client certificate and its key.
async fn connect_as(
    replica: &Replica,
    trusted: &CertificateDer<'static>,
    caller: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match caller {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(replica.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("hook.test").unwrap(), stream).await
}

/// Returns whether a request on this connection is answered.
async fn answers(stream: &mut TlsStream<TcpStream>) -> bool {
    let request = b"POST /validate--v1-configmap HTTP/1.1\r\nhost: hook.test\r\ncontent-length: 0\r\n\r\n";
    let mut answer = [0; 4096];
    // A client without access is rejected after the handshake.
    let Ok(()) = stream.write_all(request).await else { return false };
    let Ok(length) = stream.read(&mut answer).await else { return false };
    String::from_utf8_lossy(&answer[..length]).contains("request body is empty")
}

#[tokio::test]
async fn certificates_from_files_are_read_again_without_cutting_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let scene = Scene::new();
    let certificates =
        Certificates::Directory { path: path.clone(), certificate: "my.crt".into(), key: "my.key".into() };
    let replica = scene.start(|server| server.certificates(certificates));
    until("it listens", async || TcpStream::connect(replica.address).await.is_ok()).await;
    until("it is not ready without files", async || replica.check().await == Some(false)).await;
    assert!(replica.count("certwatcher_read_certificate_errors_total") >= 1.0);

    let first = renew(&path);
    until("it is ready", async || replica.is_ready().await).await;
    scene.install(&[replica.address]).await;
    let mut open = connect(&replica, &first).await.unwrap();
    assert!(answers(&mut open).await);

    let second = renew(&path);
    until("the new one is served", async || connect(&replica, &second).await.is_ok()).await;
    assert!(connect(&replica, &first).await.is_err(), "the old one is not");
    assert!(answers(&mut open).await, "the connection goes on");

    let errors = replica.count("certwatcher_read_certificate_errors_total");
    std::fs::write(path.join("my.key"), "garbage").unwrap();
    until("it is noticed", async || replica.count("certwatcher_read_certificate_errors_total") > errors).await;
    assert!(connect(&replica, &second).await.is_ok(), "the one before is still served");
    assert!(replica.is_ready().await);
    assert!(scene.secret().await.is_none(), "nothing is made here");
    let untouched = scene.bundles().await.iter().all(String::is_empty);
    assert!(untouched, "whom to trust is for those to say who write the files, such as cert-manager");
    replica.stop().await;
}

/// Returns an authority, and a certificate issued by it with its key.
fn authority() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["kube-apiserver".into()]).unwrap().signed_by(&own, &issuer).unwrap();
    (authority, certificate.der().clone(), PrivateKeyDer::try_from(own.serialize_der()).unwrap())
}

#[tokio::test]
async fn only_callers_with_a_certificate_of_the_given_authorities_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let server = renew(&path);
    let (authority, certificate, key) = self::authority();
    let (_, strange_certificate, strange_key) = self::authority();
    std::fs::write(path.join("callers.crt"), authority).unwrap();
    let scene = Scene::new();
    let certificates =
        Certificates::Directory { path: path.clone(), certificate: "my.crt".into(), key: "my.key".into() };
    let authorities = path.join("callers.crt");
    let replica = scene.start(|server| server.certificates(certificates).client_authorities(authorities));
    until("it is ready", async || replica.is_ready().await).await;

    let answered = async |caller| match connect_as(&replica, &server, caller).await {
        Ok(mut stream) => answers(&mut stream).await,
        Err(_) => false,
    };
    assert!(answered(Some((certificate, key))).await);
    assert!(!answered(Some((strange_certificate, strange_key))).await, "of another authority");
    assert!(!answered(None).await, "without one");
    replica.stop().await;

    for (name, text) in [("none.crt", None), ("empty.crt", Some(""))] {
        let file = path.join(name);
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let manager = scene.manager(WebhookServer::local().client_authorities(&file));
        let error = manager.run_until(std::future::pending::<()>()).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("--webhook-client-ca-path"), "{error}");
    }
}
