//! Connections of clients to API servers, registries and collectors: directly or through a proxy.
//!
//! Proxies come from two places, as for client-go and kubectl:
//!
//! * `proxy-url` of a kubeconfig's cluster. All requests to that cluster go through it, also to loopback addresses.
//! * The environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case, as curl reads them.
//!   Loopback addresses are never asked through these.
//!
//! A proxy is an `http://` or `https://` URL, which is asked for a tunnel (`CONNECT`), or `socks5://` (`socks5h://` means the
//! same: names are resolved by the proxy). User and password in the URL are sent to the proxy, and never logged.
//!
//! [`config`] and [`client_builder`] stand for `kube::Config::from_custom_kubeconfig` and `kube::client::ClientBuilder::try_from`,
//! which know fewer proxies and take those of the environment for loopback addresses too. [`Connector`] is for other clients.

mod cluster;
mod connector;
mod proxy;

pub use self::{
    cluster::{GenericService, client, client_builder, config},
    connector::{ConnectError, Connector},
    proxy::{Proxies, ProxyError, is_loopback},
};
