//! The life cycle of objects.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{raw::send, refused, start};

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"a": "1"}})).unwrap()
}

fn pod(name: &str) -> Pod {
    let spec = json!({"containers": [{"name": "main", "image": "busybox"}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[tokio::test]
async fn a_dry_run_allocates_nothing() {
    let (api, _) = start();
    let service = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}).to_string();
    let path = "POST /api/v1/namespaces/default/services";
    let shown = send(&api, &format!("{path}?dryRun=All"), &[], service.clone()).await.expect_code(201).json();
    assert_eq!(shown["spec"]["clusterIP"], "127.96.0.0");
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], 32769);
    let created = send(&api, path, &[], service).await.expect_code(201).json();
    assert_ne!(created["spec"]["clusterIP"], "127.96.0.0");
    assert!(created["spec"]["ports"][0]["nodePort"].as_u64().unwrap() < 32768);
}

#[tokio::test]
async fn objects_are_created_updated_and_deleted() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let created = api.create(&PostParams::default(), &config("a")).await.unwrap();
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    refused(api.create(&PostParams::default(), &config("a")).await, 409, "configmaps \"a\" already exists");

    let mut changed = created.clone();
    changed.data.as_mut().unwrap().insert("b".into(), "2".into());
    let changed = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(changed.metadata.resource_version, created.metadata.resource_version);
    refused(api.replace("a", &PostParams::default(), &created).await, 409, "the object has been modified");

    let patch = Patch::Merge(json!({"data": {"a": null, "c": "3"}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(json!(patched.data), json!({"b": "2", "c": "3"}));
    let again = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        again.metadata.resource_version, patched.metadata.resource_version,
        "nothing changed, nothing is written"
    );

    let answer = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(answer.right().unwrap().details.unwrap().uid, created.metadata.uid.unwrap());
    refused(api.get("a").await, 404, "configmaps \"a\" not found");
}

#[tokio::test]
async fn the_status_is_isolated() {
    let (_, client) = start();
    let api: Api<Pod> = Api::default_namespaced(client);
    let mut wanted = serde_json::to_value(pod("p")).unwrap();
    wanted["status"] = json!({"phase": "Failed"});
    let wanted: Pod = serde_json::from_value(wanted).unwrap();
    let created = api.create(&PostParams::default(), &wanted).await.unwrap();
    assert_ne!(created.status.unwrap_or_default().phase.as_deref(), Some("Failed"));

    let patch = Patch::Merge(json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}));
    let patched = api.patch_status("p", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(patched.spec.unwrap().node_name, None);
}

#[tokio::test]
async fn lists_have_pages_and_selectors() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&PostParams::default(), &config(name)).await.unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    api.delete("d", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config("f")).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = api.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(|item| item.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["c", "d", "e"], "a later page is of the first one's revision");
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);

    let selected = api.list(&ListParams::default().labels("app in (a,b),app!=a")).await.unwrap();
    assert_eq!(selected.items.len(), 1);
    let selected = api.list(&ListParams::default().fields("metadata.name=b")).await.unwrap();
    assert_eq!(selected.items.len(), 1);
    refused(api.list(&ListParams::default().fields("data.a=1")).await, 400, "\"data.a\" is not a known field selector");
    assert_eq!(Api::<Namespace>::all(client).list(&ListParams::default()).await.unwrap().items.len(), 4);
}

#[tokio::test]
async fn deletion_waits_for_finalizers_and_grace() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut held = config("held");
    held.metadata.finalizers = Some(vec!["example.com/wait".into()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    let marked = api.delete("held", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let more = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}));
    refused(api.patch("held", &PatchParams::default(), &more).await, 422, "no new finalizers can be added");
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &none).await.unwrap();
    refused(api.get("held").await, 404, "not found");
}

