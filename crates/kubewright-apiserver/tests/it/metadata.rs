//! The fields of the metadata that the server owns, whatever clients send for them.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const MERGE: &str = "Content-Type: application/merge-patch+json";
const APPLY: &str = "Content-Type: application/apply-patch+yaml";

async fn post(api: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    let answer = send(api, &format!("POST {path}"), &[], object.to_string()).await;
    (answer.code, answer.json())
}

async fn put(api: &ApiServer, path: &str, object: &Value) -> (u16, Value) {
    let answer = send(api, &format!("PUT {path}"), &[], object.to_string()).await;
    (answer.code, answer.json())
}

async fn patch(api: &ApiServer, path: &str, patch: &Value) -> (u16, Value) {
    let answer = send(api, &format!("PATCH {path}"), &[MERGE], patch.to_string()).await;
    (answer.code, answer.json())
}

async fn define_widgets(api: &ApiServer) {
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    });
    let (code, answer) = post(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(code, 201, "{answer}");
}

/// Returns what some clients send for the fields that the server owns.
fn foreign() -> Value {
    json!({
        "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 99, "selfLink": "/x", "uid": "",
        "deletionGracePeriodSeconds": null, "deletionTimestamp": null,
    })
}

#[tokio::test]
async fn what_the_server_owns_is_restored_by_updates_and_patches() {
    let (api, _) = start();
    define_widgets(&api).await;
    let kinds = [
        (CONFIGS, json!({"data": {"a": "1"}}), ""),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget"}), "/status"),
        ("/api/v1/namespaces/default/services", json!({"spec": {"ports": [{"port": 1}]}}), "/status"),
    ];
    for (path, mut object, subresource) in kinds {
        object["metadata"] = json!({"name": "a"});
        let (code, created) = post(&api, path, &object).await;
        assert_eq!(code, 201, "{created}");
        let owned = |object: &Value| {
            ["uid", "creationTimestamp", "generation", "selfLink"].map(|field| object["metadata"][field].clone())
        };
        for part in ["", subresource] {
            let place = format!("{path}/a{part}");
            let (code, patched) = patch(&api, &place, &json!({"metadata": foreign()})).await;
            assert_eq!((code, owned(&patched)), (200, owned(&created)), "{patched}");
            let mut sent = patched;
            for (field, value) in foreign().as_object().unwrap() {
                sent["metadata"][field] = value.clone();
            }
            let (code, updated) = put(&api, &place, &sent).await;
            assert_eq!((code, owned(&updated)), (200, owned(&created)), "{updated}");
        }
    }
}

#[tokio::test]
async fn a_client_cannot_change_how_an_object_is_deleted() {
    let (api, _) = start();
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}});
    let (_, created) = post(&api, CONFIGS, &held).await;
    let sent = json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}});
    let (code, refused) = patch(&api, &format!("{CONFIGS}/a"), &sent).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("metadata.deletionTimestamp")));

    let marked = send(&api, &format!("DELETE {CONFIGS}/a"), &[], "").await.json();
    let time = &marked["metadata"]["deletionTimestamp"];
    let (code, patched) = patch(&api, &format!("{CONFIGS}/a"), &sent).await;
    assert_eq!((code, &patched["metadata"]["deletionTimestamp"]), (200, time));
    let mut sent = created;
    sent["metadata"]["resourceVersion"] = Value::Null;
    let (code, updated) = put(&api, &format!("{CONFIGS}/a"), &sent).await;
    assert_eq!((code, &updated["metadata"]["deletionTimestamp"]), (200, time));
    let more = json!({"metadata": {"finalizers": ["example.com/x", "example.com/z", "example.com/y"]}});
    let (code, refused) = patch(&api, &format!("{CONFIGS}/a"), &more).await;
    let words = "found new finalizers []string{\"example.com/y\", \"example.com/z\"}";
    assert!(code == 422 && refused["message"].as_str().unwrap().ends_with(words), "{refused}");
}

#[tokio::test]
async fn a_new_object_gets_its_own_identity() {
    let (api, _) = start();
    let sent = json!({"metadata": {
        "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7,
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "selfLink": "/x",
    }});
    let (code, created) = post(&api, CONFIGS, &sent).await;
    assert_eq!(code, 201, "{created}");
    let metadata = created["metadata"].as_object().unwrap();
    assert!(metadata["uid"] != "mine" && metadata["creationTimestamp"] != sent["metadata"]["creationTimestamp"]);
    assert_eq!(metadata["generation"], 7, "kinds without a generation keep what is sent");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata.get(field), None);
    }
}

