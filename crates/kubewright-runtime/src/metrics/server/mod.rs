//! Where the metrics are served, how, and to whom.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use axum::{middleware, routing::MethodRouter};
use kube::Client;
use kubewright_apimachinery::clock::SharedClock;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Metrics, access::Gate};
use crate::{
    probe::{self, BindAddress, BindError, Manner, Server},
    webhook::{
        Certificates,
        certificate::{
            Pair, Slot,
            authority::{self, Material},
            files::Files,
        },
    },
};

/// How long the start waits for the files.
const START: Duration = Duration::from_secs(5);
/// How often files are read again.
const FILES_INTERVAL: Duration = Duration::from_secs(10);
/// How often a certificate that was made here is looked at.
const OWN_INTERVAL: Duration = Duration::from_secs(3600);

/// A server of `/metrics`, and of what was [added](crate::manager::Manager::metrics_handler) beside it: for
/// [`Manager::metrics_server`](crate::manager::Manager::metrics_server). The flags of [`MetricsArgs`] make one.
///
/// ```
/// # use kubewright_runtime::{metrics::MetricsServer, probe::BindAddress, webhook::Certificates};
/// let open = MetricsServer::new(BindAddress::Host("127.0.0.1".into(), 8080));
/// let guarded = MetricsServer::new(BindAddress::AllInterfaces(8443)).tls(Certificates::SelfManaged).guarded(true);
/// ```
#[derive(Clone, Debug)]
pub struct MetricsServer {
    pub(crate) address: BindAddress,
    tls: Option<Certificates>,
    is_guarded: bool,
}

impl MetricsServer {
    /// Plain HTTP, for everyone who can reach the address.
    pub fn new(address: BindAddress) -> Self {
        Self { address, tls: None, is_guarded: false }
    }

    /// HTTPS. [`Certificates::SelfManaged`] makes a certificate that nobody has reason to trust, in memory, and anew when it
    /// is about to expire: scrapers skip verification.
    pub fn tls(self, certificates: Certificates) -> Self {
        Self { tls: Some(certificates), ..self }
    }

    /// Whether only those are answered who have a token of the cluster and the right to `get` the path
    /// (`nonResourceURLs: [/metrics]`). The operator itself then needs the right to create `tokenreviews` and
    /// `subjectaccessreviews`. Without TLS, tokens go in the clear.
    pub fn guarded(self, is_guarded: bool) -> Self {
        Self { is_guarded, ..self }
    }

    /// Listens and serves; none when the address is disabled.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) async fn start(
        self,
        metrics: &Metrics,
        handlers: Vec<(String, MethodRouter)>,
        client: &Client,
        clock: &SharedClock,
    ) -> Result<Option<Running>, BindError> {
        let routes = handlers
            .into_iter()
            .fold(probe::metrics_router(metrics.clone()), |router, (path, handler)| router.route(&path, handler));
        let router = match self.is_guarded {
            true => routes.layer(middleware::from_fn_with_state(Gate::new(client.clone(), clock.clone()), Gate::check)),
            false => routes,
        };
        let slot = Slot::new("metrics");
        let mut own = None;
        if let (Some(Certificates::SelfManaged), true) = (&self.tls, self.address != BindAddress::Disabled) {
            own = make(&slot, None, clock);
        }
        let manner = Manner { tls: self.tls.as_ref().map(|_| slot.tls()), ..Manner::default() };
        let flag = "--metrics-bind-address";
        let Some(server) = Server::start_as("metrics", flag, &self.address, router, manner).await? else {
            return Ok(None);
        };
        let keeper = match self.tls {
            None => None,
            Some(Certificates::Directory { path, certificate, key }) => {
                let files = Files { certificate: path.join(certificate), key: path.join(key) };
                let (looked, has_looked) = oneshot::channel();
                let looked = || looked.send(()).unwrap_or_default();
                let keeper = tokio::spawn(files.follow(slot, metrics.certificates().clone(), FILES_INTERVAL, looked));
                // The rest of the manager doesn't depend on it.
                let _ = timeout(START, has_looked).await;
                Some(keeper)
            }
            Some(Certificates::SelfManaged) => Some(tokio::spawn(keep(slot, own, clock.clone()))),
        };
        Ok(Some(Running { server, keeper }))
    }
}

/// A server of metrics that runs. Dropped, it ends at once.
pub(crate) struct Running {
    server: Server,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

impl Running {
    pub(crate) async fn shutdown(mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            keeper.abort();
            let _ = (&mut keeper).await;
        }
        self.server.stop().await;
    }
}

/// Keeps the slot filled with a certificate of our own making, for ever.
async fn keep(slot: Slot, mut held: Option<Material>, clock: SharedClock) {
    loop {
        sleep(OWN_INTERVAL).await;
        held = make(&slot, held, &clock);
    }
}

/// Fills the slot if there is nothing, or something that soon expires.
fn make(slot: &Slot, held: Option<Material>, clock: &SharedClock) -> Option<Material> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let material = match authority::renewed(held.as_ref(), None, &names, clock.now()) {
        Ok(Some(material)) => material,
        Ok(None) => return held,
        Err(error) => {
            tracing::error!(%error, "can't make a certificate for the metrics");
            return held;
        }
    };
    match Pair::read(material.certificate.as_bytes(), material.key.as_bytes()) {
        Ok(pair) => slot.set(pair),
        Err(error) => tracing::error!(%error, "the metrics' certificate that was made can't be used"),
    }
    Some(material)
}

/// The flags of the metrics server, as kubebuilder's.
#[derive(Clone, Debug, clap::Args)]
#[command(about = None, long_about = None)]
pub struct MetricsArgs {
    /// Where to serve /metrics: host:port, :port for all interfaces, or 0 for not at all
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub metrics_bind_address: BindAddress,

    /// Serve the metrics by HTTPS, and only to those whose token may get /metrics
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

    /// The directory of the metrics server's certificate, which another keeps up to date [default: one is made in memory,
    /// which nobody can verify]
    #[arg(long, value_name = "DIRECTORY")]
    pub metrics_cert_path: Option<PathBuf>,

    /// The file of the certificate in --metrics-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.crt")]
    pub metrics_cert_name: String,

    /// The file of the key in --metrics-cert-path
    #[arg(long, value_name = "FILE", default_value = "tls.key")]
    pub metrics_cert_key: String,
}

impl MetricsArgs {
    /// The server that the flags describe.
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

/// The first path that is served twice, if any.
pub(crate) fn doubled(handlers: &[(String, MethodRouter)]) -> Option<&str> {
    let mut paths = BTreeSet::from(["/metrics"]);
    handlers.iter().map(|(path, _)| path.as_str()).find(|path| !paths.insert(path))
}

#[cfg(test)]
mod tests;
