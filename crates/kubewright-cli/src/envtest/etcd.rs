//! The stand-in for etcd: it stores nothing, and answers the health checks of envtest.

use std::{convert::Infallible, net::SocketAddr};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, task::JoinSet};

use super::flags::{Flags, Known};
use crate::{cluster::Signals, shell::Shell};

const KNOWN: Known = Known {
    program: "etcd",
    used: &[("listen-client-urls", "Addresses of the health check [default: http://localhost:2379]")],
    accepted: &["advertise-client-urls", "data-dir", "listen-peer-urls", "unsafe-no-fsync"],
};

/// Runs until a signal arrives.
pub(crate) async fn run(arguments: Vec<String>, shell: &Shell) -> Result<()> {
    let flags = KNOWN.parse(arguments)?;
    if flags.last("help").is_some() {
        shell.result(KNOWN.help().trim_end());
        return Ok(());
    }
    for name in KNOWN.unknown(&flags) {
        shell.warning(&format!("--{name} has no effect: this etcd stores nothing"));
    }
    let mut signals = Signals::listen()?;
    let mut servers = JoinSet::new();
    for address in addresses(&flags).await? {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        servers.spawn(serve(listener));
    }
    signals.recv().await;
    Ok(())
}

/// Returns the addresses of `--listen-client-urls`.
async fn addresses(flags: &Flags) -> Result<Vec<SocketAddr>> {
    let mut urls = flags.list("listen-client-urls");
    if urls.is_empty() {
        urls.push("http://localhost:2379");
    }
    let mut addresses = Vec::new();
    for url in urls {
        let Some(host) = url.strip_prefix("http://") else { bail!("{url:?} is not an http:// address of a client") };
        let host = host.trim_end_matches('/');
        let found = tokio::net::lookup_host(host).await.with_context(|| format!("look up {host}"))?;
        let loopback: Vec<_> = found.filter(|address| address.ip().is_loopback()).collect();
        if loopback.is_empty() {
            bail!("{host} is not a loopback address");
        }
        // `localhost` may have two, of which one may be in use.
        addresses.extend(loopback.into_iter().take(1));
    }
    Ok(addresses)
}

async fn serve(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async move { Ok::<_, Infallible>(answer(&request)) });
            let connection = auto::Builder::new(TokioExecutor::new());
            // A client that goes away is no error.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer<B>(request: &Request<B>) -> Response<Full<Bytes>> {
    let (code, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/health" | "/readyz" | "/livez") => (StatusCode::OK, r#"{"health":"true","reason":""}"#),
        (&Method::GET, "/version") => (StatusCode::OK, r#"{"etcdserver":"3.6.8","etcdcluster":"3.6.0"}"#),
        _ => (
            StatusCode::NOT_FOUND,
            r#"{"error":"this etcd stores nothing: the API server of kubewright keeps its objects"}"#,
        ),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
