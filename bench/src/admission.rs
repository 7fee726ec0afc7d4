//! The latency that an admission webhook adds to a write.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap},
};
use kube::{Api, Client, api::PostParams};
use kubewright::{
    prelude::{Manager, Validator, Webhook},
    webhook::{self, Denied, ValidationErrors, WebhookServer},
};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::{
    creates,
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// Creates objects one after the other, without a webhook and with a webhook that allows everything.
pub(crate) async fn round_trip(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = creates::client(&listener.kubeconfig()).await?;
    let mut tasks = JoinSet::new();
    let (address, authority) = webhook(&mut tasks).await?;
    let mut without = writes(&client, "without", sizes, &clock).await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations.create(&PostParams::default(), &configuration(address, authority)?).await?;
    let mut with = writes(&client, "with", sizes, &clock).await?;
    cluster.shutdown().await;
    let [plain, asked] = [&mut without, &mut with].map(|spans| milliseconds(percentile(spans, 50)));
    let slowest = milliseconds(percentile(&mut with, 99));
    Ok(Outcome {
        name: "admission",
        figure: asked - plain,
        unit: "ms",
        limit: Limit::AtMost(2.0),
        details: format!(
            "a create took {plain:.2} ms at p50 without a webhook, {asked:.2} ms with one, {slowest:.2} ms at p99"
        ),
        method: "One caller of kube's typed client creates 1,000 ConfigMaps one after the other over TLS on loopback, then 1,000 \
                 more with a validating webhook that allows them and is also called over TLS on loopback. The figure is the \
                 difference of the medians.",
    })
}

/// A webhook that allows everything.
struct Allows;

impl Validator<ConfigMap> for Allows {
    async fn validate_create(&self, _: &ConfigMap, _: &webhook::Request) -> Result<ValidationErrors, Denied> {
        Ok(ValidationErrors::default())
    }
}

/// Measures the same with the runtime's webhook server, which maintains its own certificate.
pub(crate) async fn by_the_runtime(sizes: &Sizes, clock: SharedClock) -> Result<Outcome> {
    let cluster =
        Cluster::builder().clock(clock.clone()).pods(Pods::None).start().await.context("start the cluster")?;
    let listener = cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("listen")?;
    let client = creates::client(&listener.kubeconfig()).await?;
    let mut without = writes(&client, "without", sizes, &clock).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(client.clone())
        .clock(clock.clone())
        .webhook(Webhook::<ConfigMap>::new().validating(Allows))
        .webhook_server(WebhookServer::local().name("bench"));
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let installed = async {
        while configurations.get_opt("bench-validating-webhook-configuration").await?.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<_, kube::Error>(())
    };
    tokio::time::timeout(Duration::from_secs(60), installed).await.context("the webhook is not there after 60 s")??;
    let mut with = writes(&client, "with", sizes, &clock).await?;
    // The receiver may be gone if the manager ended early; its own result says why.
    let _ = stop.send(());
    manager.await.context("the manager panicked")?.context("run the manager")?;
    cluster.shutdown().await;
    let [plain, asked] = [&mut without, &mut with].map(|spans| milliseconds(percentile(spans, 50)));
    let slowest = milliseconds(percentile(&mut with, 99));
    Ok(Outcome {
        name: "admission-runtime",
        figure: asked - plain,
        unit: "ms",
        limit: Limit::AtMost(2.0),
        details: format!(
            "a create took {plain:.2} ms at p50 without a webhook, {asked:.2} ms with one, {slowest:.2} ms at p99"
        ),
        method: "Like admission, with a typed validator on the runtime's webhook server in the same process.",
    })
}

async fn writes(client: &Client, prefix: &str, sizes: &Sizes, clock: &SharedClock) -> Result<Vec<Duration>> {
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut spans = Vec::with_capacity(sizes.admission_writes);
    for number in 0..sizes.admission_writes {
        let mut config = ConfigMap::default();
        config.metadata.name = Some(format!("{prefix}-{number}"));
        let sent = clock.monotonic();
        configs.create(&PostParams::default(), &config).await.context("create a config map")?;
        spans.push(clock.monotonic().saturating_sub(sent));
    }
    Ok(spans)
}

fn configuration(address: SocketAddr, authority: String) -> Result<ValidatingWebhookConfiguration> {
    let configuration = json!({"metadata": {"name": "bench"}, "webhooks": [{
        "name": "allow.bench.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://{address}/"), "caBundle": ByteString(authority.into_bytes())},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }]});
    serde_json::from_value(configuration).context("make the configuration")
}

/// Starts a webhook on loopback that allows everything, and returns its address and its certificate in PEM.
async fn webhook(tasks: &mut JoinSet<()>) -> Result<(SocketAddr, String)> {
    let key = KeyPair::generate().context("make a key")?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for reviews")?;
    let address = listener.local_addr()?;
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                // Errors here make the writes fail, and are reported there.
                let _ = stream.set_nodelay(true);
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service_fn(allow)).await;
            });
        }
    });
    Ok((address, certificate.pem()))
}

async fn allow(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Ok(Response::new(Full::from(answer.to_string())))
}
