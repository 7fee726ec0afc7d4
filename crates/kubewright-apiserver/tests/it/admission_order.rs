//! The order of built-in admission, mutating policies and webhooks. The requests that webhooks get were recorded on a
//! real control plane.

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{
    admission::{MERGE, configure, create, entry, refused},
    raw::send,
    webhook::{Hook, allow, patch},
};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server that admits pods by service accounts, with an account and a limit range.
async fn start() -> ApiServer {
    let api = ApiServer::builder().service_account_admission(true).build();
    let account = json!({"metadata": {"name": "default"}});
    assert_eq!(create(&api, "/api/v1/namespaces/default/serviceaccounts", account).await.code, 201);
    let limits = json!([{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    assert_eq!(create(&api, "/api/v1/namespaces/default/limitranges", range).await.code, 201);
    api
}

fn rule(resource: &str) -> Value {
    json!({
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}],
        "reinvocationPolicy": "IfNeeded",
    })
}

fn pod(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}})
}

fn tolerations() -> Value {
    let keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let toleration = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    keys.map(toleration).into()
}

#[tokio::test]
async fn webhooks_see_what_built_in_plugins_set_and_these_run_again_after_a_change() {
    let api = start().await;
    let hook = Hook::start(|path, request| {
        let has_side = request["object"]["spec"]["containers"].as_array().unwrap().len() > 1;
        if path == "/see" || has_side {
            return allow();
        }
        patch(&json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "busybox"}}]))
    })
    .await;
    let hooks = [entry("a", hook.client("/see"), rule("pods")), entry("b", hook.client("/add"), rule("pods"))];
    configure(&api, "Mutating", "m", &hooks).await;
    let mut generated = pod("", json!({}));
    generated["metadata"] = json!({"generateName": "p-"});
    let created = create(&api, PODS, generated).await;
    assert_eq!(created.code, 201, "{}", created.text);

    let requests = hook.requests();
    let first = &requests[0]["object"];
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}});
    let volume = first["spec"]["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    assert_eq!(first["spec"]["containers"][0]["resources"], resources);
    assert_eq!(first["spec"]["containers"][0]["volumeMounts"][0]["name"], volume);
    assert_eq!((&first["spec"]["serviceAccountName"], &first["spec"]["priority"]), (&json!("default"), &json!(0)));
    assert_eq!(first["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(first["spec"]["tolerations"], tolerations());
    let note = |of: &str| {
        json!(format!("LimitRanger plugin set: cpu request for container {of}; cpu limit for container {of}"))
    };
    const NOTE: &str = "kubernetes.io/limit-ranger";
    assert_eq!(first["metadata"]["annotations"][NOTE], note("c"));
    assert_eq!((&first["metadata"]["uid"], &first["metadata"]["name"]), (&Value::Null, &Value::Null));

    // The plugins complete the container that the second webhook added, so both are called again.
    assert_eq!(requests.len(), 4);
    for again in &requests[2..] {
        let again = &again["object"];
        assert_eq!(again["spec"]["containers"][1]["resources"], resources);
        assert_eq!(again["spec"]["containers"][1]["volumeMounts"][0]["name"], volume);
        assert_eq!(again["metadata"]["annotations"][NOTE], note("side"));
    }
    let stored = created.json();
    assert_eq!(stored["spec"], requests[3]["object"]["spec"]);
    assert_eq!(stored["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
}

#[tokio::test]
async fn what_a_webhook_removes_is_set_again() {
    let api = start().await;
    let hook = Hook::start(|path, _| match path {
        "/see" => allow(),
        _ => patch(&json!([{"op": "remove", "path": "/spec/tolerations"}])),
    })
    .await;
    let mut once = rule("pods");
    once["reinvocationPolicy"] = "Never".into();
    let hooks = [entry("a", hook.client("/see"), rule("pods")), entry("b", hook.client("/remove"), once)];
    configure(&api, "Mutating", "m", &hooks).await;
    let created = create(&api, PODS, pod("p", json!({}))).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(created.json()["spec"]["tolerations"], tolerations());
    assert_eq!(hook.paths(), ["/see", "/remove", "/see"]);
    let body = json!({"metadata": {"annotations": {"a": "b"}}}).to_string();
    let patched = send(&api, &format!("PATCH {PODS}/p"), &[MERGE], body).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    assert_eq!(patched.json()["spec"]["tolerations"], tolerations());
    assert_eq!(hook.paths(), ["/see", "/remove", "/see"]);
}

#[tokio::test]
async fn plugins_refuse_what_a_webhook_makes_wrong() {
    let api = start().await;
    let class = json!([{"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"}]);
    let hook = Hook::start(move |_, _| patch(&class)).await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), rule("pods"))]).await;
    refused(
        &create(&api, PODS, pod("p", json!({}))).await,
        403,
        "pods \"p\" is forbidden: the integer value of priority (0) must not be provided in pod spec; priority admission \
         controller computed 2000001000 from the given PriorityClass name",
    );
}

#[tokio::test]
async fn a_refusal_of_a_plugin_precedes_webhooks() {
    let api = start().await;
    let hook = Hook::start(|_, _| allow()).await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), rule("pods"))]).await;
    let mut wrong = pod("p", json!({}));
    wrong["spec"]["priorityClassName"] = "none".into();
    refused(&create(&api, PODS, wrong).await, 403, "no PriorityClass with name none was found");
    assert!(hook.requests().is_empty());
}

#[tokio::test]
async fn policies_see_what_built_in_plugins_set() {
    let api = start().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let expression = "Object{metadata: Object.metadata{annotations: {'seen': \
                      object.spec.serviceAccountName + ' ' + object.spec.containers[0].resources.limits.cpu + ' ' + \
                      string(object.spec.priority)}}}";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "reinvocationPolicy": "Never", "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }});
    let answer = create(&api, &format!("{group}/mutatingadmissionpolicies"), policy).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p"}});
    assert_eq!(create(&api, &format!("{group}/mutatingadmissionpolicybindings"), binding).await.code, 201);
    let created = create(&api, PODS, pod("p", json!({}))).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(created.json()["metadata"]["annotations"]["seen"], "default 1 0");
}

#[tokio::test]
async fn claims_are_protected_before_webhooks_see_them() {
    let api = start().await;
    let hook = Hook::start(|_, _| allow()).await;
    configure(&api, "Mutating", "m", &[entry("m", hook.client("/"), rule("persistentvolumeclaims"))]).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "c"}, "spec": spec});
    let created = create(&api, "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!(created.code, 201, "{}", created.text);
    assert_eq!(hook.requests()[0]["object"]["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}
