//! Servers that keep their objects in a data directory.

use std::{path::Path, process::Command, thread};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams, WatchEvent, WatchParams},
    config::Kubeconfig,
    discovery::ApiResource,
};
use kubewright_apimachinery::random::Random;
use kubewright_apiserver::{ApiServer, ListenOptions, UserInfo};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::refused;

/// Set for the process whose files have a maximum size: its data directory.
const LIMITED: &str = "KUBEWRIGHT_TEST_LIMITED";

fn open(path: &Path) -> (ApiServer, Client) {
    // A seed, since a restart mustn't generate the same UIDs again.
    let api = ApiServer::builder().random(Random::seeded(1)).open(path).unwrap();
    let client = api.client();
    (api, client)
}

fn parse<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn config(name: &str) -> ConfigMap {
    parse(json!({"metadata": {"name": name}}))
}

fn service(name: &str, spec: Value) -> Service {
    parse(json!({"metadata": {"name": name}, "spec": spec}))
}

fn cows(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "my.domain".into(),
        version: "v1".into(),
        api_version: "my.domain/v1".into(),
        kind: "Cow".into(),
        plural: "cows".into(),
    };
    Api::default_namespaced_with(client.clone(), &kind)
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    Api::all_with(client.clone(), &kind)
}

fn definition() -> DynamicObject {
    parse(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cows.my.domain"},
        "spec": {
            "group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "sound": {"type": "string", "default": "moo"},
                }}},
            }}}],
        },
    }))
}

#[tokio::test]
async fn everything_continues_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let post = PostParams::default();
    let (api, client) = open(directory.path());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let default = namespaces.get("default").await.unwrap().uid();
    namespaces.delete("kube-node-lease", &DeleteParams::default()).await.unwrap();
    definitions(&client).create(&post, &definition()).await.unwrap();
    let cow = parse(json!({"apiVersion": "my.domain/v1", "kind": "Cow", "metadata": {"name": "a"}, "spec": {}}));
    cows(&client).create(&post, &cow).await.unwrap();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let ports = json!([{"port": 80, "nodePort": 30123}]);
    let created = services.create(&post, &service("a", json!({"type": "NodePort", "ports": ports}))).await.unwrap();
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let before = configs.create(&post, &config("a")).await.unwrap();
    configs.create(&post, &config("b")).await.unwrap();
    configs.delete("a", &DeleteParams::default()).await.unwrap();
    let last = configs.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    api.close();
    refused(configs.create(&post, &config("c")).await, 500, "the server has closed it");

    let (api, client) = open(directory.path());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(namespaces.get("default").await.unwrap().uid(), default);
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let listed = configs.list(&Default::default()).await.unwrap();
    assert_eq!(listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["b"]);
    assert_eq!(listed.metadata.resource_version.unwrap(), last);
    let version = before.resource_version().unwrap();
    let mut events = std::pin::pin!(configs.watch(&WatchParams::default(), &version).await.unwrap());
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(config)) if config.name_any() == "b"));
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(config)) if config.name_any() == "a"));
    let again = configs.create(&post, &config("a")).await.unwrap();
    assert_ne!(again.uid(), before.uid());
    assert!(again.resource_version().unwrap().parse::<u64>().unwrap() > last.parse().unwrap());
    assert_eq!(cows(&client).get("a").await.unwrap().data["spec"]["sound"], "moo");
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let ip = created.spec.unwrap().cluster_ip.unwrap();
    let taken = services.create(&post, &service("b", json!({"clusterIP": ip, "ports": [{"port": 80}]}))).await;
    refused(taken, 422, "provided IP is already allocated");
    let taken = service("b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}));
    refused(services.create(&post, &taken).await, 422, "provided port is already allocated");
    let configs: Api<ConfigMap> = Api::default_namespaced(api.client_of(UserInfo::new("nobody", ["some"])));
    refused(configs.get("a").await, 403, "nobody");
}

#[tokio::test]
async fn kubeconfigs_stay_valid() {
    let directory = TempDir::new().unwrap();
    let (api, _client) = open(directory.path());
    let listener = api.listen(ListenOptions::default()).await.unwrap();
    let (address, token, kubeconfig) = (listener.address(), listener.token().to_owned(), listener.kubeconfig());
    listener.shutdown().await;
    api.close();
    let (api, _client) = open(directory.path());
    let listener = api.listen(address).await.unwrap();
    assert_eq!((listener.token(), listener.kubeconfig()), (&*token, kubeconfig.clone()));
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    assert!(namespaces.get("default").await.is_ok(), "the earlier authority verifies the new certificate");
    listener.shutdown().await;
}

#[tokio::test]
async fn what_does_not_fit_on_the_disk_is_refused() {
    if let Some(path) = std::env::var_os(LIMITED) {
        return fill(Path::new(&path)).await;
    }
    let directory = TempDir::new().unwrap();
    // A process that ignores the signal of a file that is too large gets an error instead, after a part was written.
    let limited = r#"trap "" XFSZ; ulimit -f 3000; exec "$0" "$@""#;
    let name = thread::current().name().unwrap().to_owned();
    let status = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .args([&name, "--exact"])
        .env(LIMITED, directory.path())
        .status()
        .unwrap();
    assert!(status.success());
    let (_api, client) = open(directory.path());
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    let listed = configs.list(&Default::default()).await.unwrap();
    let count = listed.items.len();
    assert!(count > 10, "{count}");
    for number in 0..count - 1 {
        assert!(listed.items.iter().any(|config| config.name_any() == format!("a{number}")), "{number}");
    }
    assert!(listed.items.iter().any(|config| config.name_any() == "small"));
}

/// Creates objects until one is refused, and then a small one.
async fn fill(path: &Path) {
    let (_api, client) = open(path);
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    for number in 0.. {
        let name = format!("a{number}");
        let large = parse(json!({"metadata": {"name": name}, "data": {"text": "x".repeat(20_000)}}));
        let result = configs.create(&PostParams::default(), &large).await;
        if result.is_err() {
            refused(result, 500, "can't be stored: failed to write");
            refused(configs.get(&name).await, 404, "not found");
            break;
        }
    }
    configs.create(&PostParams::default(), &config("small")).await.unwrap();
}
