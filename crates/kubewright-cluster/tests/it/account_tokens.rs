//! The tokens of service accounts in Secrets.

use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::SelfSubjectReview,
        core::v1::{Secret, ServiceAccount},
    },
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use kubewright_apimachinery::clock::SystemClock;
use kubewright_cluster::{Cluster, Endpoint};
use serde_json::{Value, json};

use crate::{bare, eventually};

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client(), "default")
}

fn accounts(cluster: &Cluster) -> Api<ServiceAccount> {
    Api::namespaced(cluster.client(), "default")
}

async fn create_account(cluster: &Cluster, name: &str, secrets: Value) -> ServiceAccount {
    let account = serde_json::from_value(json!({"metadata": {"name": name}, "secrets": secrets})).expect("an account");
    accounts(cluster).create(&PostParams::default(), &account).await.expect("created")
}

async fn create_secret(cluster: &Cluster, name: &str, account: &str) {
    let secret = json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    });
    let secret = serde_json::from_value(secret).expect("a Secret");
    secrets(cluster).create(&PostParams::default(), &secret).await.expect("created");
}

/// Returns a client of a listener with a token.
async fn client(endpoint: &Endpoint, token: &str) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&endpoint.kubeconfig()).expect("a kubeconfig");
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user");
    (user.client_certificate_data, user.client_key_data) = (None, None);
    user.token = Some(token.to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn who_am_i(client: &Client) -> Result<String, kube::Error> {
    let review =
        Api::<SelfSubjectReview>::all(client.clone()).create(&PostParams::default(), &Default::default()).await?;
    Ok(review.status.and_then(|status| status.user_info?.username).unwrap_or_default())
}

#[tokio::test]
async fn a_secret_gets_a_token_of_its_account() {
    let cluster = bare().await;
    let endpoint = cluster.listen(([127, 0, 0, 1], 0).into()).await.expect("it listens");
    let account = create_account(&cluster, "robot", json!([{"name": "kept"}, {"name": "token"}])).await;
    create_secret(&cluster, "token", "robot").await;
    let secret = eventually("the token", async || {
        let secret = secrets(&cluster).get("token").await.expect("a Secret");
        (secret.data.as_ref().map_or(0, |data| data.len()) == 3).then_some(secret)
    })
    .await;
    let data = |name: &str| {
        let ByteString(bytes) = secret.data.as_ref().expect("data")[name].clone();
        String::from_utf8(bytes).expect("text")
    };
    assert_eq!(data("namespace"), "default");
    assert!(data("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    let annotations = secret.metadata.annotations.clone().expect("annotations");
    assert_eq!(annotations.get("kubernetes.io/service-account.uid"), account.metadata.uid.as_ref());
    let robot = client(&endpoint, &data("token")).await;
    assert_eq!(who_am_i(&robot).await.expect("a user"), "system:serviceaccount:default:robot");
    let used = secrets(&cluster).get("token").await.expect("a Secret").metadata.labels.expect("a label");
    let today = SystemClock::shared().now().strftime("%Y-%m-%d").to_string();
    assert_eq!(used.get("kubernetes.io/legacy-token-last-used"), Some(&today));
    secrets(&cluster).delete("token", &DeleteParams::default()).await.expect("deleted");
    let refused = who_am_i(&robot).await.expect_err("refused");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 401), "{refused}");
    eventually("the reference is gone", async || {
        let account = accounts(&cluster).get("robot").await.expect("an account");
        let names: Vec<_> = account.secrets.into_iter().flatten().filter_map(|one| one.name).collect();
        (names == ["kept"]).then_some(())
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let cluster = bare().await;
    create_account(&cluster, "robot", json!([])).await;
    create_secret(&cluster, "token", "robot").await;
    create_secret(&cluster, "lost", "nobody").await;
    let gone = async |name: &str| secrets(&cluster).get_opt(name).await.expect("an answer").is_none();
    eventually("a Secret without an account is deleted", async || gone("lost").await.then_some(())).await;
    assert!(!gone("token").await);
    accounts(&cluster).delete("robot", &DeleteParams::default()).await.expect("deleted");
    eventually("the Secret of a deleted account is deleted", async || gone("token").await.then_some(())).await;
    cluster.shutdown().await;
}