#[tokio::test]
async fn a_version_is_refused_by_the_store_but_not_by_a_dry_run_or_an_apply() {
    let (api, _) = start();
    let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
    let (code, refused) = post(&api, CONFIGS, &object).await;
    assert_eq!(
        (code, &refused["message"]),
        (500, &json!("resourceVersion should not be set on objects to be created"))
    );
    assert_eq!(refused.get("reason"), None);
    assert_eq!(post(&api, &format!("{CONFIGS}?dryRun=All"), &object).await.0, 201);
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "7"}, "data": {"a": "1"},
    });
    let line = format!("PATCH {CONFIGS}/a?fieldManager=me");
    send(&api, &line, &[APPLY], config.to_string()).await.expect_code(201);
    let mut foreign = config;
    foreign["metadata"] = json!({"name": "b", "uid": "x"});
    let line = format!("PATCH {CONFIGS}/b?fieldManager=me");
    let refused = send(&api, &line, &[APPLY], foreign.to_string()).await.expect_code(409).json();
    let words = "uid mismatch: the provided object specified uid x, and no existing object was found";
    assert!(refused["message"].as_str().unwrap().ends_with(words), "{refused}");
    let (code, taken) = post(&api, &format!("{CONFIGS}?dryRun=All"), &object).await;
    assert_eq!((code, &taken["reason"]), (409, &json!("AlreadyExists")));
}

#[tokio::test]
async fn another_uid_is_a_conflict_of_an_update_and_an_error_of_a_patch() {
    let (api, _) = start();
    let (_, created) = post(&api, CONFIGS, &json!({"metadata": {"name": "a"}})).await;
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let (code, refused) = put(&api, &format!("{CONFIGS}/a"), &json!({"metadata": {"name": "a", "uid": "x"}})).await;
    let words = format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: \
         /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
         precondition: x, UID in object meta: {uid}"
    );
    assert_eq!((code, &refused["message"]), (409, &json!(words)));
    let (code, refused) = patch(&api, &format!("{CONFIGS}/a"), &json!({"metadata": {"uid": "x"}})).await;
    let words = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable";
    assert_eq!((code, &refused["message"]), (422, &json!(words)));
}

#[tokio::test]
async fn updates_of_some_kinds_need_a_version() {
    let (api, _) = start();
    define_widgets(&api).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    for (path, mut object) in [(lease, json!({})), (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget"}))]
    {
        object["metadata"] = json!({"name": "a"});
        assert_eq!(post(&api, path, &object).await.0, 201);
        let (code, refused) = put(&api, &format!("{path}/a"), &object).await;
        let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        assert!(code == 422 && refused["message"].as_str().unwrap().ends_with(why), "{refused}");
    }
}

#[tokio::test]
async fn a_status_update_changes_the_metadata_that_its_kind_allows() {
    let (api, _) = start();
    define_widgets(&api).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    for (path, mut object, expect) in [
        ("/apis/apps/v1/namespaces/default/deployments", deployment, (false, true)),
        ("/api/v1/namespaces/default/services", json!({"spec": {"ports": [{"port": 1}]}}), (true, true)),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget"}), (false, false)),
    ] {
        object["metadata"] = json!({"name": "a"});
        assert_eq!(post(&api, path, &object).await.0, 201);
        let sent = json!({"metadata": {"labels": {"l": "x"}, "annotations": {"n": "x"}}, "spec": {"replicas": 7}});
        let (code, patched) = patch(&api, &format!("{path}/a/status"), &sent).await;
        assert_eq!(code, 200, "{patched}");
        let has = |field: &str, key: &str| patched["metadata"][field].get(key).is_some();
        assert_eq!((has("labels", "l"), has("annotations", "n")), expect, "{patched}");
        assert_ne!(patched["spec"]["replicas"], 7);
    }
}

#[tokio::test]
async fn metadata_is_checked_in_the_words_of_kubernetes() {
    let (api, _) = start();
    let check = async |metadata: Value, expect: &[&str]| {
        let (code, refused) = post(&api, CONFIGS, &json!({"metadata": metadata})).await;
        let causes = refused["details"]["causes"].as_array().unwrap().iter();
        let causes: Vec<_> = causes
            .map(|cause| format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
            .collect();
        assert_eq!((code, causes.len()), (422, expect.len()), "{causes:?}");
        for (cause, expect) in causes.iter().zip(expect) {
            assert!(cause.starts_with(expect), "{cause}");
        }
    };
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o"});
    check(
        json!({"name": "a", "ownerReferences": [owner]}),
        &["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
    )
    .await;
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
    check(
        json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]}),
        &["metadata.ownerReferences: Invalid value: "],
    )
    .await;
    check(
        json!({"name": "a", "finalizers": ["x"]}),
        &["metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"],
    )
    .await;
    let invalid = ["metadata.generateName: Invalid value: \"A\"", "metadata.name: Invalid value: \"A"];
    check(json!({"generateName": "A"}), &invalid).await;
}

#[tokio::test]
async fn duplicate_owners_and_unqualified_finalizers_cause_warnings() {
    let (api, _) = start();
    define_widgets(&api).await;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "ownerReferences": [owner, owner], "finalizers": ["x"]},
    });
    let answer = send(&api, &format!("POST {WIDGETS}"), &[], widget.to_string()).await.expect_code(201);
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().map(|text| text.to_str().unwrap()).collect();
    assert!(warnings[0].contains("duplicate UID(s) observed: u"), "{warnings:?}");
    assert!(warnings[1].contains("prefer a domain-qualified finalizer name to avoid"), "{warnings:?}");
    assert_eq!(answer.json()["metadata"]["ownerReferences"], json!([owner]));
}

