//! The stand-in for etcd: it answers the health checks of envtest, and names the directory in which `kube-apiserver`
//! keeps its objects, so that these are there as long as those of etcd would be.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{self, Path},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

use super::flags::{Flags, Known};
use crate::{cluster::Signals, shell::Shell};

const KNOWN: Known = Known {
    program: "etcd",
    all: include_str!("etcd-flags.txt"),
    used: &[
        ("data-dir", "Directory in which kube-apiserver keeps its objects [default: one that ends with this program]"),
        ("listen-client-urls", "Addresses for kube-apiserver and health checks [default: http://localhost:2379]"),
    ],
    accepted: &["advertise-client-urls", "listen-peer-urls", "unsafe-no-fsync"],
};

/// The version of etcd whose place this program takes.
const VERSION: &str = "3.6.8";
/// The path at which the program returns the path of its directory.
const DIRECTORY: &str = "/kubewright/data-dir";
/// The longest wait for the path of the directory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The greatest length of a path, in bytes.
const LONGEST_PATH: usize = 4096;

/// Runs until a signal arrives.
pub(crate) async fn run(arguments: Vec<String>, shell: &Shell) -> Result<()> {
    let flags = KNOWN.parse(arguments)?;
    if flags.last("help").is_some() {
        shell.result(KNOWN.help().trim_end());
        return Ok(());
    }
    if flags.last("version").is_some() {
        shell.result(&format!("etcd Version: {VERSION}"));
        return Ok(());
    }
    for name in KNOWN.unused(&flags) {
        shell.warning(&format!("--{name} has no effect: kube-apiserver stores the objects"));
    }
    let temporary = match flags.last("data-dir") {
        None => Some(tempfile::tempdir().context("create a directory for the objects")?),
        Some(_) => None,
    };
    let directory =
        temporary.as_ref().map_or_else(|| Path::new(flags.last("data-dir").unwrap_or_default()), TempDir::path);
    let directory = path::absolute(directory)?;
    let Some(directory) = directory.to_str() else {
        bail!("{} is not valid UTF-8: choose another --data-dir", directory.display())
    };
    let directory: Arc<str> = directory.into();
    let mut signals = Signals::listen()?;
    let mut servers = JoinSet::new();
    for address in addresses(&flags).await? {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        servers.spawn(serve(listener, directory.clone()));
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

/// Returns the directory of the etcd at an address, such as `http://localhost:2379`.
///
/// # Errors
/// If there is no such program.
pub(super) async fn directory(url: &str) -> Result<String> {
    let url = format!("{}{DIRECTORY}", url.trim_end_matches('/')).parse()?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let response = tokio::time::timeout(PATIENCE, client.get(url)).await??;
    if response.status() != StatusCode::OK {
        bail!("it is not the etcd of kubewright envtest");
    }
    let body = Limited::new(response.into_body(), LONGEST_PATH).collect();
    let body = tokio::time::timeout(PATIENCE, body).await?.map_err(anyhow::Error::from_boxed)?;
    Ok(String::from_utf8(body.to_bytes().into())?)
}

async fn serve(listener: TcpListener, directory: Arc<str>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let directory = directory.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&request, &directory);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            // A client that goes away is no error.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer<B>(request: &Request<B>, directory: &str) -> Response<Full<Bytes>> {
    const JSON: &str = "application/json";
    let (code, content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/health" | "/readyz" | "/livez") => (StatusCode::OK, JSON, r#"{"health":"true","reason":""}"#),
        (&Method::GET, "/version") => (StatusCode::OK, JSON, r#"{"etcdserver":"3.6.8","etcdcluster":"3.6.0"}"#),
        (&Method::GET, DIRECTORY) => (StatusCode::OK, "text/plain; charset=utf-8", directory),
        _ => (
            StatusCode::NOT_FOUND,
            JSON,
            r#"{"error":"this etcd has no objects: the API server of kubewright stores them"}"#,
        ),
    };
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
