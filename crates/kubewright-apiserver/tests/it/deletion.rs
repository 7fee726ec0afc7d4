//! The responses to deletions.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

const CORE: &str = "/api/v1/namespaces/default";

async fn create(api: &ApiServer, path: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = "a".into();
    send(api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201).json()
}

async fn delete(api: &ApiServer, path: &str, options: Value) -> Value {
    let body = if options.is_null() { String::new() } else { options.to_string() };
    send(api, &format!("DELETE {path}"), &[], body).await.json()
}

fn pod() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

#[tokio::test]
async fn a_deletion_answers_the_object_or_a_status_by_kind() {
    let (api, _) = start();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod()});
    let job = json!({"metadata": {}, "spec": {"containers": pod()["containers"], "restartPolicy": "Never"}});
    for (path, object, kind) in [
        (format!("{CORE}/configmaps"), json!({}), "Status"),
        (format!("{CORE}/secrets"), json!({}), "Status"),
        (format!("{CORE}/pods"), json!({"spec": pod()}), "Pod"),
        (format!("{CORE}/services"), json!({"spec": {"ports": [{"port": 1}]}}), "Service"),
        (format!("{CORE}/serviceaccounts"), json!({}), "ServiceAccount"),
        (format!("{CORE}/resourcequotas"), json!({}), "ResourceQuota"),
        (format!("{CORE}/replicationcontrollers"), json!({"spec": {"template": template}}), "ReplicationController"),
        ("/apis/batch/v1/namespaces/default/jobs".into(), json!({"spec": {"template": job}}), "Job"),
        (
            "/apis/apps/v1/namespaces/default/deployments".into(),
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            "Status",
        ),
        ("/api/v1/namespaces".into(), json!({}), "Namespace"),
    ] {
        let created = create(&api, &path, object).await;
        let answer = delete(&api, &format!("{path}/a"), Value::Null).await;
        assert_eq!(answer["kind"], kind, "{answer}");
        let uid = if kind == "Status" { &answer["details"]["uid"] } else { &answer["metadata"]["uid"] };
        assert_eq!(uid, &created["metadata"]["uid"]);
    }
}

#[tokio::test]
async fn only_an_object_that_waits_for_its_removal_is_marked() {
    let (api, _) = start();
    let services = format!("{CORE}/services");
    create(&api, &services, json!({"spec": {"ports": [{"port": 1}]}})).await;
    let removed = delete(&api, &format!("{services}/a"), Value::Null).await;
    assert_eq!(removed["metadata"].get("deletionTimestamp"), None, "{removed}");
    // A pod is deleted gracefully, even if the grace period is zero because no node has it.
    let pods = format!("{CORE}/pods");
    create(&api, &pods, json!({"spec": pod()})).await;
    let removed = delete(&api, &format!("{pods}/a"), json!({"gracePeriodSeconds": 30})).await;
    assert_eq!(removed["metadata"]["deletionGracePeriodSeconds"], 0, "{removed}");
    send(&api, &format!("GET {pods}/a"), &[], "").await.expect_code(404);
}

#[tokio::test]
async fn jobs_orphan_their_pods_unless_the_client_decides() {
    let (api, _) = start();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"containers": pod()["containers"], "restartPolicy": "Never"}});
    create(&api, jobs, json!({"spec": {"template": template}})).await;
    let answer = send(&api, &format!("DELETE {jobs}/a"), &[], "").await.expect_code(200);
    assert!(answer.header("warning").contains("child pods are preserved by default when jobs are deleted"));
    assert_eq!(answer.json()["metadata"]["finalizers"], json!(["orphan"]));
    let answer = delete(&api, &format!("{jobs}/a"), json!({"propagationPolicy": "Background"})).await;
    assert_eq!(answer["kind"], "Status", "{answer}");
}

#[tokio::test]
async fn preconditions_name_the_kind() {
    let (api, _) = start();
    let configs = format!("{CORE}/configmaps");
    let uid = create(&api, &configs, json!({})).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let refused = delete(&api, &format!("{configs}/a"), json!({"preconditions": {"uid": "x"}})).await;
    let words = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match the UID in \
         record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((&refused["message"], &refused["details"]["kind"]), (&json!(words), &json!("ConfigMap")));
    create(&api, "/api/v1/namespaces", json!({})).await;
    let refused = delete(&api, "/api/v1/namespaces/a", json!({"preconditions": {"uid": "x"}})).await;
    let words =
        "Operation cannot be fulfilled on namespaces \"a\": Precondition failed: UID in precondition: x, UID in";
    assert!(refused["message"].as_str().unwrap().starts_with(words), "{refused}");
}

#[tokio::test]
async fn a_dry_run_has_one_value() {
    let (api, _) = start();
    let configs = format!("{CORE}/configmaps");
    create(&api, &configs, json!({})).await;
    let refused = delete(&api, &format!("{configs}/a?dryRun=Foo"), Value::Null).await;
    let words = "Unsupported value: [\"Foo\"]: supported values: \"All\"";
    assert_eq!(refused["details"]["causes"][0]["message"], words);
    assert_eq!(delete(&api, &format!("{configs}/a?dryRun=All"), Value::Null).await["kind"], "Status");
    send(&api, &format!("GET {configs}/a"), &[], "").await.expect_code(200);
}

