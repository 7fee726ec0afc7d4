//! Where the API server is reached from outside this process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use kubewright_apiserver::{ApiServer, ListenError, ListenOptions, Listener};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The listeners of a cluster. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    api: ApiServer,
    listeners: Arc<Mutex<Vec<Listener>>>,
    /// Held while one is opened, so that address and certificate belong together.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// Where pods find the server: the address of the last listener.
    address: watch::Sender<Option<SocketAddr>>,
    /// The authority that signed the last listener's certificate, in PEM.
    certificate: watch::Sender<String>,
}

/// Where a cluster listens, and what it takes to be let in.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: SocketAddr,
    kubeconfig: String,
    authority: String,
    token: String,
}

impl Endpoint {
    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig whose user may do everything, as YAML. It holds a private key: keep it from others (mode 0600).
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// The certificate of the authority that signed the server's, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A bearer token for the same user, for clients without certificates.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Doors {
    /// Those of a server that doesn't listen yet.
    pub(crate) fn new(api: ApiServer) -> Self {
        Self {
            api,
            listeners: Arc::default(),
            opening: Arc::default(),
            address: watch::Sender::default(),
            certificate: watch::Sender::default(),
        }
    }

    /// Opens one more.
    pub(crate) async fn open(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        let _opening = self.opening.lock().await;
        self.open_alone(options).await
    }

    async fn open_alone(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        let listener = self.api.listen(options).await?;
        let endpoint = Endpoint {
            address: listener.address(),
            kubeconfig: listener.kubeconfig(),
            authority: listener.authority().to_owned(),
            token: listener.token().to_owned(),
        };
        self.address.send_replace(Some(endpoint.address));
        self.certificate.send_replace(endpoint.authority.clone());
        self.listeners.lock().push(listener);
        Ok(endpoint)
    }

    /// An address at which programs of this machine reach the server, and the certificate to trust there. If there is none
    /// yet, the server begins to listen on a free port of the loopback address.
    pub(crate) async fn any(&self) -> Result<(SocketAddr, String), ListenError> {
        let _opening = self.opening.lock().await;
        let present = *self.address.borrow();
        let address = match present {
            Some(address) => address,
            None => self.open_alone(ListenOptions::default()).await?.address,
        };
        Ok((SocketAddr::new(reachable(address.ip()), address.port()), self.certificate.borrow().clone()))
    }

    /// Where the server listens, if it does.
    pub(crate) fn address(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.address.subscribe()
    }

    /// The authority that signed its certificate, in PEM, or nothing.
    pub(crate) fn certificate(&self) -> watch::Receiver<String> {
        self.certificate.subscribe()
    }

    /// Takes all listeners, to be shut down or dropped.
    pub(crate) fn take(&self) -> Vec<Listener> {
        std::mem::take(&mut *self.listeners.lock())
    }
}

/// Where programs of this machine reach a server that listens here.
pub(crate) fn reachable(listening: IpAddr) -> IpAddr {
    if listening.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { listening }
}
