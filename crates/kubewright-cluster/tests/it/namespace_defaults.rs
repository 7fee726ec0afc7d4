//! The default objects of namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{Api, ResourceExt, api::DeleteParams};

use crate::bare;

#[tokio::test]
async fn every_namespace_has_an_account_and_the_certificate() {
    let cluster = bare().await;
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await.expect("applied");
    let complete =
        |accounts: &[&ServiceAccount]| accounts.iter().filter(|one| one.name_any() == "default").count() == 5;
    cluster.expect(complete).await.expect("five");
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "shop");
    let before = accounts.get("default").await.expect("the account").uid();
    accounts.delete("default", &DeleteParams::default()).await.expect("deleted");
    let again = |all: &[&ServiceAccount]| {
        all.iter().any(|one| one.namespace().as_deref() == Some("shop") && one.uid() != before)
    };
    cluster.expect(again).await.expect("a new one");

    let text = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("ca.crt").cloned()).unwrap_or_default();
    let maps = cluster.expect::<ConfigMap>(|maps| maps.len() == 5).await.expect("five");
    assert!(maps.iter().all(|map| text(map).is_empty()), "nobody listens yet");
    let endpoint = cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("it listens");
    assert!(endpoint.authority().starts_with("-----BEGIN CERTIFICATE-----"));
    cluster
        .expect::<ConfigMap>(|maps| maps.iter().filter(|map| text(map) == endpoint.authority()).count() == 5)
        .await
        .expect("the certificate");
    cluster.shutdown().await;
}