#[tokio::test]
async fn a_collection_answers_the_list_that_it_deletes() {
    let (api, _) = start();
    let configs = format!("{CORE}/configmaps");
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name, "finalizers": ["example.com/x"]}});
        send(&api, &format!("POST {configs}"), &[], object.to_string()).await.expect_code(201);
    }
    let page = delete(&api, &format!("{configs}?limit=2"), Value::Null).await;
    assert_eq!((&page["kind"], page["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), 2));
    assert_eq!(page["items"][0]["metadata"].get("deletionTimestamp"), None, "as it was listed");
    assert!(page["metadata"]["continue"].is_string());
    let left = send(&api, &format!("GET {configs}"), &[], "").await.json();
    let marked =
        left["items"].as_array().unwrap().iter().filter(|one| one["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked.count(), 2);
}

#[tokio::test]
async fn a_name_stays_taken_while_its_object_is_being_deleted() {
    let (api, _) = start();
    let configs = format!("{CORE}/configmaps");
    create(&api, &configs, json!({"metadata": {"finalizers": ["example.com/x"]}})).await;
    delete(&api, &format!("{configs}/a"), Value::Null).await;
    let taken = send(&api, &format!("POST {configs}"), &[], json!({"metadata": {"name": "a"}}).to_string()).await;
    let words = "object is being deleted: configmaps \"a\" already exists";
    assert_eq!((taken.code, &taken.json()["message"]), (409, &json!(words)));
}

#[tokio::test]
async fn a_definition_that_is_being_deleted_accepts_no_objects() {
    let (api, _) = start();
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, &format!("POST {definitions}"), &[], definition.to_string()).await.expect_code(201);
    let marked = delete(&api, &format!("{definitions}/widgets.example.com"), Value::Null).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let line = "POST /apis/example.com/v1/namespaces/default/widgets";
    let refused = send(&api, line, &[], widget.to_string()).await.expect_code(403).json();
    let words =
        "widgets.example.com \"w\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!(refused["message"], words);
}

/// As in Kubernetes, the end of the grace period is an event of its own, also if there is no such period.
#[tokio::test(start_paused = true)]
async fn watchers_see_the_end_of_a_grace_period() {
    let (api, _client) = start();
    let pods = format!("{CORE}/pods");
    let created = create(&api, &pods, json!({"spec": pod()})).await;
    let dry = delete(&api, &format!("{pods}/a?dryRun=All"), Value::Null).await;
    assert_eq!((&dry["kind"], &dry["metadata"]["deletionGracePeriodSeconds"]), (&"Pod".into(), &0.into()));
    let answer = delete(&api, &format!("{pods}/a"), Value::Null).await;
    assert_eq!((&answer["kind"], &answer["metadata"]["deletionGracePeriodSeconds"]), (&"Pod".into(), &0.into()));
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("GET {pods}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let events = send(&api, &watch, &[], "").await.expect_code(200).text;
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["MODIFIED", "DELETED"]);
    for event in &events {
        let metadata = &event["object"]["metadata"];
        assert_eq!((&metadata["deletionGracePeriodSeconds"], &metadata["generation"]), (&0.into(), &2.into()));
    }
}

/// Without a body, the query has the preconditions, also those of each object of a collection.
#[tokio::test]
async fn the_query_has_the_preconditions_of_a_deletion_without_body() {
    let (api, _) = start();
    let configs = format!("{CORE}/configmaps");
    let create = async |name: &str| {
        let object = json!({"metadata": {"name": name}}).to_string();
        let created = send(&api, &format!("POST {configs}"), &[], object).await.expect_code(201).json();
        created["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let version = create("a").await;
    for (query, words) in [("uid=5", "the UID in the precondition (5)"), ("resourceVersion=5", "(5) does not match")] {
        let refused = send(&api, &format!("DELETE {configs}/a?{query}"), &[], "").await.expect_code(409);
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    // The list is that of the version, so the younger object isn't deleted, and a body has preconditions of its own.
    let younger = create("b").await;
    let collection = format!("DELETE {configs}?resourceVersion={version}");
    let answer = send(&api, &collection, &[], "{}").await.expect_code(200).json();
    assert_eq!(answer["items"].as_array().unwrap().len(), 1, "{answer}");
    create("c").await;
    let refused = send(&api, &format!("DELETE {configs}?resourceVersion={younger}"), &[], "").await;
    assert_eq!(refused.code, 200, "{}", refused.text);
    create("b").await;
    let refused =
        send(&api, &format!("DELETE {configs}?resourceVersion={younger}&resourceVersionMatch=NotOlderThan"), &[], "")
            .await;
    assert_eq!(refused.code, 409, "{}", refused.text);
}
