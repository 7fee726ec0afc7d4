//! Migration of stored objects to another version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use kubewright_cluster::faults::{Faults, Verb};
use kubewright_runtime::conversion::{MigrationError, Migrator};
use serde_json::json;

use super::{
    conversion::{definition, local, v1, v2},
    scene::{Scene, until},
};

const NAME: &str = "panes.test.kubewright.dev";

async fn found(scene: &Scene) -> CustomResourceDefinition {
    scene.all::<CustomResourceDefinition>().get(NAME).await.unwrap()
}

async fn stored(scene: &Scene) -> Vec<String> {
    found(scene).await.status.unwrap().stored_versions.unwrap()
}

async fn patch(scene: &Scene, patch: serde_json::Value) {
    let params = PatchParams::default();
    scene.all::<CustomResourceDefinition>().patch(NAME, &params, &Patch::Merge(patch)).await.unwrap();
}

/// Stores panes in the first version, and then makes the second the storage version.
async fn move_on(scene: &Scene, panes: &[(&str, &str)]) {
    for (name, size) in panes {
        let pane = v1::Pane::new(name, v1::PaneSpec { size: (*size).into() });
        scene.api::<v1::Pane>().create(&PostParams::default(), &pane).await.unwrap();
    }
    patch(scene, json!({"spec": {"versions": definition("v2").spec.versions}})).await;
    assert_eq!(stored(scene).await, ["v1", "v2"]);
}

#[tokio::test]
async fn a_migration_continues_where_it_was_stopped() {
    let scene = Scene::new();
    let manager = local(&scene, "v1").await;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    move_on(&scene, &names.map(|name| (name, "3x4"))).await;
    let migrator = Migrator::of::<v2::Pane>().page(2);

    let faults = Faults::new();
    let gate = faults.on(&[Verb::Patch], "panes").skip(4).hold();
    let (client, first) = (faults.client(&scene.client), migrator.clone());
    let run = tokio::spawn(async move { first.run(&client).await });
    let patched = |faults: &Faults| faults.requests().iter().filter(|seen| seen.request.resource == "panes").count();
    // Two pages with a list and two patches each, the third list, and two patches, one of which is held.
    until("the third page is begun", async || patched(&faults) == 9).await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    drop(gate);
    assert_eq!(stored(&scene).await, ["v1", "v2"]);
    assert!(found(&scene).await.annotations().contains_key("kubewright.dev/migration"));

    let migrated = migrator.run(&scene.client).await.unwrap();
    assert_eq!((migrated.version.as_str(), migrated.objects, migrated.removed), ("v2", 3, vec!["v1".to_owned()]));
    assert_eq!(stored(&scene).await, ["v2"]);
    assert!(!found(&scene).await.annotations().contains_key("kubewright.dev/migration"));
    // Nothing is left to migrate or to convert: the old version can be removed, and the webhook with it.
    assert_eq!(migrator.run(&scene.client).await.unwrap().objects, 0);
    manager.stop().await;
    let versions = definition("v2").spec.versions;
    let only: Vec<_> = versions.into_iter().filter(|version| version.name == "v2").collect();
    patch(&scene, json!({"spec": {"versions": only, "conversion": {"strategy": "None", "webhook": null}}})).await;
    let panes = scene.api::<v2::Pane>().list(&Default::default()).await.unwrap().items;
    assert!(panes.len() == 7 && panes.iter().all(|pane| (pane.spec.width, pane.metadata.generation) == (3, Some(1))));
}