#[tokio::test]
async fn objects_need_an_existing_namespace() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    refused(api.create(&PostParams::default(), &config("a")).await, 404, "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn terminating_namespaces_accept_no_objects_and_some_cannot_be_deleted() {
    let (_, client) = start();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["default", "kube-system", "kube-public"] {
        let refusal = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        refused(namespaces.delete(name, &DeleteParams::default()).await, 403, &refusal);
    }
    let namespace = serde_json::from_value(json!({"metadata": {"name": "going"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    namespaces.delete("going", &DeleteParams::default()).await.unwrap();
    let configs: Api<ConfigMap> = Api::namespaced(client, "going");
    let why = "unable to create new content in namespace going because it is being terminated";
    let refusal = format!("configmaps \"late\" is forbidden: {why}");
    refused(configs.create(&PostParams::default(), &config("late")).await, 403, &refusal);
}

#[tokio::test]
async fn empty_metadata_fields_are_removed() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let empty = json!({"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": [], "generateName": ""});
    let mut sent = json!({"metadata": empty});
    sent["metadata"]["name"] = "a".into();
    let created = api.create(&PostParams::default(), &serde_json::from_value(sent).unwrap()).await.unwrap();
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": empty}))).await.unwrap();
    for object in [created, patched] {
        let metadata = serde_json::to_value(&object.metadata).unwrap();
        for field in empty.as_object().unwrap().keys() {
            assert_eq!(metadata.get(field), None, "{field}");
        }
    }
}

#[tokio::test]
async fn names_are_generated() {
    let (_, client) = start();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut nameless = config("x");
    nameless.metadata.name = None;
    refused(api.create(&PostParams::default(), &nameless).await, 422, "name or generateName is required");
    nameless.metadata.generate_name = Some("a".repeat(60));
    let name = api.create(&PostParams::default(), &nameless).await.unwrap().metadata.name.unwrap();
    assert_eq!((name.len(), &name[..58]), (63, &*"a".repeat(58)));
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let (api, client) = start();
    let configs: Api<ConfigMap> = Api::default_namespaced(client);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut feed = api.feed();
    while let Ok(Some(_)) = feed.try_next() {}
    configs.create(&dry, &config("a")).await.unwrap();
    assert!(feed.try_next().unwrap().is_none());
    let object: Value =
        serde_json::to_value(configs.create(&PostParams::default(), &config("a")).await.unwrap()).unwrap();
    assert_eq!(feed.next().await.unwrap().object()["metadata"]["uid"], object["metadata"]["uid"]);
    configs.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    assert!(configs.get("a").await.is_ok());
}

#[tokio::test]
async fn names_and_references_follow_the_rules_of_their_kinds() {
    let (api, _) = start();
    let path = |plural: &str| format!("POST /api/v1/namespaces/default/{plural}");
    let named = send(&api, &path("limitranges"), &[], r#"{"spec":{"limits":[]}}"#).await.expect_code(201).json();
    assert_eq!(named["metadata"]["name"].as_str().map(str::len), Some(36), "a limit range without a name gets a UUID");
    let account = r#"{"metadata":{"name":"a"},"secrets":[{"name":"s","kind":"x","uid":"y"}]}"#;
    let account = send(&api, &path("serviceaccounts"), &[], account).await.expect_code(201).json();
    assert_eq!(account["secrets"], json!([{"name": "s"}]));
    let event = r#"{"metadata":{"name":"A_b","finalizers":["x"]},"involvedObject":{}}"#;
    send(&api, &path("events"), &[], event).await.expect_code(201);
    let lease = r#"{"metadata":{"name":"l","finalizers":["x"]}}"#;
    let leases = "POST /apis/coordination.k8s.io/v1/namespaces/default/leases";
    send(&api, leases, &[], lease).await.expect_code(201);
    let modern = "POST /apis/events.k8s.io/v1/namespaces/default/events";
    let refused = send(&api, modern, &[], r#"{"metadata":{"name":"e"}}"#).await.expect_code(422).json();
    assert!(refused["message"].as_str().unwrap().starts_with("Event \"e\" is invalid: "), "{refused}");
    // The first list of a client, of any version, isn't split.
    let list = "GET /api/v1/namespaces/default/configmaps?limit=1&resourceVersion=0";
    for name in ["a", "b"] {
        let map = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        send(&api, &path("configmaps"), &[], map).await.expect_code(201);
    }
    assert_eq!(send(&api, list, &[], "").await.expect_code(200).json()["items"].as_array().map(Vec::len), Some(2));
}

/// As in Kubernetes, whose controllers often create a namespace for which a client doesn't wait.
#[tokio::test(start_paused = true)]
async fn a_creation_waits_for_a_namespace_that_is_created_at_the_same_time() {
    let (api, _) = start();
    let body = r#"{"metadata":{"name":"c"}}"#;
    let creation = async || send(&api, "POST /api/v1/namespaces/late/configmaps", &[], body).await.code;
    assert_eq!(creation().await, 404, "after a while");
    let namespace = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        send(&api, "POST /api/v1/namespaces", &[], r#"{"metadata":{"name":"late"}}"#).await.code
    };
    assert_eq!(futures::join!(creation(), namespace), (201, 201));
}
