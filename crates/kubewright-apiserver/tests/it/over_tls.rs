//! The server on a socket.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_apiserver::{ListenError, ListenOptions, Listener};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::start;

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn listen() -> (Listener, Client) {
    let (api, _) = start();
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let client = client(&listener.kubeconfig()).await;
    (listener, client)
}

async fn namespaces(client: Client) -> kube::Result<usize> {
    Api::<Namespace>::all(client).list(&ListParams::default()).await.map(|list| list.items.len())
}

#[tokio::test]
async fn the_kubeconfig_works() {
    let (listener, client) = listen().await;
    assert_eq!(namespaces(client.clone()).await.unwrap(), 4);
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    listener.shutdown().await;
}

#[tokio::test]
async fn a_request_without_tls_is_answered_with_an_error() {
    let (listener, _) = listen().await;
    let mut stream = TcpStream::connect(listener.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let expect = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, expect);
}

#[tokio::test]
async fn a_shutdown_ends_watches_and_frees_the_port() {
    let (listener, client) = listen().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let config = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    api.create(&PostParams::default(), &config).await.unwrap();
    let events = api.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap();
    let reader = tokio::spawn(events.try_collect::<Vec<_>>());
    let address = listener.address();
    timeout(Duration::from_secs(10), listener.shutdown()).await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap().len(), 1);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn addresses_other_than_loopback_need_an_option() {
    let (api, _) = start();
    let error = api.listen("0.0.0.0:0".parse::<std::net::SocketAddr>().unwrap()).await.unwrap_err();
    assert!(matches!(error, ListenError::NotLoopback(_)));
}

#[tokio::test]
async fn unknown_and_tampered_credentials_are_refused() {
    let (listener, _) = listen().await;
    let (other, _) = listen().await;
    let good = Kubeconfig::from_yaml(&listener.kubeconfig()).unwrap();
    let stranger = Kubeconfig::from_yaml(&other.kubeconfig()).unwrap();
    let with = |change: &dyn Fn(&mut kube::config::AuthInfo)| {
        let mut config = good.clone();
        config.auth_infos[0].auth_info = Some(Default::default());
        change(config.auth_infos[0].auth_info.as_mut().unwrap());
        config
    };
    let token = |text: String| with(&|user| user.token = Some(text.clone().into()));
    let cases = [
        ("none", with(&|_| {}), Some(403)),
        ("unknown token", token("nobody".into()), Some(401)),
        ("tampered token", token(listener.token().to_owned() + "0"), Some(401)),
        ("right token", token(listener.token().to_owned()), None),
        ("another's certificate", with(&|user| *user = stranger.auth_infos[0].auth_info.clone().unwrap()), Some(401)),
        ("right certificate", good.clone(), None),
    ];
    for (name, kubeconfig, expect) in cases {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let code = match namespaces(client.clone()).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(other) => panic!("{name}: {other}"),
        };
        assert_eq!(code, expect, "{name}");
        // Health and version are available to everyone except clients with invalid credentials.
        let version = client.apiserver_version().await;
        assert_eq!(version.is_ok(), expect.is_none() || name == "none", "{name}");
    }
    listener.shutdown().await;
    other.shutdown().await;
}
