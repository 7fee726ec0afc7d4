//! Pods under the Pod Security Standards, compared with recorded answers of Kubernetes.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{raw::send, start};

/// What `data/pod-security.py` has recorded.
const RECORDED: &str = include_str!("../data/pod-security.json");

async fn answer(api: &ApiServer, request: &str, body: &Value) -> Value {
    let of = if request.starts_with("POST") { "json" } else { "strategic-merge-patch+json" };
    let response = send(api, request, &[&format!("Content-Type: application/{of}")], body.to_string()).await;
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
