//! Clients of a server that can be reached only through a proxy.

mod scene;

use std::{error::Error, net::Ipv4Addr};

use kube::{Config, config::Kubeconfig};
use kubewright_connect::{client, config};
#[cfg(target_os = "linux")]
use tokio::{
    net::TcpListener,
    time::{Duration, sleep, timeout},
};

use self::scene::{Proxy, Server};

/// Returns the configuration for a cluster whose host name can't be resolved, through this proxy.
async fn configured(server: &Server, proxy: Option<&str>) -> Config {
    let proxy = proxy.map(|url| format!(", proxy-url: '{url}'")).unwrap_or_default();
    let kubeconfig = Kubeconfig::from_yaml(&format!(
        "{{apiVersion: v1, kind: Config, current-context: here,\n\
         contexts: [{{name: here, context: {{cluster: here, user: me}}}}], users: [{{name: me, user: {{token: secret}}}}],\n\
         clusters: [{{name: other, cluster: {{server: 'https://other', proxy-url: 'http://other'}}}},\n\
         {{name: here, cluster: {{server: 'https://cluster.test:6443'{proxy}}}}}]}}"
    ));
    let mut config = config(kubeconfig.expect("a kubeconfig"), None).await.expect("a configuration");
    config.root_cert = Some(vec![server.certificate.to_vec()]);
    config
}

async fn version(config: Config) -> Result<String, String> {
    let client = client(config).map_err(|error| error.to_string())?;
    let version = client.apiserver_version().await.map_err(|error| chain(&error))?;
    Ok(version.git_version)
}

/// Formats an error and its causes.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[tokio::test]
async fn a_kubeconfigs_http_proxy_is_asked_for_a_tunnel() {
    let server = Server::start().await;
    let proxy = Proxy::http(server.address, None).await;
    let config = configured(&server, Some(&format!("http://{}", proxy.address))).await;
    assert_eq!(version(config).await.as_deref(), Ok("v1.36.3"));
    assert_eq!(proxy.asked(), ["cluster.test:6443"]);
    assert_eq!(server.tokens(), ["Bearer secret"], "the request is complete");
}

#[tokio::test]
async fn an_http_proxy_receives_user_and_password() {
    let server = Server::start().await;
    let proxy = Proxy::http(server.address, Some(("me@home", "a:b"))).await;
    let config = configured(&server, Some(&format!("http://me%40home:a%3Ab@{}", proxy.address))).await;
    assert_eq!(version(config).await.as_deref(), Ok("v1.36.3"));
    let wrong = configured(&server, Some(&format!("http://me:wrong@{}", proxy.address))).await;
    let error = version(wrong).await.expect_err("the proxy refuses");
    assert!(error.contains("proxy authorization required") && !error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name() {
    let server = Server::start().await;
    for scheme in ["socks5", "socks5h"] {
        let proxy = Proxy::socks(server.address, None).await;
        let config = configured(&server, Some(&format!("{scheme}://{}", proxy.address))).await;
        assert_eq!(version(config).await.as_deref(), Ok("v1.36.3"));
        assert_eq!(proxy.asked(), ["cluster.test:6443"]);
    }
    let proxy = Proxy::socks(server.address, Some(("me", "secret"))).await;
    let config = configured(&server, Some(&format!("socks5://me:secret@{}", proxy.address))).await;
    assert_eq!(version(config).await.as_deref(), Ok("v1.36.3"));
}

#[tokio::test]
async fn a_kubeconfigs_proxy_is_for_loopback_too() {
    let server = Server::start().await;
    let proxy = Proxy::http(server.address, None).await;
    let mut config = configured(&server, Some(&format!("http://{}", proxy.address))).await;
    config.cluster_url = format!("https://{}:6443", Ipv4Addr::LOCALHOST).parse().expect("a URL");
    assert_eq!(version(config).await.as_deref(), Ok("v1.36.3"));
    assert_eq!(proxy.asked(), ["127.0.0.1:6443"]);
}

#[tokio::test]
async fn another_clusters_proxy_is_not_asked() {
    let server = Server::start().await;
    let config = configured(&server, None).await;
    assert_eq!(config.proxy_url, None);
    let mut direct = config;
    direct.cluster_url = format!("https://{}", server.address).parse().expect("a URL");
    assert_eq!(version(direct).await.as_deref(), Ok("v1.36.3"));
}

#[tokio::test]
async fn an_error_names_the_proxy() {
    let server = Server::start().await;
    let config = configured(&server, Some("http://127.0.0.1:9")).await;
    let error = version(config).await.expect_err("nobody listens there");
    assert!(error.contains("127.0.0.1:9"), "{error}");
    let unknown = configured(&server, Some("ftp://me:secret@127.0.0.1:9")).await;
    let error = version(unknown).await.expect_err("it is not supported");
    assert!(error.contains("the proxy ftp://127.0.0.1:9 is not supported"), "{error}");
}

/// Nothing is sent while a watch is quiet, so a dead connection would be found by nothing else.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_probes_quiet_connections() {
    for is_proxied in [false, true] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let here = listener.local_addr().expect("its address");
        let mut config = Config::new(format!("http://{here}").parse().expect("a URL"));
        if is_proxied {
            config.proxy_url = Some(format!("http://{here}").parse().expect("a URL"));
        }
        let client = client(config).expect("a client");
        let request = tokio::spawn(async move { client.apiserver_version().await });
        let (_stream, peer) = listener.accept().await.expect("a connection");
        let probed = async {
            while timer(peer.port(), here.port()).as_deref() != Some("02") {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let is_probed = timeout(Duration::from_secs(10), probed).await.is_ok();
        assert!(is_probed, "proxied: {is_proxied}, timer: {:?}", timer(peer.port(), here.port()));
        request.abort();
    }
}

/// Returns the active timer of a TCP connection, which is `02` while probes for a quiet peer are scheduled; see
/// <https://docs.kernel.org/networking/proc_net_tcp.html>.
#[cfg(target_os = "linux")]
fn timer(from: u16, to: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().find_map(|line| {
        let fields = line.split_whitespace().collect::<Vec<_>>();
        let is_it = port(fields.get(1)?) == Some(from) && port(fields.get(2)?) == Some(to);
        is_it.then(|| fields.get(5)?.split(':').next().map(str::to_owned)).flatten()
    })
}
