//! Protobuf bodies, which kubectl and Go clients send for built-in kinds.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_apiserver::ApiServer;
use serde_json::Value;

use crate::raw::{RawResponse, send};

const PROTOBUF: &str = "Content-Type: application/vnd.kubernetes.protobuf";
const ACCEPT: &str = "Accept: application/vnd.kubernetes.protobuf,application/json";

/// A server whose responses are the same in every run.
fn start() -> ApiServer {
    let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
    ApiServer::builder().clock(clock).random(Random::seeded(1)).build()
}

async fn post(api: &ApiServer, path: &str, content: &str, body: impl Into<Vec<u8>>) -> RawResponse {
    send(api, &format!("POST {path}?fieldValidation=Strict"), &[content, ACCEPT], body).await
}

fn captured() -> Vec<Value> {
    serde_json::from_str(include_str!("../data/kubectl.json")).unwrap()
}

#[tokio::test]
async fn a_protobuf_body_makes_the_same_object_as_json() {
    for record in captured() {
        let (command, path) = (&record["command"], record["path"].as_str().unwrap());
        let body = STANDARD.decode(record["body"].as_str().unwrap()).unwrap();
        let made = post(&start(), path, PROTOBUF, body).await;
        assert_eq!((made.code, made.header("content-type")), (201, "application/json"), "{command}: {}", made.text);
        let twin = post(&start(), path, "Content-Type: application/json", record["object"].to_string()).await;
        assert_eq!(made.json(), twin.json(), "{command}");
    }
}

#[tokio::test]
async fn malformed_protobuf_is_refused() {
    let api = start();
    let namespace = captured().remove(0);
    let path = namespace["path"].as_str().unwrap();
    let body = STANDARD.decode(namespace["body"].as_str().unwrap()).unwrap();
    for body in
        [&body[..body.len() - 5], &body[4..], b"k8s\0", b"", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let answer = post(&api, path, PROTOBUF, body).await;
        assert_eq!((answer.code, &answer.json()["reason"]), (400, &"BadRequest".into()), "{}", answer.text);
    }
    let other = post(&api, "/api/v1/namespaces/default/pods", PROTOBUF, body.clone()).await;
    assert_eq!(other.code, 400, "{}", other.text);
    assert_eq!(send(&api, &format!("GET {path}/fixed"), &[], "").await.code, 404);
    let large = [&body[..], &vec![0; 3 << 20]].concat();
    assert_eq!(post(&api, path, PROTOBUF, large).await.code, 413);
    let only = [PROTOBUF, "Accept: application/vnd.kubernetes.protobuf"];
    assert_eq!(send(&api, &format!("POST {path}"), &only, body).await.code, 406);
    assert_eq!(send(&api, &format!("GET {path}/fixed"), &[], "").await.code, 404);
}

#[tokio::test]
async fn delete_options_may_be_protobuf() {
    let api = start();
    let record = captured().remove(1);
    let path = record["path"].as_str().unwrap();
    let made = post(&api, path, PROTOBUF, STANDARD.decode(record["body"].as_str().unwrap()).unwrap()).await;
    assert_eq!(made.code, 201, "{}", made.text);
    // The envelope of `v1` `DeleteOptions`, whose precondition names another uid.
    let options = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x05\x12\x03\x0a\x01u";
    let line = format!("DELETE {path}/fixed");
    assert_eq!(send(&api, &line, &[PROTOBUF], &options[..]).await.code, 409);
    let options = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x00";
    assert_eq!(send(&api, &line, &[PROTOBUF], &options[..]).await.code, 200);
}
