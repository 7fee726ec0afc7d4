//! Custom kinds: their objects are garbage-collected like others, and deleted with their definition.

use k8s_openapi::{
    api::{core::v1::ConfigMap, rbac::v1::RoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{background, bare, within};

pub(crate) const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let cluster = bare().await;
    cluster.apply_yaml(WIDGETS).await.expect("defined");
    let applied = cluster
        .apply_yaml(
            "
apiVersion: example.com/v1
kind: Widget
metadata: {name: a, finalizers: [example.com/hold]}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: b, namespace: other}
",
        )
        .await
        .expect("applied");
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "b", "uid": applied[2].uid()}]);
    cluster
        .apply_yaml(
            &json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "child", "namespace": "other", "ownerReferences": owner},
            })
            .to_string(),
        )
        .await
        .expect("applied");
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    crds.delete("widgets.example.com", &background()).await.expect("accepted");
    let terminating = |crds: &[&CustomResourceDefinition]| {
        let conditions = crds.first().and_then(|crd| crd.status.as_ref()?.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Terminating" && one.status == "True")
    };
    cluster.expect(terminating).await.expect("the condition");
    cluster.expect::<ConfigMap>(|maps| maps.iter().all(|map| map.name_any() != "child")).await.expect("collected");
    let widget = kube::api::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("example.com", "v1", "Widget"),
        "widgets",
    );
    let widgets: Api<kube::api::DynamicObject> = Api::namespaced_with(cluster.client(), "default", &widget);
    let release = json!({"metadata": {"finalizers": null}});
    widgets.patch("a", &PatchParams::default(), &Patch::Merge(&release)).await.expect("released");
    cluster.expect::<CustomResourceDefinition>(|crds| crds.is_empty()).await.expect("it goes");
    cluster
        .eventually(within(10), || async { widgets.get("a").await.is_err().then_some(()) })
        .await
        .expect("not served any more");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_definition_with_an_unknown_stored_version_can_be_deleted() {
    let cluster = bare().await;
    cluster.apply_yaml(WIDGETS).await.expect("defined");
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let stored = json!({"status": {"storedVersions": ["v9"]}});
    let name = "widgets.example.com";
    crds.patch_status(name, &PatchParams::default(), &Patch::Merge(stored)).await.expect("patched");
    crds.delete(name, &background()).await.expect("accepted");
    cluster.expect::<CustomResourceDefinition>(|crds| crds.is_empty()).await.expect("removed");
    cluster.shutdown().await;
}

#[tokio::test]
async fn webhooks_of_an_operator_that_is_gone_do_not_hold_up_the_deletion_of_its_kind() {
    let cluster = bare().await;
    cluster.apply_yaml(WIDGETS).await.expect("defined");
    let widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}";
    cluster.apply_yaml(widget).await.expect("applied");
    cluster
        .apply_yaml(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets.example.com}
webhooks:
- name: widgets.example.com
  clientConfig: {url: 'https://127.0.0.1:1/validate'}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [DELETE]}]
  admissionReviewVersions: [v1]
  sideEffects: None
",
        )
        .await
        .expect("applied");
    let resource = kube::api::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("example.com", "v1", "Widget"),
        "widgets",
    );
    let widgets: Api<kube::api::DynamicObject> = Api::namespaced_with(cluster.client(), "default", &resource);
    let refused = widgets.delete("a", &background()).await.expect_err("the webhook can't be reached");
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    crds.delete("widgets.example.com", &background()).await.expect("accepted");
    cluster.expect::<CustomResourceDefinition>(|crds| crds.is_empty()).await.expect("it goes");
    cluster.shutdown().await;
}

#[tokio::test]
async fn deleting_a_definition_with_the_name_of_a_built_in_kind_deletes_no_objects() {
    let cluster = bare().await;
    cluster
        .apply_yaml(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
",
        )
        .await
        .expect("applied");
    let definition = json!({
        "metadata": {
            "name": "rolebindings.rbac.authorization.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "rbac.authorization.k8s.io", "scope": "Namespaced",
            "names": {"plural": "rolebindings", "kind": "RoleBinding"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let definition = serde_json::from_value(definition).expect("a definition");
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    crds.create(&PostParams::default(), &definition).await.expect("created");
    crds.delete("rolebindings.rbac.authorization.k8s.io", &background()).await.expect("accepted");
    cluster.expect::<CustomResourceDefinition>(|crds| crds.is_empty()).await.expect("it goes");
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client(), "default");
    assert!(bindings.get("reader").await.is_ok(), "the binding stays");
    cluster.shutdown().await;
}
