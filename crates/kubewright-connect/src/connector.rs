//! A connector for hyper clients.

use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::PathAndQuery};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::Intercept,
    },
    rt::TokioIo,
};
use rustls::ClientConfig;
use thiserror::Error;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::Proxies;

/// The default port of SOCKS proxies.
const SOCKS_PORT: u16 = 1080;

/// The time without data after which the other end of a connection is asked whether it is still there (as in
/// client-go), the time between two such questions, and the number of them without an answer after which it counts as
/// gone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// An error while connecting.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The destination could not be reached.
    #[error(transparent)]
    Direct(BoxError),
    /// The proxy could not be reached, or did not connect to the destination.
    #[error("through the proxy {proxy}")]
    Proxy {
        /// The proxy's URL, without user and password.
        proxy: Uri,
        /// The cause.
        #[source]
        source: BoxError,
    },
}

/// Returns a connector that opens TCP connections directly.
pub(crate) fn direct() -> HttpConnector {
    let mut direct = HttpConnector::new();
    // The wrapping connector adds TLS for `https`, so both schemes are accepted here.
    direct.enforce_http(false);
    direct.set_keepalive(Some(KEEPALIVE.0));
    direct.set_keepalive_interval(Some(KEEPALIVE.1));
    direct.set_keepalive_retries(Some(KEEPALIVE.2));
    direct
}

/// A connector that opens TCP connections, directly or through the proxy for the destination.
///
/// TLS to the destination is left to a wrapping connector, such as [`hyper_rustls::HttpsConnector`]. Through an HTTP
/// proxy each connection is a tunnel, regardless of the scheme.
#[derive(Clone)]
pub struct Connector {
    direct: HttpConnector,
    /// The connector to HTTP proxies, which may use TLS.
    to_proxy: HttpsConnector<HttpConnector>,
    proxies: Proxies,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

impl Connector {
    /// Creates a connector with these proxies. `tls` is used for connections to `https://` proxies.
    pub fn new(proxies: Proxies, tls: ClientConfig) -> Self {
        let direct = direct();
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Self { to_proxy: builder.wrap_connector(direct.clone()), direct, proxies }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        // The inner connectors are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let Some(proxy) = self.proxies.lookup(&destination) else {
            let connecting = self.direct.call(destination);
            return Box::pin(async move {
                connecting.await.map(Stream::Http).map_err(|error| ConnectError::Direct(error.into()))
            });
        };
        let (direct, to_proxy) = (self.direct.clone(), self.to_proxy.clone());
        Box::pin(async move {
            let address = proxy.uri().clone();
            let stream = through(&proxy, with_port(destination, 443), direct, to_proxy).await;
            stream.map_err(|source| ConnectError::Proxy { proxy: address, source })
        })
    }
}

async fn through(
    proxy: &Intercept,
    destination: Uri,
    direct: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
) -> Result<Stream, BoxError> {
    if matches!(proxy.uri().scheme_str(), Some("socks5" | "socks5h")) {
        let mut socks = SocksV5::new(with_port(proxy.uri().clone(), SOCKS_PORT), direct);
        if let Some((user, password)) = proxy.raw_auth() {
            socks = socks.with_auth(user.into(), password.into());
        }
        return Ok(Stream::Http(socks.call(destination).await.map_err(boxed)?));
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
    if let Some(authorization) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(authorization.clone());
    }
    Ok(tunnel.call(destination).await?)
}

fn boxed(error: impl StdError + Send + Sync + 'static) -> BoxError {
    error.into()
}

/// Returns the URL with an explicit port: 80 for `http`, otherwise `usual`.
fn with_port(url: Uri, usual: u16) -> Uri {
    let Some(host) = url.host().filter(|_| url.port().is_none()) else { return url };
    let port = if url.scheme_str() == Some("http") { 80 } else { usual };
    let with_port = Uri::builder()
        .scheme(url.scheme_str().unwrap_or("https"))
        .authority(format!("{host}:{port}"))
        .path_and_query(url.path_and_query().map_or("/", PathAndQuery::as_str))
        .build();
    with_port.unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_ask_whether_the_other_end_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let destination = format!("https://{address}").parse().expect("a URL");
        let stream = direct().call(destination).await.expect("a connection").into_inner();
        assert!(SockRef::from(&stream).keepalive().expect("an option"));
        #[cfg(target_os = "linux")]
        assert_eq!(SockRef::from(&stream).tcp_keepalive_time().expect("an option"), KEEPALIVE.0);
    }
}
