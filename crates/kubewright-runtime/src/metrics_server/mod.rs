//! The metrics server: its address, certificate, authentication and authorization.

mod auth;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use kube::Client;
use kubewright_apimachinery::clock::SharedClock;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use self::auth::Auth;
use crate::{
    http::{BindAddress, BindError, Server, ServerOptions},
    metrics::{CONTENT_TYPE, Metrics, OPEN_METRICS_CONTENT_TYPE, open_metrics},
    tls::{
        CertResolver, Certificates, CertifiedKey, TlsOptions,
        authority::{self, KeyMaterial, Keys},
        files::Files,
    },
};

/// The maximum time for which the start waits for the certificate files.
const START: Duration = Duration::from_secs(5);
/// The interval at which certificate files are read.
const FILES_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which a self-managed certificate is checked for renewal.
const OWN_INTERVAL: Duration = Duration::from_secs(3600);

/// A server of `/metrics` and [other handlers](crate::manager::Manager::metrics_handler), for
/// [`Manager::metrics_server`](crate::manager::Manager::metrics_server). [`MetricsArgs`] creates one from flags.
///
/// ```
/// # use kubewright_runtime::{metrics_server::MetricsServer, probe::BindAddress, webhook::Certificates};
/// let open = MetricsServer::new(BindAddress::Host("127.0.0.1".into(), 8080));
/// let guarded = MetricsServer::new(BindAddress::AllInterfaces(8443)).tls(Certificates::SelfManaged).guarded(true);
/// ```
#[derive(Clone, Debug)]
pub struct MetricsServer {
    pub(crate) address: BindAddress,
    tls: Option<Certificates>,
    tls_options: TlsOptions,
    is_guarded: bool,
}

impl MetricsServer {
    /// Creates a server over plain HTTP without authentication.
    pub fn new(address: BindAddress) -> Self {
        Self { address, tls: None, tls_options: TlsOptions::new(), is_guarded: false }
    }

    /// Enables HTTPS. [`Certificates::SelfManaged`] issues and renews a certificate in memory, which scrapers can't
    /// verify.
    pub fn tls(self, certificates: Certificates) -> Self {
        Self { tls: Some(certificates), ..self }
    }

    /// Sets the versions and cipher suites of HTTPS.
    pub fn tls_options(self, options: TlsOptions) -> Self {
        Self { tls_options: options, ..self }
    }

    /// Requires a bearer token of the cluster whose user may `get` the path (`nonResourceURLs: [/metrics]`). The
    /// operator then needs permission to create `tokenreviews` and `subjectaccessreviews`. A guarded server also serves
    /// [traces](crate::trace). Without TLS, tokens are sent in clear text.
    pub fn guarded(self, is_guarded: bool) -> Self {
        Self { is_guarded, ..self }
    }

    /// Starts the server; `None` if the address is disabled. `traces` are served only if it is guarded.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub(crate) async fn start(
        self,
        metrics: &Metrics,
        handlers: Vec<(String, MethodRouter)>,
        traces: Router,
        client: &Client,
        clock: &SharedClock,
    ) -> Result<Option<Running>, BindError> {
        let routes = handlers
            .into_iter()
            .fold(metrics_router(metrics.clone()), |router, (path, handler)| router.route(&path, handler));
        let router = match self.is_guarded {
            true => {
                let auth = Auth::new(client.clone(), clock.clone());
                routes.merge(traces).layer(middleware::from_fn_with_state(auth, Auth::check))
            }
            false => routes,
        };
        let resolver = CertResolver::new("metrics");
        let mut own = None;
        if let (Some(Certificates::SelfManaged), true) = (&self.tls, self.address != BindAddress::Disabled) {
            own = make(&resolver, None, clock);
        }
        let manner = ServerOptions {
            tls: self.tls.as_ref().map(|_| resolver.tls(&self.tls_options)),
            ..ServerOptions::default()
        };
        let flag = "--metrics-bind-address";
        let Some(server) = Server::start_as("metrics", flag, &self.address, router, manner).await? else {
            return Ok(None);
        };
        let rotator = match self.tls {
            None => None,
            Some(Certificates::Directory { path, certificate, key }) => {
                let files = Files { certificate: path.join(certificate), key: path.join(key) };
                let (looked, has_looked) = oneshot::channel();
                let looked = || looked.send(()).unwrap_or_default();
                let rotator =
                    tokio::spawn(files.follow(resolver, metrics.certificates().clone(), FILES_INTERVAL, looked));
                // A timeout is not an error: the rest of the manager doesn't need the certificate.
                let _ = timeout(START, has_looked).await;
                Some(rotator)
            }
            Some(Certificates::SelfManaged) => Some(tokio::spawn(renew(resolver, own, clock.clone()))),
        };
        Ok(Some(Running { server, rotator }))
    }
}

