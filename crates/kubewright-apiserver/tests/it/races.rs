//! Writes beside which their object, or its namespace, is deleted.

use std::sync::{Arc, Barrier};

use kubewright_apiserver::ApiServer;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::{
    admission::{CONFIG_MAPS, configure, entry},
    conversion::{World, convert},
    raw::{get, send},
    webhook::{Hook, allow},
};

const APPLY: &str = "Content-Type: application/apply-patch+yaml";

/// The API server of a webhook that uses it.
type Slot = Arc<Mutex<Option<ApiServer>>>;

/// Sends a request within a handler, and waits for its answer.
fn now(api: &ApiServer, line: &str, body: &str) {
    let (api, line, body) = (api.clone(), line.to_owned(), body.to_owned());
    let merge = "Content-Type: application/merge-patch+json";
    let headers = if line.starts_with("PATCH") { vec![merge] } else { Vec::new() };
    let answer = tokio::task::block_in_place(|| Handle::current().block_on(send(&api, &line, &headers, body)));
    assert!(answer.code < 300, "{line}: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_apply_creates_an_object_that_is_deleted_during_its_review() {
    let api = ApiServer::builder().build();
    let slot = Slot::default();
    let inner = slot.clone();
    let hook = Hook::start(move |_, _| {
        let api = inner.lock().take();
        if let Some(api) = api {
            now(&api, &format!("DELETE {CONFIG_MAPS}/c"), "");
        }
        allow()
    })
    .await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let line = format!("PATCH {CONFIG_MAPS}/c?fieldManager=m&force=true");
    assert_eq!(send(&api, &line, &[APPLY], config.to_string()).await.code, 201);
    let rules =
        json!([{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    configure(&api, "Validating", "v", &[entry("v", hook.client("/"), json!({"rules": rules}))]).await;
    *slot.lock() = Some(api.clone());
    let mut changed = config.clone();
    changed["data"]["a"] = "2".into();
    let answer = send(&api, &line, &[APPLY], changed.to_string()).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_created_in_a_namespace_that_is_gone_after_the_conversion() {
    let world = World::start().await;
    let (api, slot) = (world.api.clone(), Slot::default());
    send(&api, "POST /api/v1/namespaces", &[], json!({"metadata": {"name": "n"}}).to_string()).await;
    let inner = slot.clone();
    *world.act.lock() = Arc::new(move |request| {
        let api = inner.lock().take();
        if let Some(api) = api {
            // As the namespace controller does for a namespace without content.
            now(&api, "DELETE /api/v1/namespaces/n", "");
            let end = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"},"spec":{"finalizers":[]}}"#;
            now(&api, "PUT /api/v1/namespaces/n/finalize", end);
        }
        convert(request)
    });
    *slot.lock() = Some(api.clone());
    let pane =
        json!({"apiVersion": "example.com/v1", "kind": "Pane", "metadata": {"name": "p"}, "spec": {"size": "1x2"}});
    let created = send(&api, "POST /apis/example.com/v1/namespaces/n/panes", &[], pane.to_string()).await;
    let namespace = get(&api, "/api/v1/namespaces/n", "").await;
    let left = get(&api, "/apis/example.com/v2/panes", "").await;
    assert_eq!(namespace.code, 404, "{}", namespace.text);
    assert_ne!(created.code, 201, "{}\n{}", created.text, left.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_port_and_an_address_are_allocated_once() {
    let api = ApiServer::builder().build();
    // Both are validated before either is stored.
    let both = Arc::new(Barrier::new(2));
    let hook = Hook::start(move |_, _| {
        let both = both.clone();
        tokio::task::block_in_place(|| both.wait());
        allow()
    })
    .await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}]);
    configure(&api, "Validating", "v", &[entry("v", hook.client("/"), json!({"rules": rules}))]).await;
    let create = async |name: &str| {
        let service = json!({
            "metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 32111}]},
        });
        send(&api, "POST /api/v1/namespaces/default/services", &[], service.to_string()).await.code
    };
    let (a, b) = tokio::join!(create("a"), create("b"));
    assert_eq!((a.min(b), a.max(b)), (201, 422));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_object_that_was_validated_before_its_schema_changed_follows_the_new_one() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let api = ApiServer::builder().build();
    let definition = |properties: serde_json::Value| {
        let spec = json!({"type": "object", "properties": properties});
        json!({
            "metadata": {"name": "foos.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
            },
        })
    };
    let text = json!({"type": "string"});
    let old = definition(json!({"x": text, "y": text}));
    send(&api, &format!("POST {DEFINITIONS}"), &[], old.to_string()).await.expect_code(201);
    let slot = Slot::default();
    let inner = slot.clone();
    let new = json!({"spec": definition(json!({"y": text, "z": {"type": "string", "default": "d"}}))["spec"]});
    // A merge patch, in which the properties that are gone are null.
    let mut patch = new;
    patch["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] = json!(null);
    let hook = Hook::start(move |_, _| {
        let api = inner.lock().take();
        if let Some(api) = api {
            now(&api, &format!("PATCH {DEFINITIONS}/foos.example.com"), &patch.to_string());
        }
        allow()
    })
    .await;
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["foos"]}]);
    configure(&api, "Validating", "v", &[entry("v", hook.client("/"), json!({"rules": rules}))]).await;
    *slot.lock() = Some(api.clone());
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    let foo =
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"x": "1", "y": "2"}});
    send(&api, &format!("POST {foos}"), &[], foo.to_string()).await.expect_code(201);
    let found = send(&api, &format!("GET {foos}/a"), &[], "").await.expect_code(200).json();
    assert_eq!(found["spec"], json!({"y": "2", "z": "d"}));
}
