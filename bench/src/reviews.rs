//! The admission reviews that a webhook server answers on one processor: the runtime's, and controller-runtime's.

use std::{convert::Infallible, fs, net::SocketAddr, path::Path, process::Command, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use kubewright::{
    prelude::{Manager, Validator, Webhook},
    probe::BindAddress,
    webhook::{self, Certificates, Denied, ValidationErrors, WebhookServer},
};
use kubewright_apimachinery::clock::SharedClock;
use podset_operator::api::app::v1alpha1::PodSet;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};
use serde_json::{Value, json};
use tokio::{net::TcpStream, signal::unix, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::{
    go::{self, each, median},
    kubernetes::free_port,
    process::Process,
    report::{Limit, Outcome},
    sizes::Sizes,
};

/// The number of connections, each with one review at a time.
const CONNECTIONS: usize = 16;
/// The path of both servers.
const PATH: &str = "/validate-app-example-com-v1alpha1-podset";
/// The timeout for a server to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The measurements of one server.
struct Run {
    /// Reviews by CPU-second of the server.
    by_cpu: f64,
    /// Reviews by second.
    by_time: f64,
    peak: f64,
}

/// Compares the runtime's webhook server with that of controller-runtime.
pub(crate) async fn beside_go(peer: &Path, sizes: &Sizes, clock: &SharedClock) -> Result<Vec<Outcome>> {
    let certificates = tempfile::tempdir().context("make a directory")?;
    let key = KeyPair::generate().context("make a key")?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
    fs::write(certificates.path().join("tls.key"), key.serialize_pem()).context("write a key")?;
    fs::write(certificates.path().join("tls.crt"), certificate.pem()).context("write a certificate")?;
    let connector = connector(certificate.der())?;
    let ours = std::env::current_exe().context("find this program")?;
    let ours = ours.as_path();
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..sizes.rounds {
        for turn in go::turns(2, round) {
            let port = free_port()?;
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", "0"]).arg(if turn == 0 { ours } else { peer });
            if turn == 0 {
                command.arg("--serve-reviews").arg(certificates.path()).arg("--serve-port");
            } else {
                command.arg("--certificates").arg(certificates.path()).arg("--port");
            }
            command.arg(port.to_string());
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let run = measure(command, address, &connector, sizes.reviewed, clock).await;
            rounds[turn].push(run.context(if turn == 0 { "our server" } else { "the server in Go" })?);
        }
    }
    let [ours, theirs] = &rounds;
    let [our, their] = [ours, theirs].map(|rounds| median(rounds, |run| run.by_cpu));
    Ok(vec![Outcome {
        name: "reviews-go",
        figure: our / their,
        unit: "times",
        limit: Limit::AtLeast(3.0),
        details: format!(
            "{our:.0} reviews by CPU-second, {:.0} a second, {:.1} MiB at the peak; controller-runtime {their:.0}, {:.0}, {:.1} MiB; rounds {} and {}",
            median(ours, |run| run.by_time),
            median(ours, |run| run.peak),
            median(theirs, |run| run.by_time),
            median(theirs, |run| run.peak),
            each(ours, |run| run.by_cpu),
            each(theirs, |run| run.by_cpu),
        ),
        method: "A webhook server validates PodSets: a manager of Kubewright, and one of controller-runtime 0.25 \
                 (`bench/peers/controller-runtime/webhook-go`), each in a process that may use one processor only (`taskset`). 16 connections (TLS 1.3, \
                 HTTP/1.1) send a review of 1.4 KB, one after the other each, for ten seconds; three rounds in turns. The figure is the number of \
                 reviews by CPU-second of the server, Kubewright's median divided by that of the peer: the rate by second also depends on how fast \
                 the reviews are sent.",
    }])
}

/// Serves reviews until the process is asked to end.
pub(crate) async fn serve(certificates: &Path, port: u16) -> Result<()> {
    let files =
        Certificates::Directory { path: certificates.to_owned(), certificate: "tls.crt".into(), key: "tls.key".into() };
    let server = WebhookServer::new(BindAddress::Host("127.0.0.1".into(), port)).certificates(files);
    // Nothing asks for the cluster.
    let nowhere = tower::service_fn(|_: Request<Body>| async {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
        Ok::<_, Infallible>(response)
    });
    let mut terminate = unix::signal(unix::SignalKind::terminate()).context("listen for SIGTERM")?;
    let manager = Manager::new(Client::new(nowhere, "default"))
        .webhook(Webhook::<PodSet>::new().validating(Limits))
        .webhook_server(server);
    manager.run_until(async move { terminate.recv().await.unwrap_or_default() }).await.context("run the manager")
}

/// Allows one to ten pods, and names that pods can be named after, as the peer does.
struct Limits;

impl Validator<PodSet> for Limits {
    async fn validate_create(&self, set: &PodSet, _: &webhook::Request) -> Result<ValidationErrors, Denied> {
        let mut errors = ValidationErrors::default();
        if !(1..=10).contains(&set.spec.replicas) {
            errors.invalid("spec.replicas", set.spec.replicas, "must be between 1 and 10");
        }
        let name = set.metadata.name.as_deref().unwrap_or_default();
        if name.len() > 58 {
            errors.invalid("metadata.name", name, "must have at most 58 bytes");
        }
        Ok(errors)
    }
}

/// Starts a server on one processor, and sends reviews to it.
async fn measure(
    mut command: Command,
    address: SocketAddr,
    connector: &TlsConnector,
    span: Duration,
    clock: &SharedClock,
) -> Result<Run> {
    let mut server = Process::start(command.env("KUBEWRIGHT_LOG", "warn"))?;
    let listening = async {
        loop {
            server.check()?;
            if let Ok(connection) = connect(address, connector).await {
                return anyhow::Ok(connection);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut first = tokio::time::timeout(PATIENCE, listening).await.context("the server doesn't listen")??;
    for (replicas, is_allowed) in [(3, true), (11, false)] {
        let answer: Value =
            serde_json::from_slice(&send(&mut first, review(replicas)).await?).context("read a review")?;
        let allowed = answer["response"]["allowed"].as_bool();
        ensure!(allowed == Some(is_allowed), "a PodSet of {replicas} pods was answered with {answer}");
    }
    let mut connections = vec![first];
    while connections.len() < CONNECTIONS {
        connections.push(connect(address, connector).await.context("connect to the server")?);
    }
    let (before, begun) = (server.cpu_seconds()?, clock.monotonic());
    let mut callers = JoinSet::new();
    for mut connection in connections {
        let (clock, body) = (clock.clone(), review(3));
        callers.spawn(async move {
            let mut count = 0_usize;
            while clock.monotonic().saturating_sub(begun) < span {
                send(&mut connection, body.clone()).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(caller) = callers.join_next().await {
        count += caller.context("a caller panicked")?.context("send reviews")?;
    }
    let took = clock.monotonic().saturating_sub(begun).as_secs_f64();
    let (cpu, peak) = (server.cpu_seconds()? - before, server.peak_mebibytes()?);
    server.end()?;
    Ok(Run { by_cpu: count as f64 / cpu, by_time: count as f64 / took, peak })
}

fn connector(authority: &CertificateDer<'_>) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned()).context("trust the servers")?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.context("connect")?;
    stream.set_nodelay(true).context("set an option of a connection")?;
    let stream = connector.connect(address.ip().into(), stream).await.context("agree on TLS")?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("agree on HTTP")?;
    // An error ends the requests, which report it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn send(connection: &mut SendRequest<Full<Bytes>>, body: Bytes) -> Result<Bytes> {
    connection.ready().await.context("the connection has ended")?;
    let request = Request::post(format!("{PATH}?timeout=10s"))
        .header("host", "127.0.0.1")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body))
        .context("make a request")?;
    let response = connection.send_request(request).await.context("send a review")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("read an answer")?.to_bytes();
    if status != StatusCode::OK {
        bail!("a review was answered with {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body)
}

/// Returns the review of a PodSet's creation, as an API server sends it.
fn review(replicas: i32) -> Bytes {
    let kind = json!({"group": "app.example.com", "version": "v1alpha1", "kind": "PodSet"});
    let resource = json!({"group": "app.example.com", "version": "v1alpha1", "resource": "podsets"});
    let object = json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "8f2c3b8e-30f5-4c8e-9e0e-1a6f0d1c1a11", "generation": 1,
            "creationTimestamp": "2026-01-30T10:00:00Z", "labels": {"app": "web", "team": "front"},
            "annotations": {"example.com/note": "created by the release pipeline of the team, run 4711"},
            "managedFields": [{
                "manager": "kubectl-create", "operation": "Update", "apiVersion": "app.example.com/v1alpha1",
                "time": "2026-01-30T10:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:annotations": {".": {}, "f:example.com/note": {}}, "f:labels": {".": {}, "f:app": {}, "f:team": {}}},
                    "f:spec": {".": {}, "f:replicas": {}},
                },
            }],
        },
        "spec": {"replicas": replicas},
    });
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": "web", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"},
        },
    });
    Bytes::from(review.to_string())
}
