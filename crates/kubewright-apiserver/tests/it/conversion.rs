//! Conversion of custom kinds by a webhook.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use kubewright_apiserver::{ApiServer, UserInfo};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    admission::{MERGE, configure, entry, refused},
    raw::{RawResponse, send},
    webhook::{Hook, Reply, allow, annotate},
};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const V1: &str = "/apis/example.com/v1/namespaces/default/panes";
pub(crate) const V2: &str = "/apis/example.com/v2/namespaces/default/panes";

/// A version: `size` in the first is `width` and `height` in the second.
pub(crate) fn version(name: &str, storage: bool) -> Value {
    let number = json!({"type": "integer"});
    let mut spec = match name {
        "v1" => json!({"size": {"type": "string"}}),
        _ => json!({"width": number, "height": number, "glass": {"type": "string", "default": "clear"}}),
    };
    spec["replicas"] = number.clone();
    json!({
        "name": name, "served": true, "storage": storage,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "selectableFields": [{"jsonPath": if name == "v1" { ".spec.size" } else { ".spec.width" }}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"replicas": number}},
        }}},
    })
}

pub(crate) fn definition(versions: &[Value], conversion: &Value) -> Value {
    json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "panes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions, "conversion": conversion,
            "names": {"kind": "Pane", "plural": "panes"},
        },
    })
}

pub(crate) fn by_webhook(client: Value) -> Value {
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
}

/// Returns the object in the other version.
pub(crate) fn converted(object: &Value, to: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.clone();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
    if to == "example.com/v2" {
        if let Some(size) = spec.remove("size") {
            let (width, height) = size.as_str().unwrap().split_once('x').unwrap();
            spec.insert("width".into(), width.parse::<i64>().unwrap().into());
            spec.insert("height".into(), height.parse::<i64>().unwrap().into());
        }
    } else if let (Some(width), Some(height)) = (spec.remove("width"), spec.remove("height")) {
        spec.insert("size".into(), format!("{width}x{height}").into());
    }
    object
}

pub(crate) fn convert(request: &Value) -> Reply {
    let objects = request["objects"].as_array().unwrap().iter();
    let objects: Vec<_> = objects.map(|object| converted(object, &request["desiredAPIVersion"])).collect();
    Reply::Response(json!({"result": {"status": "Success"}, "convertedObjects": objects}))
}

type Act = dyn Fn(&Value) -> Reply + Send + Sync;

/// A server with panes in two versions, stored as the second, and the webhook that converts them.
pub(crate) struct World {
    pub(crate) api: ApiServer,
    pub(crate) hook: Hook,
    pub(crate) act: Arc<Mutex<Arc<Act>>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let api = ApiServer::builder().build();
        let act: Arc<Mutex<Arc<Act>>> = Arc::new(Mutex::new(Arc::new(convert)));
        let acting = act.clone();
        let hook = Hook::start(move |path, request| match path {
            "/convert" => {
                let act = acting.lock().clone();
                act(request)
            }
            "/annotate" => annotate(request, "seen", request["object"]["apiVersion"].as_str().unwrap()),
            _ => allow(),
        })
        .await;
        let world = Self { api, hook, act };
        let definition = definition(&[version("v1", false), version("v2", true)], &world.conversion());
        world.send(&format!("POST {DEFINITIONS}"), &[], definition).await.expect_code(201);
        world
    }

    pub(crate) fn conversion(&self) -> Value {
        by_webhook(self.hook.client("/convert"))
    }

    /// Replaces the webhook's behaviour.
    pub(crate) fn becomes(&self, act: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.act.lock() = Arc::new(act);
    }

    pub(crate) async fn send(&self, line: &str, headers: &[&str], body: Value) -> RawResponse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut all = vec!["User-Agent: tester"];
        all.extend(headers);
        send(&self.api, line, &all, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(&format!("GET {path}"), &[], Value::Null).await.expect_code(200).json()
    }

    pub(crate) async fn create(&self, version: &str, name: &str, spec: Value) -> Value {
        let path = if version == "v1" { V1 } else { V2 };
        self.send(&format!("POST {path}"), &[], pane(version, name, spec)).await.expect_code(201).json()
    }

    /// Returns the requests to the webhook since the last call: the desired version and the number of objects.
    fn asked(&self) -> Vec<(String, usize)> {
        let summary = |request: Value| {
            let version = request["desiredAPIVersion"].as_str().unwrap_or("admission").to_owned();
            (version, request["objects"].as_array().map_or(0, Vec::len))
        };
        self.hook.requests().into_iter().map(summary).collect()
    }
}