#[tokio::test]
async fn objects_that_cannot_be_written_are_named_and_keep_their_version() {
    let scene = Scene::new();
    let manager = local(&scene, "v1").await;
    move_on(&scene, &[("a", "1x2"), ("odd", "big"), ("z", "3x4")]).await;
    let migrator = Migrator::new(NAME).page(1);
    let error = migrator.run(&scene.client).await.unwrap_err().to_string();
    assert!(error.starts_with("can't list panes panes.test.kubewright.dev: "), "{error}");
    assert!(error.contains("default/odd: spec.size: use <width>x<height>"), "{error}");
    assert_eq!(stored(&scene).await, ["v1", "v2"]);
    // The unfinished list would return the object as it was, so a new list is started.
    let odd: Api<v1::Pane> = scene.api();
    let fixed = Patch::Merge(json!({"spec": {"size": "5x6"}}));
    odd.patch("odd", &PatchParams::default(), &fixed).await.unwrap();
    let faults = Faults::new();
    let _refusal = faults.on(&[Verb::Patch], "panes").named("odd").refuse_with(422, "Invalid", "it is odd");
    let error = migrator.run(&faults.client(&scene.client)).await.unwrap_err();
    assert!(matches!(error, MigrationError::Objects { count: 1, .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("1 objects can't be written in their new version: default/odd: "), "{text}");
    assert!(text.contains("it is odd"), "{text}");
    assert_eq!(stored(&scene).await, ["v1", "v2"]);
    // The object before it is not written again; the others are.
    let migrated = migrator.run(&scene.client).await.unwrap();
    assert_eq!((migrated.objects, stored(&scene).await), (2, vec!["v2".to_owned()]));
    manager.stop().await;
}

#[tokio::test]
async fn a_definition_that_changes_meanwhile_keeps_its_versions() {
    let scene = Scene::new();
    let manager = local(&scene, "v1").await;
    move_on(&scene, &[("a", "1x2")]).await;
    let faults = Faults::new();
    let gate = faults.on(&[Verb::Patch], "panes").hold();
    let client = faults.client(&scene.client);
    let run = tokio::spawn(async move { Migrator::new(NAME).run(&client).await });
    until("it writes", async || faults.requests().iter().any(|seen| seen.request.verb == Verb::Patch)).await;
    patch(&scene, json!({"spec": {"versions": definition("v1").spec.versions}})).await;
    drop(gate);
    let error = run.await.unwrap().unwrap_err();
    assert!(matches!(error, MigrationError::Overtaken(_)), "{error}");
    assert_eq!(stored(&scene).await, ["v1", "v2"]);
    manager.stop().await;
}

/// Defines StorageVersionMigration, which the embedded cluster doesn't have, as Kubernetes 1.36 serves it when it is
/// enabled.
async fn define_migrations(scene: &Scene) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {
            "name": "storageversionmigrations.storagemigration.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/issues/4192"},
        },
        "spec": {
            "group": "storagemigration.k8s.io", "scope": "Cluster",
            "names": {"kind": "StorageVersionMigration", "plural": "storageversionmigrations"},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}, "subresources": {"status": {}},
            }],
        },
    });
    let definition = serde_json::from_value(definition).unwrap();
    scene.all::<CustomResourceDefinition>().create(&PostParams::default(), &definition).await.unwrap();
    until("the kind is served", async || migrations(scene).list(&ListParams::default()).await.is_ok()).await;
}

fn migrations(scene: &Scene) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration");
    Api::all_with(scene.client.clone(), &ApiResource::from_gvk(&kind))
}

/// Waits for a migration, and reports a condition as the controller manager does.
async fn report(scene: &Scene, condition: &str) -> DynamicObject {
    let found = async || migrations(scene).list(&ListParams::default()).await.unwrap().items.pop();
    until("there is a migration", async || found().await.is_some()).await;
    let migration = found().await.unwrap();
    let condition = json!({"type": condition, "status": "True", "reason": "Test", "message": "the test says so"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition], "resourceVersion": "1"}}));
    migrations(scene).patch_status(&migration.name_any(), &PatchParams::default(), &status).await.unwrap();
    migration
}

#[tokio::test]
async fn a_cluster_with_storage_version_migrations_writes_the_objects() {
    let scene = Scene::new();
    let manager = local(&scene, "v1").await;
    move_on(&scene, &[("a", "3x4")]).await;
    define_migrations(&scene).await;
    let (faults, migrator) = (Faults::new(), Migrator::of::<v2::Pane>());
    let written = |faults: &Faults| faults.requests().iter().filter(|seen| seen.request.resource == "panes").count();

    // A run that is stopped leaves its migration to the next.
    let (client, first) = (scene.client.clone(), migrator.clone());
    let run = tokio::spawn(async move { first.run(&client).await });
    let begun = report(&scene, "Running").await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert_eq!(begun.data["spec"]["resource"], json!({"group": "test.kubewright.dev", "resource": "panes"}));
    let (client, second) = (faults.client(&scene.client), migrator.clone());
    let run = tokio::spawn(async move { second.run(&client).await });
    assert_eq!(report(&scene, "Succeeded").await.uid(), begun.uid());
    let migrated = run.await.unwrap().unwrap();
    assert_eq!((migrated.by_cluster, migrated.objects, written(&faults)), (true, 0, 0));
    assert_eq!((migrated.removed, stored(&scene).await), (vec!["v1".to_owned()], vec!["v2".to_owned()]));
    assert!(migrations(&scene).list(&ListParams::default()).await.unwrap().items.is_empty());
    manager.stop().await;
}

#[tokio::test]
async fn a_migration_that_the_cluster_cannot_make_is_made_by_the_operator() {
    let scene = Scene::new();
    let manager = local(&scene, "v1").await;
    move_on(&scene, &[("a", "3x4"), ("b", "1x1")]).await;
    define_migrations(&scene).await;
    let client = scene.client.clone();
    let run = tokio::spawn(async move { Migrator::of::<v2::Pane>().run(&client).await });
    report(&scene, "Failed").await;
    let migrated = run.await.unwrap().unwrap();
    assert_eq!((migrated.by_cluster, migrated.objects), (false, 2));
    assert_eq!(stored(&scene).await, ["v2"]);
    assert!(migrations(&scene).list(&ListParams::default()).await.unwrap().items.is_empty());
    manager.stop().await;
}
