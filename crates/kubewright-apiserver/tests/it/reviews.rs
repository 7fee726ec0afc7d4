//! Access, token and user reviews.

use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Full};
use kubewright_apiserver::{ApiServer, UserInfo};
use serde_json::{Value, json};

use crate::{raw::send, start};

async fn ask(api: &ApiServer, path: &str, spec: Value) -> (u16, Value) {
    let answer = send(api, &format!("POST {path}"), &[], json!({"spec": spec}).to_string()).await;
    (answer.code, answer.json())
}

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

#[tokio::test]
async fn a_self_subject_review_names_the_requester() {
    let (api, _) = start();
    let (code, me) = ask(&api, &format!("{AUTHENTICATION}/selfsubjectreviews"), json!({})).await;
    assert_eq!((code, &me["kind"]), (201, &json!("SelfSubjectReview")));
    assert_eq!(me["status"]["userInfo"]["username"], "system:admin");
    assert!(me["metadata"]["creationTimestamp"].is_string(), "{me}");
    assert_eq!(me["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
    let (code, unknown) = ask(&api, &format!("{AUTHENTICATION}/tokenreviews"), json!({"token": "x"})).await;
    assert_eq!((code, &unknown["status"]["authenticated"]), (201, &Value::Null), "{unknown}");
    assert_eq!(ask(&api, &format!("{AUTHENTICATION}/tokenreviews"), json!({})).await.0, 400);
}

#[tokio::test]
async fn a_self_subject_access_review_decides_for_the_requester() {
    let (api, _) = start();
    let pods = json!({"namespace": "default", "verb": "create", "resource": "pods"});
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let (code, review) = ask(&api, &path, json!({"resourceAttributes": pods})).await;
    assert_eq!((code, &review["status"]), (201, &json!({"allowed": true})));
    let (_, review) = ask(&api, &path, json!({"nonResourceAttributes": {"path": "/logs", "verb": "get"}})).await;
    assert_eq!(review["status"]["allowed"], true);
    let both = json!({"resourceAttributes": pods, "nonResourceAttributes": {"path": "/"}});
    for (spec, code) in [(json!({}), 422), (both, 422), (json!({"resourceAttributes": 1}), 400)] {
        assert_eq!(ask(&api, &path, spec.clone()).await.0, code, "{spec}");
    }
    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let (code, rules) = ask(&api, &path, json!({"namespace": "default"})).await;
    assert_eq!((code, &rules["status"]["resourceRules"][0]["verbs"]), (201, &json!(["*"])));
    assert_eq!(ask(&api, &path, json!({})).await.0, 400);
    // Go clients also send fields that are not set.
    let status = json!({"resourceRules": null, "nonResourceRules": null, "incomplete": false});
    let question = json!({"metadata": {"creationTimestamp": null}, "spec": {"namespace": "default"}, "status": status});
    assert_eq!(send(&api, &format!("POST {path}"), &[], question.to_string()).await.code, 201);
}

#[tokio::test]
async fn subject_access_reviews_decide_for_other_users() {
    let (api, _) = start();
    let spec = |user: &str, namespace: &str| json!({"user": user, "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"}});
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    let (code, review) = ask(&api, &path, spec("jane", "default")).await;
    assert_eq!((code, &review["status"]), (201, &json!({"allowed": false})));
    let mut master = spec("jane", "default");
    master["groups"] = json!(["system:masters"]);
    let (_, review) = ask(&api, &path, master).await;
    assert_eq!(review["status"]["allowed"], true);
    assert_eq!(ask(&api, &path, spec("", "default")).await.0, 422);
    let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(ask(&api, &path, spec("jane", "default")).await.0, 201);
    assert_eq!(ask(&api, &path, spec("jane", "kube-system")).await.0, 422);
}

#[tokio::test]
async fn reviews_are_not_stored_and_need_authentication() {
    let (api, _) = start();
    let path = format!("{AUTHENTICATION}/selfsubjectreviews");
    for line in [format!("GET {path}"), format!("GET {path}/x"), format!("DELETE {path}/x")] {
        assert_eq!(send(&api, &line, &[], "").await.code, 405, "{line}");
    }
    let request = Request::post(&path).extension(Arc::new(UserInfo::anonymous())).body(Full::from("{}")).unwrap();
    let (parts, body) = api.handle(request).await.into_parts();
    body.collect().await.unwrap();
    assert_eq!(parts.status, 403);
    let document = send(&api, "GET /openapi/v3/apis/authentication.k8s.io/v1", &[], "").await.json();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.api.authentication.v1.SelfSubjectReview"));
    assert!(schemas.keys().all(|name| !name.ends_with('.')), "{:?}", schemas.keys());
}