pub(crate) fn pane(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Pane", "metadata": {"name": name}, "spec": spec})
}

fn to_v1(objects: usize) -> (String, usize) {
    ("example.com/v1".into(), objects)
}

fn to_v2(objects: usize) -> (String, usize) {
    ("example.com/v2".into(), objects)
}

#[tokio::test]
async fn objects_are_stored_in_one_version_and_served_in_all() {
    let world = World::start().await;
    let created = world.create("v1", "a", json!({"size": "3x4"})).await;
    assert_eq!((&created["apiVersion"], &created["spec"]), (&json!("example.com/v1"), &json!({"size": "3x4"})));
    assert_eq!(world.asked(), [to_v2(1), to_v1(1)], "once for the store, once for the answer");
    let read = world.get(&format!("{V2}/a")).await;
    let expect = json!({"width": 3, "height": 4, "glass": "clear"});
    assert_eq!(read["spec"], expect, "with the defaults of the stored version");
    assert_eq!(world.asked(), [], "it is stored so");
    world.create("v2", "b", json!({"width": 5, "height": 6})).await;
    world.create("v2", "c", json!({"width": 7, "height": 8})).await;
    assert_eq!(world.asked(), []);
    let listed = world.get(V1).await;
    let sizes: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| item["spec"]["size"].clone()).collect();
    assert_eq!(
        (&listed["apiVersion"], sizes),
        (&json!("example.com/v1"), vec!["3x4".into(), "5x6".into(), "7x8".into()])
    );
    assert_eq!(world.asked(), [to_v1(3)], "one request for all of a list");
    let table =
        send(&world.api, &format!("GET {V1}"), &["Accept: application/json;as=Table;v=v1;g=meta.k8s.io"], "").await;
    assert_eq!(table.json()["rows"].as_array().unwrap().len(), 3);
    let chosen = world.get(&format!("{V1}?fieldSelector=spec.size%3D5x6&limit=1")).await;
    assert_eq!(chosen["items"][0]["metadata"]["name"], "b", "a version's fields are selected by that version");
    let whole = world.get(&format!("{V1}?limit=2")).await;
    assert_eq!((whole["items"].as_array().unwrap().len(), &whole["metadata"]["remainingItemCount"]), (2, &json!(1)));
}

