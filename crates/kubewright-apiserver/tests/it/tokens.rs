//! Tokens of service accounts.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use kubewright_apimachinery::clock::VirtualClock;
use kubewright_apiserver::{ApiServer, UserInfo};
use serde_json::{Value, json};

use crate::raw::{send, send_as};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A server with a service account, on a virtual clock.
async fn start() -> ApiServer {
    let api = ApiServer::builder().clock(VirtualClock::starting_at(Timestamp::UNIX_EPOCH)).build();
    create(&api, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    api
}

async fn create(api: &ApiServer, path: &str, object: Value) -> Value {
    send(api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201).json()
}

async fn token(api: &ApiServer, spec: Value) -> Value {
    create(api, &format!("{ACCOUNTS}/robot/token"), json!({"spec": spec})).await
}

fn text(request: &Value) -> &str {
    request["status"]["token"].as_str().unwrap()
}

/// The user of a token; the code of the response if the token is invalid.
async fn whoami(api: &ApiServer, token: &str) -> Result<Value, u16> {
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("Authorization", format!("Bearer {token}")).body(Full::from("{}")).unwrap();
    let (parts, body) = api.handle(request).await.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    if parts.status == 201 { Ok(body["status"]["userInfo"].clone()) } else { Err(parts.status.as_u16()) }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_valid_until_it_expires() {
    let api = start().await;
    let made = token(&api, json!({"expirationSeconds": 600})).await;
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("TokenRequest"), &json!("authentication.k8s.io/v1")));
    assert_eq!(made["status"]["expirationTimestamp"], "1970-01-01T00:10:00Z");
    assert_eq!(made["spec"]["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    let user = whoami(&api, text(&made)).await.unwrap();
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    assert!(user["uid"].is_string() && user["extra"].to_string().contains("JTI="), "{user}");
    tokio::time::advance(Duration::from_secs(599)).await;
    assert!(whoami(&api, text(&made)).await.is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(whoami(&api, text(&made)).await, Err(401), "expired");
}

#[tokio::test]
async fn foreign_and_revoked_tokens_are_refused() {
    let api = start().await;
    let other = start().await;
    let made = token(&api, json!({})).await;
    assert_eq!(whoami(&other, text(&made)).await, Err(401), "of another server");
    let (head, rest) = text(&made).split_once('.').unwrap();
    assert_eq!(whoami(&api, &format!("{head}.x{rest}")).await, Err(401), "tampered");
    let elsewhere = token(&api, json!({"audiences": ["elsewhere"]})).await;
    assert_eq!(whoami(&api, text(&elsewhere)).await, Err(401), "for others");

    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    });
    create(&api, "/api/v1/namespaces/default/pods", pod).await;
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let bound = token(&api, bound).await;
    let user = whoami(&api, text(&bound)).await.unwrap();
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    send(&api, "DELETE /api/v1/namespaces/default/pods/p", &[], "").await.expect_code(200);
    assert_eq!(whoami(&api, text(&bound)).await, Err(401), "the pod is gone");
    assert!(whoami(&api, text(&made)).await.is_ok());
    send(&api, &format!("DELETE {ACCOUNTS}/robot"), &[], "").await.expect_code(200);
    create(&api, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(whoami(&api, text(&made)).await, Err(401), "the account is another");
}

#[tokio::test]
async fn token_requests_are_validated_and_authorized() {
    let api = start().await;
    let path = format!("POST {ACCOUNTS}/robot/token");
    for (spec, code) in [(json!({"expirationSeconds": 10}), 422), (json!(1), 400)] {
        send(&api, &path, &[], json!({"spec": spec}).to_string()).await.expect_code(code);
    }
    send(&api, &format!("POST {ACCOUNTS}/nobody/token"), &[], "{}").await.expect_code(404);
    send(&api, &format!("GET {ACCOUNTS}/robot/token"), &[], "").await.expect_code(405);
    let robot = UserInfo::service_account("default", "robot");
    let refused = send_as(&api, &robot, &path, &[], "{}").await.expect_code(403).json();
    let said = "serviceaccounts \"robot\" is forbidden: User \"system:serviceaccount:default:robot\" cannot create \
                resource \"serviceaccounts/token\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused["message"], said);
}

#[tokio::test]
async fn token_reviews_authenticate_tokens() {
    let api = start().await;
    let review = async |token: &str, audiences: Value| {
        let question = json!({"spec": {"token": token, "audiences": audiences}});
        create(&api, "/apis/authentication.k8s.io/v1/tokenreviews", question).await["status"].clone()
    };
    let made = token(&api, json!({"audiences": ["a", "b"]})).await;
    let good = review(text(&made), json!(["b", "c"])).await;
    assert_eq!((&good["authenticated"], &good["audiences"]), (&json!(true), &json!(["b"])));
    assert_eq!(good["user"]["username"], "system:serviceaccount:default:robot");
    let bad = review(text(&made), json!([])).await;
    assert!(bad["authenticated"].is_null() && bad["error"].as_str().unwrap().contains("audiences"), "{bad}");
}

#[tokio::test]
async fn audiences_of_the_server_are_set() {
    let api = ApiServer::builder().service_account_issuer("https://issuer").api_audiences(["a", "b"]).build();
    create(&api, ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let default = token(&api, json!({})).await;
    assert_eq!(default["spec"]["audiences"], json!(["a", "b"]));
    let one = token(&api, json!({"audiences": ["b"]})).await;
    for valid in [&default, &one] {
        assert!(whoami(&api, text(valid)).await.is_ok());
    }
    let other = token(&api, json!({"audiences": ["https://issuer"]})).await;
    assert_eq!(whoami(&api, text(&other)).await, Err(401), "the issuer isn't among them");
    let review = json!({"spec": {"token": text(&one)}});
    let status = create(&api, "/apis/authentication.k8s.io/v1/tokenreviews", review).await["status"].take();
    assert_eq!(status["audiences"], json!(["b"]));
}
