//! Connections to API servers, registries and collectors, directly or through a proxy.
//!
//! Proxies are configured in two ways, as for client-go and kubectl:
//!
//! * `proxy-url` of a kubeconfig's cluster. All requests to that cluster go through it, even to loopback addresses.
//! * The environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case, as curl reads
//!   them. Loopback addresses never use these.
//!
//! A proxy is given by an `http://` or `https://` URL, for tunnels with `CONNECT`, or by a `socks5://` URL
//! (`socks5h://` is equivalent: the proxy resolves names in both cases). User and password in the URL are sent to the
//! proxy and never logged.
//!
//! [`config`] and [`client_builder`] replace `kube::Config::from_custom_kubeconfig` and
//! `kube::client::ClientBuilder::try_from`, which support fewer proxies and use those of the environment even for
//! loopback addresses. [`Connector`] is for other clients.

mod cluster;
mod connector;
mod provider;
mod proxy;

pub use self::{
    cluster::{GenericService, client, client_builder, config},
    connector::{ConnectError, Connector},
    provider::crypto_provider,
    proxy::{Proxies, ProxyError, is_loopback},
};
