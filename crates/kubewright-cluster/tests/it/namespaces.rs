//! The deletion of namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{background, bare};

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, finalizers: [example.com/hold]}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: main, image: busybox}]}
";

#[tokio::test]
async fn a_namespace_is_removed_once_it_is_empty() {
    let cluster = bare().await;
    cluster.apply_yaml(SHOP).await.expect("applied");
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces.delete("shop", &background()).await.expect("accepted");
    let stuck = |all: &[&Namespace]| {
        let shop = all.iter().find(|namespace| namespace.name_any() == "shop");
        let conditions = shop.and_then(|shop| shop.status.as_ref()?.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|one| {
            one.type_ == "NamespaceFinalizersRemaining"
                && one.status == "True"
                && one.message.as_deref().is_some_and(|text| text.contains("example.com/hold in 1 resource instances"))
        })
    };
    let all = cluster.expect(stuck).await.expect("the condition");
    let shop = all.iter().find(|namespace| namespace.name_any() == "shop").expect("shop");
    assert_eq!(shop.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Terminating"));
    let in_shop = |namespace: Option<String>| namespace.as_deref() == Some("shop");
    cluster.expect::<Secret>(|all| !all.iter().any(|one| in_shop(one.namespace()))).await.expect("deleted");

    let error = cluster
        .apply_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: shop}}")
        .await
        .expect_err("nothing new");
    assert!(format!("{error:?}").contains("because it is being terminated"), "{error:?}");

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "shop");
    let release = json!({"metadata": {"finalizers": null}});
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(&release)).await.expect("released");
    cluster.expect::<Namespace>(|all| all.iter().all(|one| one.name_any() != "shop")).await.expect("it goes");

    // A new namespace of the same name is another object.
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}").await.expect("applied");
    cluster
        .expect::<ConfigMap>(|all| all.iter().filter(|one| in_shop(one.namespace())).count() == 1)
        .await
        .expect("only the certificate");
    cluster.shutdown().await;
}

/// What pods use stays until they are gone, as in Kubernetes.
#[tokio::test]
async fn pods_are_deleted_before_everything_else() {
    let cluster = bare().await;
    let held = SHOP
        .replace("finalizers: [example.com/hold]", "")
        .replace("{name: web,", "{name: web, finalizers: [example.com/hold],");
    cluster.apply_yaml(&held).await.expect("applied");
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces.delete("shop", &background()).await.expect("accepted");
    let reported = |all: &[&Namespace]| {
        let shop = all.iter().find(|namespace| namespace.name_any() == "shop");
        shop.is_some_and(|shop| shop.status.as_ref().is_some_and(|status| status.conditions.is_some()))
    };
    cluster.expect(reported).await.expect("conditions");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    assert!(pods.get("web").await.expect("held").metadata.deletion_timestamp.is_some());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "shop");
    assert!(secrets.get("keys").await.expect("its turn has not come").metadata.deletion_timestamp.is_none());
    let release = json!({"metadata": {"finalizers": null}});
    pods.patch("web", &PatchParams::default(), &Patch::Merge(&release)).await.expect("released");
    cluster.expect::<Namespace>(|all| all.iter().all(|one| one.name_any() != "shop")).await.expect("it goes");
    cluster.shutdown().await;
}
