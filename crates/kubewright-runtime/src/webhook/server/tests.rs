//! The routes of the webhook server, without a socket.

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright_apimachinery::clock::VirtualClock;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::webhook::{Denied, Request as Asked, ValidationErrors, Validator, Webhook};

/// A validator whose behaviour depends on the object's name.
struct Moody;

impl Validator<ConfigMap> for Moody {
    async fn validate_create(&self, config: &ConfigMap, _: &Asked) -> Result<ValidationErrors, Denied> {
        match config.metadata.name.as_deref() {
            Some("panic") => panic!("on purpose"),
            Some("sleep") => tokio::time::sleep(Duration::from_secs(3600)).await,
            Some("bad") => drop("x".parse::<u8>()?),
            _ => {}
        }
        Ok(ValidationErrors::default())
    }
}

struct Scene {
    router: Router,
    metrics: Metrics,
}

impl Scene {
    fn new() -> Self {
        let clock: SharedClock = VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let metrics = Metrics::new(clock.clone());
        let webhook = WebhookMetrics::new(metrics.registry(), clock.clone());
        let webhooks = Webhook::<ConfigMap>::new().validating(Moody).endpoints();
        let registrations = Registrations { webhooks, ..Registrations::default() };
        Self { router: router(&registrations, &clock, &webhook), metrics }
    }

    async fn send(&self, path: &str, kind: &str, body: impl Into<Body>) -> (u16, String) {
        let request = Request::post(path).header("content-type", kind).body(body.into()).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn review(&self, name: &str, query: &str) -> Value {
        let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "operation": "CREATE",
            "object": {"metadata": {"name": name}},
        }});
        let (code, text) = self.send(&format!("{PATH}{query}"), "application/json", body.to_string()).await;
        assert_eq!(code, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["response"].take()
    }

    fn counted(&self, line: &str) {
        let text = self.metrics.encode().unwrap();
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

const PATH: &str = "/validate--v1-configmap";

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_and_counted() {
    let scene = Scene::new();
    scene.counted(&format!("controller_runtime_webhook_requests_total{{code=\"200\",webhook=\"{PATH}\"}} 0"));
    let response = scene.review("fine", "").await;
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(true)));
    scene.counted(&format!("controller_runtime_webhook_requests_total{{code=\"200\",webhook=\"{PATH}\"}} 1"));
    scene.counted(&format!("controller_runtime_webhook_latency_seconds_count{{webhook=\"{PATH}\"}} 1"));
    scene.counted(&format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{PATH}\"}} 0"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_denies_the_request_and_the_next_is_served() {
    let scene = Scene::new();
    let response = scene.review("panic", "").await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(500)));
    assert_eq!(response["status"]["message"], "panic: on purpose [recovered]");
    scene.counted("controller_runtime_webhook_panics_total 1");
    assert_eq!(scene.review("fine", "").await["allowed"], true);
}

#[tokio::test(start_paused = true)]
async fn a_slow_webhook_ends_with_the_timeout_of_the_api_server() {
    let scene = Scene::new();
    for (query, says) in [("?timeout=7s", "7s"), ("?timeout=90s", "30s"), ("", "30s"), ("?timeout=x", "30s")] {
        let status = scene.review("sleep", query).await["status"].take();
        assert_eq!(
            (&status["code"], &status["message"]),
            (&json!(504), &json!(format!("the webhook took longer than {says}")))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_webhook_is_reported_as_such() {
    let status = Scene::new().review("bad", "").await["status"].take();
    assert_eq!(status["message"], "Internal error occurred: invalid digit found in string");
}

#[tokio::test(start_paused = true)]
async fn invalid_reviews_get_a_status_code_and_a_message() {
    let scene = Scene::new();
    let check = async |kind: &str, body: Vec<u8>, code: u16, says: &str| {
        let (found, text) = scene.send(PATH, kind, body).await;
        assert_eq!(found, code, "{text}");
        assert!(text.contains(says), "{text}");
    };
    let json = "application/json";
    check(json, vec![], 400, "request body is empty").await;
    check("text/plain", b"{}".to_vec(), 400, "contentType=text/plain, expected application/json").await;
    check("application/json; charset=utf-8", b"{}".to_vec(), 400, "expected an AdmissionReview").await;
    check(json, b"\xff".to_vec(), 400, "not an AdmissionReview").await;
    check(json, vec![b' '; BODY_LIMIT], 400, "not an AdmissionReview: EOF").await;
    check(json, vec![b' '; BODY_LIMIT + 1], 413, "request entity is too large; limit is 7340032 bytes").await;
    scene.counted(&format!("controller_runtime_webhook_requests_total{{code=\"413\",webhook=\"{PATH}\"}} 1"));
    assert_eq!(scene.send("/elsewhere", json, "").await.0, 404);
}