#[tokio::test]
async fn responses_have_the_version_of_the_request() {
    let world = World::start().await;
    let created = world.create("v1", "a", json!({"size": "3x4", "replicas": 1})).await;
    let mut wanted = created.clone();
    wanted["spec"]["size"] = "5x6".into();
    let put = world.send(&format!("PUT {V1}/a"), &[], wanted.clone()).await.expect_code(200).json();
    assert_eq!((&put["spec"]["size"], &put["metadata"]["generation"]), (&json!("5x6"), &json!(2)));
    refused(&world.send(&format!("PUT {V1}/a"), &[], wanted).await, 409, "the object has been modified");
    let same = world.send(&format!("PUT {V1}/a"), &[], put.clone()).await.expect_code(200).json();
    assert_eq!(same["metadata"]["resourceVersion"], put["metadata"]["resourceVersion"], "nothing changed");
    let merge = json!({"spec": {"size": "7x8"}});
    let merged = world.send(&format!("PATCH {V1}/a"), &[MERGE], merge).await.expect_code(200).json();
    assert_eq!(merged["spec"]["size"], "7x8");
    let json_patch = "Content-Type: application/json-patch+json";
    let patch = json!([{"op": "test", "path": "/spec/width", "value": 7}, {"op": "replace", "path": "/spec/width", "value": 9}]);
    world.send(&format!("PATCH {V2}/a"), &[json_patch], patch).await.expect_code(200);
    assert_eq!(world.get(&format!("{V1}/a")).await["spec"]["size"], "9x8");
    let apply = pane("v1", "a", json!({"size": "1x1"}));
    let header = ["Content-Type: application/apply-patch+yaml"];
    let line = format!("PATCH {V1}/a?fieldManager=applier&force=true");
    let applied = world.send(&line, &header, apply).await.expect_code(200).json();
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let of = |manager: &str, version: &str| {
        managers
            .iter()
            .any(|entry| entry["manager"] == manager && entry["apiVersion"] == format!("example.com/{version}"))
    };
    assert!(of("applier", "v1") && of("tester", "v1"), "{managers:?}");
    let new = pane("v1", "new", json!({"size": "2x2"}));
    world.send(&format!("PATCH {V1}/new?fieldManager=applier"), &header, new).await.expect_code(201);
    assert_eq!(world.get(&format!("{V2}/new")).await["spec"]["width"], 2);
    let status = json!({"status": {"replicas": 4}, "spec": {"size": "0x0"}});
    let patched = world.send(&format!("PATCH {V1}/a/status"), &[MERGE], status).await.expect_code(200).json();
    assert_eq!((&patched["status"]["replicas"], &patched["spec"]["size"]), (&json!(4), &json!("1x1")));
    let scale = world.send(&format!("PATCH {V1}/a/scale"), &[MERGE], json!({"spec": {"replicas": 3}})).await;
    let scale = scale.expect_code(200).json();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(3), &json!(4)));
    assert_eq!(world.get(&format!("{V1}/a/scale")).await["spec"]["replicas"], 3);
    let dry = world.send(&format!("PATCH {V1}/a?dryRun=All"), &[MERGE], json!({"spec": {"size": "4x4"}})).await;
    assert_eq!(dry.expect_code(200).json()["spec"]["size"], "4x4");
    let stored = world.get(&format!("{V2}/a")).await;
    assert_eq!(stored["spec"], json!({"width": 1, "height": 1, "replicas": 3, "glass": "clear"}));
}

#[tokio::test]
async fn deletions_return_the_version_of_the_request() {
    let world = World::start().await;
    let mut held = pane("v1", "held", json!({"size": "1x2"}));
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    world.send(&format!("POST {V1}"), &[], held).await.expect_code(201);
    let going = world.send(&format!("DELETE {V1}/held"), &[], Value::Null).await.expect_code(200).json();
    assert_eq!(going["spec"]["size"], "1x2");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let release = json!({"metadata": {"finalizers": null}});
    world.send(&format!("PATCH {V1}/held"), &[MERGE], release).await.expect_code(200);
    world.send(&format!("GET {V2}/held"), &[], Value::Null).await.expect_code(404);
    for name in ["a", "b"] {
        world.create("v1", name, json!({"size": "1x2"})).await;
    }
    let line = format!("DELETE {V1}?fieldSelector=spec.size%3D1x2");
    let gone = world.send(&line, &[], Value::Null).await.expect_code(200).json();
    assert_eq!((gone["items"].as_array().unwrap().len(), &gone["items"][0]["spec"]["size"]), (2, &json!("1x2")));
    assert_eq!(world.get(V2).await["items"], json!([]));
}

