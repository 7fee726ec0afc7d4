//! The addresses at which other processes reach the API server.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::watch;
use kubewright_apiserver::{ApiServer, ListenError, ListenOptions, Listener};
use parking_lot::Mutex;

/// The listeners of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ApiEndpoints {
    api: ApiServer,
    listeners: Arc<Mutex<Vec<Listener>>>,
    /// Held while a listener is opened, so that the address and the certificate always belong to the same listener.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// The address at which pods need a listener of their own, if they can't reach the others.
    for_pods: Arc<OnceLock<Ipv4Addr>>,
    /// The address for pods: that of their own listener, or of the most recent one.
    address: watch::Sender<Option<SocketAddr>>,
    /// The CA certificates of the listeners in PEM, that of the most recent one first.
    certificate: watch::Sender<String>,
}

/// An address at which the cluster listens, with credentials.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: SocketAddr,
    kubeconfig: String,
    authority: String,
    token: String,
}

impl Endpoint {
    /// Returns the address, including the port that was assigned if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig as YAML for a user with all permissions. It contains a private key: write it with mode
    /// 0600.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// Returns the CA certificate that verifies the server's certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns a bearer token of the same user, for clients without certificates.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl ApiEndpoints {
    /// Creates the endpoints of a server that doesn't listen yet.
    pub(crate) fn new(api: ApiServer) -> Self {
        Self {
            api,
            listeners: Arc::default(),
            opening: Arc::default(),
            for_pods: Arc::default(),
            address: watch::Sender::default(),
            certificate: watch::Sender::default(),
        }
    }

    /// Gives pods a listener of their own at an address, since they can't reach 127.0.0.1 of the host. It is opened
    /// with the first listener.
    pub(crate) fn serve_pods_at(&self, address: Ipv4Addr) {
        // Only called once, when the cluster starts.
        let _set_before = self.for_pods.set(address);
    }

    /// Opens another listener.
    pub(crate) async fn open(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        let _opening = self.opening.lock().await;
        let endpoint = self.open_alone(options).await?;
        self.open_for_pods(endpoint.address).await?;
        Ok(endpoint)
    }

    /// Opens the port of a node's kubelet, whose paths are those below `prefix` of the API server.
    pub(crate) async fn open_kubelet(&self, address: SocketAddr, prefix: String) -> Result<(), ListenError> {
        let mut options = ListenOptions::from(address);
        options.prefix = prefix;
        let listener = self.api.listen(options).await?;
        self.listeners.lock().push(listener);
        Ok(())
    }

    /// Opens the listener for pods, if they need one and don't have it yet, and sets their address. `other` is that of
    /// another listener.
    async fn open_for_pods(&self, other: SocketAddr) -> Result<SocketAddr, ListenError> {
        let present = *self.address.borrow();
        let address = match (self.for_pods.get(), present) {
            (None, _) => other,
            (Some(_), Some(present)) => present,
            (Some(own), None) => self.open_alone(SocketAddr::from((*own, 0)).into()).await?.address,
        };
        self.address.send_replace(Some(address));
        Ok(address)
    }

    async fn open_alone(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        let listener = self.api.listen(options).await?;
        let endpoint = Endpoint {
            address: listener.address(),
            kubeconfig: listener.kubeconfig(),
            authority: listener.authority().to_owned(),
            token: listener.token().to_owned(),
        };
        // Pods that were started with the address of an earlier listener still need its certificate.
        self.certificate.send_modify(|all| *all = format!("{}{all}", endpoint.authority));
        self.listeners.lock().push(listener);
        Ok(endpoint)
    }

    /// Returns an address at which processes on this host can reach the server, and the server's CA certificates. If
    /// the server doesn't listen yet, it starts to listen on a free loopback port.
    pub(crate) async fn any(&self) -> Result<(SocketAddr, String), ListenError> {
        let _opening = self.opening.lock().await;
        let present = *self.address.borrow();
        let address = match present {
            Some(address) => address,
            None => {
                let own = self.for_pods.get().map(|own| SocketAddr::from((*own, 0)).into());
                let address = self.open_alone(own.unwrap_or_default()).await?.address;
                self.address.send_replace(Some(address));
                address
            }
        };
        Ok((SocketAddr::new(reachable(address.ip()), address.port()), self.certificate.borrow().clone()))
    }

    /// Returns a receiver of the address at which the server listens; `None` until it does.
    pub(crate) fn address(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.address.subscribe()
    }

    /// Returns a receiver of the server's CA certificate in PEM, which is empty until the server listens.
    pub(crate) fn certificate(&self) -> watch::Receiver<String> {
        self.certificate.subscribe()
    }

    /// Takes all listeners, so that the caller can shut them down or drop them.
    pub(crate) fn take(&self) -> Vec<Listener> {
        std::mem::take(&mut *self.listeners.lock())
    }
}

/// Returns the address at which processes on this host can reach a server that listens on `listening`.
pub(crate) fn reachable(listening: IpAddr) -> IpAddr {
    if listening.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { listening }
}
