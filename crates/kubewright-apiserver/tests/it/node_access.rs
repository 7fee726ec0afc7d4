//! What nodes may do, compared with recorded answers of Kubernetes.

use std::collections::BTreeMap;

use kubewright_apiserver::{ApiServer, AuthorizationMode, UserInfo};
use serde_json::{Value, json};

use crate::raw::{send, send_as};

/// What `data/node-access.py` has recorded.
const RECORDED: &str = include_str!("../data/node-access.json");

fn restricted() -> ApiServer {
    ApiServer::builder()
        .service_account_admission(true)
        .authorization_modes([AuthorizationMode::Node, AuthorizationMode::Rbac])
        .node_restriction(true)
        .build()
}

/// Sends requests, with the UIDs of objects in place of `{uid:PATH}`.
struct Sender {
    api: ApiServer,
    uids: BTreeMap<String, String>,
}

impl Sender {
    async fn fill(&mut self, mut text: String) -> String {
        while let Some(start) = text.find("{uid:") {
            let end = start + text[start..].find('}').expect("an end");
            let path = text[start + 5..end].to_owned();
            if !self.uids.contains_key(&path) {
                let object = send(&self.api, &format!("GET {path}"), &[], "").await.expect_code(200).json();
                self.uids.insert(path.clone(), object["metadata"]["uid"].as_str().expect("a UID").to_owned());
            }
            text.replace_range(start..=end, &self.uids[&path]);
        }
        text
    }

    /// Returns the code of the answer, and the message of an error or the status of a review.
    async fn send(&mut self, user: &str, request: &str, body: &Value) -> Value {
        let patch = "application/strategic-merge-patch+json";
        let of = if request.starts_with("PATCH") { patch } else { "application/json" };
        let body = if body.is_null() { String::new() } else { self.fill(body.to_string()).await };
        let user = match user {
            "admin" => UserInfo::admin(),
            node => UserInfo::new(format!("system:node:{node}"), ["system:nodes", "system:authenticated"]),
        };
        let response = send_as(&self.api, &user, request, &[&format!("Content-Type: {of}")], body).await;
        let mut said = Value::Null;
        if response.code >= 400 {
            let mut message = response.json()["message"].as_str().unwrap_or_default().to_owned();
            for (path, uid) in &self.uids {
                message = message.replace(uid, &format!("{{uid:{path}}}"));
            }
            said = message.into();
        } else if request.contains("/apis/authorization.k8s.io/") {
            said = response.json()["status"].take();
        }
        if request.ends_with("selfsubjectrulesreviews") {
            said = json!({"incomplete": said["incomplete"], "evaluationError": said["evaluationError"]});
        }
        json!([response.code, said])
    }
}

#[tokio::test]
async fn requests_of_nodes_are_answered_as_by_kubernetes() {
    let mut sender = Sender { api: restricted(), uids: BTreeMap::new() };
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    // A controller creates it in Kubernetes.
    let account = json!({"metadata": {"name": "default"}});
    assert_eq!(sender.send("admin", "POST /api/v1/namespaces/default/serviceaccounts", &account).await[0], 201);
    for object in recorded["objects"].as_array().expect("objects") {
        let request = format!("POST {}", object[0].as_str().expect("a path"));
        let made = sender.send("admin", &request, &object[1]).await;
        assert_eq!(made[0], 201, "{object} {made}");
    }
    let requests = recorded["requests"].as_array().expect("requests");
    assert!(requests.len() > 200);
    let mut differences = Vec::new();
    for one in requests {
        let (user, request) = (one[0].as_str().expect("a user"), one[1].as_str().expect("a request"));
        let found = sender.send(user, request, &one[2]).await;
        let expected = json!([one[3], one[4]]);
        if found != expected {
            differences.push(format!("{user} {request} {}\n  found    {found}\n  expected {expected}", one[2]));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn a_node_without_the_authorizer_has_the_roles_of_other_users() {
    let api = ApiServer::builder().build();
    let node = UserInfo::new("system:node:a", ["system:nodes", "system:authenticated"]);
    let get = send_as(&api, &node, "GET /api/v1/nodes/a", &[], "").await.expect_code(403).json();
    let said = "nodes \"a\" is forbidden: User \"system:node:a\" cannot get resource \"nodes\" in API group \"\" at the cluster scope";
    assert_eq!(get["message"], said);
}