#[tokio::test]
async fn admission_webhooks_get_the_version_that_they_name() {
    let world = World::start().await;
    let rules = |version: &str| {
        let rule = json!({"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": [version], "resources": ["panes"]});
        json!({"rules": [rule]})
    };
    configure(&world.api, "Mutating", "m", &[entry("m", world.hook.client("/annotate"), rules("v2"))]).await;
    configure(&world.api, "Validating", "v", &[entry("v", world.hook.client("/v"), rules("v1"))]).await;
    let created = world.create("v1", "a", json!({"size": "3x4"})).await;
    assert_eq!(created["metadata"]["annotations"]["seen"], "example.com/v2");
    assert_eq!((&created["apiVersion"], &created["spec"]), (&json!("example.com/v1"), &json!({"size": "3x4"})));
    let requests = world.hook.requests();
    let reviews: Vec<_> = requests.iter().filter(|request| request["operation"].is_string()).collect();
    let kinds = |request: &Value| [&request["kind"], &request["requestKind"]].map(|kind| kind["version"].clone());
    assert_eq!(kinds(reviews[0]), [json!("v2"), json!("v1")]);
    assert_eq!(reviews[0]["object"]["spec"]["width"], 3);
    assert_eq!((kinds(reviews[1]), &reviews[1]["object"]["spec"]["size"]), ([json!("v1"), json!("v1")], &json!("3x4")));
    world.send(&format!("PATCH {V2}/a"), &[MERGE], json!({"spec": {"width": 5}})).await.expect_code(200);
    let requests = world.hook.requests();
    let validated = requests.iter().rfind(|request| request["operation"] == "UPDATE").unwrap();
    let sizes = [&validated["object"], &validated["oldObject"]].map(|object| object["spec"]["size"].clone());
    assert_eq!((kinds(validated), sizes), ([json!("v1"), json!("v2")], [json!("5x4"), json!("3x4")]));
}

#[tokio::test]
async fn a_former_storage_version_is_removable_once_unused() {
    let world = World::start().await;
    world.create("v1", "old", json!({"size": "3x4"})).await;
    let versions = async |versions: &[Value]| {
        let conversion =
            if versions.len() == 1 { json!({"strategy": "None", "webhook": null}) } else { world.conversion() };
        let patch = json!({"spec": {"versions": versions, "conversion": conversion}});
        world.send(&format!("PATCH {DEFINITIONS}/panes.example.com"), &[MERGE], patch).await
    };
    let moved = versions(&[version("v1", true), version("v2", false)]).await.expect_code(200).json();
    assert_eq!(moved["status"]["storedVersions"], json!(["v2", "v1"]));
    world.create("v1", "new", json!({"size": "5x6"})).await;
    world.hook.requests();
    let listed = world.get(V1).await;
    assert_eq!(world.asked(), [to_v1(1)], "only what is stored in the other version");
    let gone = versions(&[version("v1", true)]).await;
    refused(
        &gone,
        422,
        "status.storedVersions[0]: Invalid value: \"v2\": missing from spec.versions; v2 was previously",
    );
    let unserved = |name: &str| {
        let mut version = version(name, false);
        version["served"] = false.into();
        version
    };
    versions(&[version("v1", true), unserved("v2")]).await.expect_code(200);
    world.send(&format!("GET {V2}/old"), &[], Value::Null).await.expect_code(404);
    assert_eq!(world.get(&format!("{V1}/old")).await["spec"]["size"], "3x4", "what isn't served is still read");
    let status = format!("PATCH {DEFINITIONS}/panes.example.com/status");
    let malformed = json!({"status": {"acceptedNames": {"plural": "A b"}}});
    refused(&world.send(&status, &[MERGE], malformed).await, 422, "status.acceptedNames.plural: Invalid value");
    // The stored versions are up to the client. None at all mean the version in which objects are stored.
    for (stored, expected) in [(json!(["v2"]), ["v2"]), (json!([]), ["v1"])] {
        let changed = json!({"status": {"storedVersions": stored}});
        let changed = world.send(&format!("{status}?dryRun=All"), &[MERGE], changed).await.expect_code(200).json();
        assert_eq!(changed["status"]["storedVersions"], json!(expected));
    }
    // An object that is written back unchanged is stored in the new version, once.
    for item in listed["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        let put = world.send(&format!("PUT {V1}/{name}"), &[], item.clone()).await.expect_code(200).json();
        let moved = put["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"];
        assert_eq!(moved, name == "old", "{name}");
    }
    world.hook.requests();
    world.get(&format!("{V1}/old")).await;
    assert_eq!(world.asked(), [], "it is stored as v1 now");
    let migrated = json!({"status": {"storedVersions": ["v1"]}});
    world.send(&status, &[MERGE], migrated).await.expect_code(200);
    versions(&[version("v1", true)]).await.expect_code(200);
    assert_eq!(world.get(&format!("{V1}/old")).await["spec"]["size"], "3x4");
}