#[tokio::test]
async fn a_patch_with_an_unknown_field_is_invalid_in_strict_validation() {
    let (api, _) = start();
    post(&api, CONFIGS, &json!({"metadata": {"name": "a"}})).await;
    let place = format!("{CONFIGS}/a?fieldValidation=Strict");
    let (code, refused) = patch(&api, &place, &json!({"nope": 1})).await;
    let message = refused["message"].as_str().unwrap();
    assert!(code == 422 && message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{message}");
    assert!(message.ends_with("strict decoding error: unknown field \"nope\""), "{message}");
    let strategic = "Content-Type: application/strategic-merge-patch+json";
    let line = format!("PATCH {place}");
    let refused = send(&api, &line, &[strategic], json!({"nope": {"b": [1], "a": "x"}}).to_string()).await;
    let words = " \"\" is invalid: patch: Invalid value: \"map[nope:map[a:x b:[1]]]\": strict decoding error: unknown \
                 field \"nope\"";
    assert_eq!(refused.expect_code(422).json()["message"], words);
}

#[tokio::test]
async fn replicas_at_the_scale_paths_of_a_custom_kind_are_not_negative() {
    let (api, _) = start();
    define_widgets(&api).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"replicas": -1},
    });
    let (code, refused) = post(&api, WIDGETS, &widget).await;
    let cause = &refused["details"]["causes"][0];
    let words = "Invalid value: -1: should be a non-negative integer";
    assert_eq!((code, &cause["field"], &cause["message"]), (422, &json!(".spec.replicas"), &json!(words)));
}

/// As recorded on Kubernetes 1.36.3: parts of some kinds ignore these fields, others refuse them.
#[tokio::test]
async fn the_deletion_of_an_object_is_ignored_or_refused_in_updates_of_its_parts() {
    let (api, _) = start();
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let service = json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}});
    let attachment = json!({"metadata": {"name": "x"},
        "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "x"}}});
    let flow = json!({"metadata": {"name": "x"}, "spec": {"priorityLevelConfiguration": {"name": "exempt"}}});
    let api_service = json!({"metadata": {"name": "v1.x.io"},
        "spec": {"group": "x.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}});
    let cases = [
        ("/api/v1/namespaces/default/pods", pod, &["status", "ephemeralcontainers", "resize"][..], (200, 422)),
        ("/api/v1/namespaces/default/services", service, &["status"], (422, 422)),
        ("/apis/storage.k8s.io/v1/volumeattachments", attachment, &["status"], (200, 422)),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", flow, &["status"], (200, 200)),
        ("/apis/apiregistration.k8s.io/v1/apiservices", api_service, &["status"], (422, 422)),
    ];
    for (path, object, parts, expect) in cases {
        let (code, created) = post(&api, path, &object).await;
        assert_eq!(code, 201, "{created}");
        let place = format!("{path}/{}", created["metadata"]["name"].as_str().unwrap());
        for part in parts {
            let with = async |field: &str, value: Value| {
                let mut sent = send(&api, &format!("GET {place}"), &[], "").await.json();
                sent["metadata"][field] = value;
                let (code, answer) = put(&api, &format!("{place}/{part}"), &sent).await;
                assert_eq!(answer["metadata"].get(field), None);
                code
            };
            let time = with("deletionTimestamp", json!("2030-01-01T00:00:00Z")).await;
            let period = with("deletionGracePeriodSeconds", json!(5)).await;
            assert_eq!((time, period), expect, "{place}/{part}");
        }
    }
}
