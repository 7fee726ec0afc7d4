//! Clients of API servers.

use std::error::Error as StdError;

use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::Connection},
    rt::TokioExecutor,
};
use kube::{
    Client, Config, Error,
    client::{Body, ClientBuilder, ConfigExt, DynBody, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer, util::BoxService};

use crate::{Connector, Proxies, connector::direct, provider};

/// The service underlying a client.
pub type GenericService = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A placeholder proxy, set while kube reads a kubeconfig. Otherwise kube would use a proxy of the environment, even
/// for loopback addresses.
const PLACEHOLDER: &str = "http://proxy.invalid";

/// Returns the configuration of a kubeconfig's context, by default the current context. Its
/// [`proxy_url`](Config::proxy_url) is set only by the kubeconfig, never by the environment.
///
/// # Errors
/// Those of [`Config::from_custom_kubeconfig`].
pub async fn config(mut kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let mut own = None;
    let wanted = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
    let chosen = kubeconfig.contexts.iter().find(|named| Some(&named.name) == wanted.as_ref());
    let cluster = chosen.and_then(|named| Some(named.context.as_ref()?.cluster.clone()));
    for named in &mut kubeconfig.clusters {
        let Some(details) = &mut named.cluster else { continue };
        let url = details.proxy_url.take().filter(|url| !url.is_empty());
        if Some(&named.name) == cluster.as_ref() && own.is_none() {
            own.clone_from(&url);
        }
        details.proxy_url = Some(url.unwrap_or_else(|| PLACEHOLDER.into()));
    }
    let options = KubeConfigOptions { context: context.map(Into::into), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    if own.is_none() {
        config.proxy_url = None;
    }
    Ok(config)
}

/// Returns the builder of a client. The client connects through the configuration's [`proxy_url`](Config::proxy_url),
/// else through the environment's proxy for the API server's address, else directly. This function doesn't connect yet.
///
/// Connections have TCP keepalive, as those of client-go: one whose other end is gone fails within a minute. Unlike
/// `kube::client::ClientBuilder::try_from`, this doesn't trace requests, and [`Client::valid_until`] is unknown.
///
/// # Errors
/// If certificates or credentials can't be used, or the proxy's scheme is not supported.
pub fn client_builder(mut config: Config) -> Result<ClientBuilder<GenericService>, Error> {
    provider::install();
    let proxies = match config.proxy_url.take() {
        Some(url) => Proxies::fixed(&url).map_err(|error| Error::Service(error.into()))?,
        None => Proxies::from_env(),
    };
    if !proxies.intercepts(&config.cluster_url) {
        return builder(config, direct());
    }
    // The proxy's certificate is verified against the system's certificate authorities, not the cluster's.
    let connector = Connector::new(proxies, Config::new(config.cluster_url.clone()).rustls_client_config()?);
    builder(config, connector)
}

fn builder<C>(config: Config, connector: C) -> Result<ClientBuilder<GenericService>, Error>
where
    C: Service<Uri, Response: Connection + Read + Write + Send + Unpin, Future: Send, Error: StdError + Send + Sync>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .map_response(|response: Response<Incoming>| {
            response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        })
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(BoxService::new(service), config.default_namespace))
}

/// Returns a client; see [`client_builder`].
///
/// # Errors
/// Those of [`client_builder`].
pub fn client(config: Config) -> Result<Client, Error> {
    client_builder(config).map(ClientBuilder::build)
}