#[tokio::test]
async fn without_a_webhook_only_the_version_changes() {
    let api = ApiServer::builder().build();
    let definition = definition(&[version("v1", false), version("v2", true)], &json!({"strategy": "None"}));
    send(&api, &format!("POST {DEFINITIONS}"), &[], definition.to_string()).await.expect_code(201);
    let body = pane("v1", "a", json!({"size": "3x4", "replicas": 2})).to_string();
    let created = send(&api, &format!("POST {V1}"), &[], body).await.expect_code(201).json();
    assert_eq!(created["spec"], json!({"replicas": 2}), "the stored version doesn't know a size");
    let read = send(&api, &format!("GET {V2}/a"), &[], "").await.json();
    let expect = json!({"replicas": 2, "glass": "clear"});
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("example.com/v2"), &expect));
    let scaled = send(&api, &format!("PATCH {V1}/a/scale"), &[MERGE], r#"{"spec":{"replicas":5}}"#).await;
    assert_eq!(scaled.expect_code(200).json()["spec"]["replicas"], 5);
}

#[tokio::test]
async fn versions_are_in_kubernetes_order_with_their_schemas() {
    let world = World::start().await;
    let mut old = version("v1", false);
    old["deprecated"] = true.into();
    let patch =
        json!({"spec": {"versions": [version("v3alpha1", false), old, version("v2", true), version("v10", false)]}});
    world.send(&format!("PATCH {DEFINITIONS}/panes.example.com"), &[MERGE], patch).await.expect_code(200);
    let group = world.get("/apis/example.com").await;
    let versions: Vec<_> = group["versions"].as_array().unwrap().iter().map(|it| it["version"].clone()).collect();
    assert_eq!(versions, ["v10", "v2", "v1", "v3alpha1"]);
    assert_eq!(group["preferredVersion"]["version"], "v10");
    for (name, field) in [("v1", "size"), ("v2", "width")] {
        let document = world.get(&format!("/openapi/v3/apis/example.com/{name}")).await;
        let schema = &document["components"]["schemas"][&format!("com.example.{name}.Pane")];
        assert!(schema["properties"]["spec"]["properties"][field].is_object(), "{schema}");
    }
    let warned = world.send(&format!("GET {V1}"), &[], Value::Null).await;
    assert_eq!(warned.header("warning"), r#"299 - "example.com/v1 Pane is deprecated; use example.com/v10 Pane""#);
}

/// Returns the events of a watch that ends after a while, as type, size and resource version.
async fn events(world: &World, query: &str) -> Vec<Value> {
    let answer = world.send(&format!("GET {V1}?watch=true&{query}"), &[], Value::Null).await.expect_code(200);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_watch_has_events_in_its_version() {
    let world = World::start().await;
    world.create("v1", "a", json!({"size": "3x4"})).await;
    let start = world.get(V2).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    world.send(&format!("PATCH {V2}/a"), &[MERGE], json!({"spec": {"width": 9}})).await.expect_code(200);
    world.create("v2", "b", json!({"width": 5, "height": 6})).await;
    world.send(&format!("DELETE {V2}/a"), &[], Value::Null).await.expect_code(200);
    let shown = |events: Vec<Value>| {
        let shown = events.iter().map(|event| format!("{} {}", event["type"], event["object"]["spec"]["size"]));
        shown.collect::<Vec<_>>().join(", ").replace('"', "")
    };
    world.hook.requests();
    let since = format!("timeoutSeconds=1&resourceVersion={start}");
    assert_eq!(shown(events(&world, &since).await), "MODIFIED 9x4, ADDED 5x6, DELETED 9x4");
    assert_eq!(world.asked(), [to_v1(3)], "what is read at once is one request");
    assert_eq!(shown(events(&world, &since).await), "MODIFIED 9x4, ADDED 5x6, DELETED 9x4");
    assert_eq!(world.asked(), [], "another watcher of the version shares it");
    let entering = format!("{since}&fieldSelector=spec.size%3D9x4");
    assert_eq!(shown(events(&world, &entering).await), "ADDED 9x4, DELETED 9x4");
    assert_eq!(shown(events(&world, "timeoutSeconds=1&resourceVersion=0").await), "ADDED 5x6");
}

#[tokio::test]
async fn a_watch_ends_at_an_object_that_cannot_be_converted() {
    let world = World::start().await;
    let start = world.get(V2).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    world.create("v2", "good", json!({"width": 1, "height": 2})).await;
    world.create("v2", "bad", json!({"width": 3, "height": 4})).await;
    world.create("v2", "late", json!({"width": 5, "height": 6})).await;
    world.becomes(|request| match request.to_string().contains("\"bad\"") {
        true => Reply::Response(json!({"result": {"status": "Failed", "message": "no such glass"}})),
        false => convert(request),
    });
    let seen = events(&world, &format!("timeoutSeconds=30&resourceVersion={start}")).await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((&seen[0]["type"], &seen[0]["object"]["spec"]["size"]), (&json!("ADDED"), &json!("1x2")));
    assert_eq!((&seen[1]["type"], &seen[1]["object"]["code"]), (&json!("ERROR"), &json!(500)));
    let why = "conversion webhook for example.com/v2, Kind=Pane failed: no such glass";
    assert_eq!(seen[1]["object"]["message"], why);
    // A client that resumes at its last version after the webhook works again misses nothing.
    world.becomes(convert);
    let version = seen[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let rest = events(&world, &format!("timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(rest.len(), 2, "{rest:?}");
}

#[tokio::test]
async fn a_watch_ends_when_its_definition_changes() {
    let world = World::start().await;
    let watch = async |version: &str| {
        let path = format!("{V1}?watch=true&resourceVersion={version}");
        let request = Request::get(path).extension(Arc::new(UserInfo::admin()));
        world.api.handle(request.body(Full::<Bytes>::default()).unwrap()).await.into_body()
    };
    let mut first = watch("0").await;
    let ended = tokio::spawn(async move { first.frame().await.is_none() });
    tokio::task::yield_now().await;
    let second = Hook::start(|_, request| convert(request)).await;
    let patch = json!({"spec": {"conversion": by_webhook(second.client("/"))}});
    world.send(&format!("PATCH {DEFINITIONS}/panes.example.com"), &[MERGE], patch).await.expect_code(200);
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap().unwrap();
    assert!(ended, "without an event");
    // The next one follows the present definition.
    world.becomes(|_| Reply::Response(json!({"result": {"status": "Failed"}})));
    let mut next = watch("0").await;
    world.create("v2", "a", json!({"width": 1, "height": 2})).await;
    let event = tokio::time::timeout(Duration::from_secs(30), next.frame()).await.unwrap().unwrap().unwrap();
    let event: Value = serde_json::from_slice(&event.into_data().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["size"]), (&json!("ADDED"), &json!("1x2")));
}
