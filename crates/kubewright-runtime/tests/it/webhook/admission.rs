//! Webhooks for requests without a typed object: connections, subresources, several kinds; and without a manager.

use axum::body::Body;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use kubewright_runtime::{
    clock::SystemClock,
    metrics::Metrics,
    webhook::{
        self, AdmissionHandler, AdmissionRule, AdmissionWebhook, Allowed, Denied, Operation, StandaloneWebhooks,
        WebhookServer,
    },
};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::scene::{NAME, Scene, until};
use crate::world::run;

/// Denies connections to `admin`, evictions of pods named `precious`, and more than three replicas.
struct Guard;

impl AdmissionHandler for Guard {
    async fn handle(&self, request: &webhook::Request) -> Result<Allowed, Denied> {
        let object: Value = request.object().unwrap_or_default();
        let about = format!(
            "{} {} {}/{} as {}",
            request.operation,
            request.name,
            request.kind.plural,
            request.subresource.as_deref().unwrap_or_default(),
            request.kind.kind
        );
        match request.subresource.as_deref() {
            Some("proxy") if object["path"].as_str().is_some_and(|path| path.contains("admin")) => {
                Err(Denied::forbidden(about))
            }
            Some("eviction") if request.name == "precious" => Err(Denied::forbidden(about)),
            Some("scale") if object["spec"]["replicas"].as_u64() > Some(3) => Err(Denied::forbidden(about)),
            _ => Ok(Allowed::unchanged().warn(format!("seen: {about}"))),
        }
    }
}

/// Labels each object with its resource.
struct Stamp;

impl AdmissionHandler for Stamp {
    async fn handle(&self, request: &webhook::Request) -> Result<Allowed, Denied> {
        let mut object: Value = request.object().unwrap_or_default();
        object["metadata"]["labels"]["stamp"] = request.kind.plural.as_str().into();
        Allowed::changed(&object)
    }
}

fn guard() -> AdmissionWebhook {
    let connections = AdmissionRule::of::<Pod>().subresource("proxy").operations([Operation::Connect]);
    let evictions = AdmissionRule::new("", "v1", "pods/eviction").operations([Operation::Create]);
    let scales = AdmissionRule::new("apps", "*", "*/scale").operations([Operation::Update]);
    AdmissionWebhook::validating("guard.example.com", "/guard", Guard).rule(connections).rule(evictions).rule(scales)
}

fn stamp() -> AdmissionWebhook {
    let rule = AdmissionRule::new("", "*", "*").namespaced(true).operations([Operation::Create]);
    AdmissionWebhook::mutating("stamp.example.com", "/stamp", Stamp).rule(rule)
}

fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "busybox"}]}});
    serde_json::from_value(pod).expect("a pod")
}

fn message<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String) {
    match answer.expect_err("it is refused") {
        kube::Error::Api(status) => (status.code, status.message),
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn connections_subresources_and_all_kinds_are_admitted() {
    let scene = Scene::new();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("one");
    scene.api().create(&PostParams::default(), &account).await.expect("created");
    let manager = scene.manager(WebhookServer::local()).admission(guard()).admission(stamp());
    let manager = run(manager);
    let (validating, mutating) =
        (format!("{NAME}-validating-webhook-configuration"), format!("{NAME}-mutating-webhook-configuration"));
    until("the configurations are there", async || {
        let validating = scene.all::<ValidatingWebhookConfiguration>().get_opt(&validating).await.unwrap();
        let mutating = scene.all::<MutatingWebhookConfiguration>().get_opt(&mutating).await.unwrap();
        validating.is_some() && mutating.is_some()
    })
    .await;
    let created = scene.create("c", json!({})).await.expect("created");
    assert_eq!(created.labels()["stamp"], "configmaps");
    assert_eq!(created.data.expect("data")["default"], "system:admin", "the typed webhook is called too");
    for name in ["precious", "cheap"] {
        let created = scene.api::<Pod>().create(&PostParams::default(), &pod(name)).await.expect("created");
        assert_eq!(created.labels()["stamp"], "pods");
    }

    let (code, text) = message(scene.api::<Pod>().evict("precious", &Default::default()).await);
    assert_eq!(code, 403, "{text}");
    assert!(text.ends_with("CREATE precious pods/eviction as Eviction"), "{text}");
    scene.api::<Pod>().evict("cheap", &Default::default()).await.expect("it may go");
    let proxy = "/api/v1/namespaces/default/pods/precious/proxy/admin";
    let proxy = Request::get(proxy).body(Vec::new()).expect("a request");
    let (code, text) = message(scene.client.request_text(proxy).await);
    assert_eq!(code, 403, "{text}");
    assert!(text.ends_with("CONNECT precious pods/proxy as PodProxyOptions"), "{text}");

    let deployment: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
    }}))
    .expect("a deployment");
    let deployments = scene.api::<Deployment>();
    let created = deployments.create(&PostParams::default(), &deployment).await.expect("created");
    assert!(!created.labels().contains_key("stamp"), "it is of another group");
    let scale = |replicas: u32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch_scale("web", &PatchParams::default(), &scale(3)).await.expect("three are fine");
    let (code, text) = message(deployments.patch_scale("web", &PatchParams::default(), &scale(4)).await);
    assert_eq!(code, 403, "{text}");
    assert!(text.ends_with("UPDATE web deployments/scale as Scale"), "{text}");
    manager.stop().await;
    assert!(scene.all::<ValidatingWebhookConfiguration>().get_opt(&validating).await.unwrap().is_none());
}

#[tokio::test]
async fn the_description_has_rules_and_rights_of_raw_webhooks() {
    let manager = kubewright_runtime::manager::Manager::new(Scene::new().client).admission(guard());
    let document = manager.describe().document().expect("a document");
    let [configuration] = document.webhook_configurations.as_slice() else { panic!("one") };
    assert_eq!(configuration["webhooks"][0]["name"], "guard.example.com");
    let rules = configuration["webhooks"][0]["rules"].as_array().expect("rules");
    let resources = rules.iter().map(|rule| rule["resources"][0].as_str().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(resources, ["pods/proxy", "pods/eviction", "*/scale"]);
    assert_eq!(rules[0]["operations"], json!(["CONNECT"]));
    let rights = document.features["webhook"].iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(rights.contains("validatingwebhookconfigurations") && !rights.contains("mutatingwebhook"), "{rights}");
}

#[tokio::test]
async fn webhooks_are_routes_of_any_server() {
    let metrics = Metrics::new(SystemClock::shared());
    let typed = webhook::Webhook::<ConfigMap>::new().validating(super::scene::Rules);
    let routes = StandaloneWebhooks::new().webhook(typed).admission(stamp()).router(&metrics);
    let review = async |path: &str, data: Value| {
        let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "operation": "CREATE", "name": "c",
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "object": {"metadata": {"name": "c", "labels": {}}, "data": data},
        }});
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        let answer = routes.clone().oneshot(request.expect("a request")).await.expect("an answer");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice::<Value>(&body).expect("a review")["response"].take()
    };
    assert_eq!(review("/validate--v1-configmap", json!({"bad": "1"})).await["status"]["code"], 422);
    assert_eq!(review("/validate--v1-configmap", json!({"fine": "1"})).await["allowed"], true);
    let stamped = review("/stamp", json!({})).await;
    assert_eq!((&stamped["allowed"], &stamped["patchType"]), (&json!(true), &json!("JSONPatch")));
    let text = metrics.encode().expect("text");
    assert!(text.contains("controller_runtime_webhook_requests_total{code=\"200\",webhook=\"/stamp\"} 1"), "{text}");
}