/// A running metrics server. Dropping it stops it at once.
pub(crate) struct Running {
    server: Server,
    rotator: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(rotator) = &self.rotator {
            rotator.abort();
        }
    }
}

impl Running {
    pub(crate) async fn shutdown(mut self) {
        if let Some(mut rotator) = self.rotator.take() {
            rotator.abort();
            let _ = (&mut rotator).await;
        }
        self.server.stop().await;
    }
}

/// Renews the self-managed certificate before it expires. It never returns.
async fn renew(resolver: CertResolver, mut held: Option<KeyMaterial>, clock: SharedClock) {
    loop {
        sleep(OWN_INTERVAL).await;
        held = make(&resolver, held, &clock);
    }
}

/// Issues a certificate if there is none or it is due for renewal.
fn make(resolver: &CertResolver, held: Option<KeyMaterial>, clock: &SharedClock) -> Option<KeyMaterial> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let material = match authority::renewed(&Keys::System, held.as_ref(), None, "", &names, clock.now()) {
        Ok(Some(material)) => material,
        Ok(None) => return held,
        Err(error) => {
            tracing::error!(%error, "can't make a certificate for the metrics server");
            return held;
        }
    };
    match CertifiedKey::read(material.certificate.as_bytes(), material.key.as_bytes()) {
        Ok(key) => resolver.set(key),
        Err(error) => tracing::error!(%error, "the certificate made for the metrics server can't be used"),
    }
    Some(material)
}

/// The flags of the metrics server, named as kubebuilder's.
#[derive(Clone, Debug, clap::Args)]
#[command(about = None, long_about = None)]
pub struct MetricsArgs {
    /// Address of /metrics: host:port, :port for all interfaces, or 0 for no server
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub metrics_bind_address: BindAddress,

    /// Serve the metrics by HTTPS, and only with a token that may get /metrics
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub metrics_secure: bool,

    /// Directory with the metrics server's certificate [default: a self-signed certificate made in memory]
    #[arg(long, value_name = "DIRECTORY")]
    pub metrics_cert_path: Option<PathBuf>,

    /// File name of the certificate in --metrics-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.crt")]
    pub metrics_cert_name: String,

    /// File name of the key in --metrics-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.key")]
    pub metrics_cert_key: String,
}

impl MetricsArgs {
    /// Returns the server that the flags describe.
    pub fn server(&self) -> MetricsServer {
        let server = MetricsServer::new(self.metrics_bind_address.clone());
        if !self.metrics_secure {
            return server;
        }
        let certificates = match &self.metrics_cert_path {
            Some(path) => Certificates::Directory {
                path: path.clone(),
                certificate: self.metrics_cert_name.clone(),
                key: self.metrics_cert_key.clone(),
            },
            None => Certificates::SelfManaged,
        };
        server.tls(certificates).guarded(true)
    }
}

/// Returns the route `/metrics`, in the format that the client prefers.
fn metrics_router(metrics: Metrics) -> Router {
    let answer = async move |headers: HeaderMap| {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
        let vary = (header::VARY, "Accept");
        if open_metrics::is_preferred(&accept.collect::<Vec<_>>().join(",")) {
            let content = (header::CONTENT_TYPE, OPEN_METRICS_CONTENT_TYPE);
            return ([content, vary], metrics.encode_open_metrics()).into_response();
        }
        match metrics.encode() {
            Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE), vary], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    };
    Router::new().route("/metrics", get(answer))
}

/// Returns the first path with two handlers, if any.
pub(crate) fn duplicate_path(handlers: &[(String, MethodRouter)]) -> Option<&str> {
    let mut paths = BTreeSet::from(["/metrics", "/debug/traces"]);
    handlers.iter().map(|(path, _)| path.as_str()).find(|path| !paths.insert(path))
}

#[cfg(test)]
mod tests;
