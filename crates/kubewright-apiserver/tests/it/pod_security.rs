//! Pods under the Pod Security Standards, compared with recorded answers of Kubernetes.

use kubewright_apiserver::{ApiServer, PodSecurityConfig, UserInfo};
use serde_json::{Value, json};

use crate::{raw::send_as, start};

/// What `data/pod-security.py` has recorded.
const RECORDED: &str = include_str!("../data/pod-security.json");

/// What 1.36.3 answers with the configuration of the test: request, user, body, code, message and warnings.
const CONFIGURED: &str = include_str!("../data/pod-security-config.json");

async fn answer(api: &ApiServer, request: &str, body: &Value) -> Value {
    let of = if request.starts_with("POST") { "json" } else { "strategic-merge-patch+json" };
    answer_as(api, &UserInfo::new("admin", ["system:masters"]), request, of, body).await
}

/// Returns the answer to a user's request with a body in this form.
async fn answer_as(api: &ApiServer, user: &UserInfo, request: &str, of: &str, body: &Value) -> Value {
    let response = send_as(api, user, request, &[&format!("Content-Type: application/{of}")], body.to_string()).await;
    let message = if response.code >= 400 { response.json()["message"].clone() } else { Value::Null };
    let warnings = response.headers.get_all("warning").iter().map(|header| {
        let text = header.to_str().expect("a text").split_once(" - ").expect("a warning").1;
        serde_json::from_str::<String>(text).expect("a quoted text")
    });
    json!([response.code, message, warnings.collect::<Vec<_>>()])
}

#[tokio::test]
async fn pods_and_templates_are_judged_as_kubernetes_judges_them() {
    let (api, _) = start();
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let requests = recorded["requests"].as_array().expect("requests");
    assert!(requests.len() > 500);
    let mut differences = Vec::new();
    for one in requests {
        let (request, place) = (one[0].as_str().expect("a request"), one[1].as_u64().expect("a place"));
        let body = &recorded["bodies"][usize::try_from(place).expect("a place")];
        let found = answer(&api, request, body).await;
        let expected = json!([one[2], one[3], one[4]]);
        if found != expected {
            differences.push(format!("{request} {body}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn a_configuration_has_defaults_and_exemptions() {
    let config = PodSecurityConfig::from_value(json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline", "warn": "restricted", "warn-version": "v1.30"},
        "exemptions": {"usernames": ["robot"], "namespaces": ["exempt"], "runtimeClasses": ["vm"]},
    }));
    let api = ApiServer::builder().pod_security(config.expect("a configuration")).build();
    let recorded: Vec<Value> = serde_json::from_str(CONFIGURED).expect("JSON");
    for one in recorded {
        let (request, user) = (one[0].as_str().expect("a request"), one[1].as_str().expect("a user"));
        let of = if request.starts_with("POST") { "json" } else { "merge-patch+json" };
        let user = if user.is_empty() { "admin" } else { user };
        let user = UserInfo::new(user, ["system:masters"]);
        let found = answer_as(&api, &user, request, of, &one[2]).await;
        assert_eq!(found, json!([one[3], one[4], one[5]]), "{request} {}", one[2]);
    }
}
