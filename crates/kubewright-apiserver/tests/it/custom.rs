//! Custom kinds.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{
    raw::{self, send},
    refused, start,
};

fn definition(versions: Value) -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        },
    })
}

fn version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object", "required": ["replicas"],
                    "properties": {
                        "replicas": {"type": "integer", "minimum": 0},
                        "color": {"type": "string", "default": "red"},
                    },
                },
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            },
        }},
    })
}

fn widgets(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", version, "Widget");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "widgets"))
}

async fn define(client: &Client, versions: Value) -> Api<CustomResourceDefinition> {
    let api = Api::all(client.clone());
    let definition = serde_json::from_value(definition(versions)).unwrap();
    api.create(&PostParams::default(), &definition).await.unwrap();
    api
}

fn widget(name: &str, spec: &Value) -> DynamicObject {
    let kind = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(kind).unwrap()
}

/// An object that was written before a change of the schema is pruned and gets the defaults when it is read.
#[tokio::test]
async fn objects_follow_the_schema_when_they_are_read() {
    let (_, client) = start();
    let definitions = define(&client, json!([version("v1", true)])).await;
    let widgets = widgets(&client, "v1");
    let old = widgets.create(&PostParams::default(), &widget("old", &json!({"replicas": 1}))).await.unwrap();
    let mut changed = version("v1", true);
    let fields = &mut changed["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    fields["size"] = json!({"type": "string", "default": "small"});
    fields.as_object_mut().unwrap().remove("color");
    changed.as_object_mut().unwrap().remove("selectableFields");
    let patch = Patch::Merge(json!({"spec": {"versions": [changed]}}));
    definitions.patch("widgets.example.com", &PatchParams::default(), &patch).await.unwrap();
    let expect = json!({"spec": {"replicas": 1, "size": "small"}});
    let read = widgets.get("old").await.unwrap();
    assert_eq!((&read.data, read.metadata.resource_version), (&expect, old.metadata.resource_version), "not written");
    assert_eq!(widgets.list(&ListParams::default()).await.unwrap().items[0].data, expect);
    let mut events = std::pin::pin!(widgets.watch(&WatchParams::default(), "0").await.unwrap());
    let Some(kube::api::WatchEvent::Added(seen)) = events.try_next().await.unwrap() else { panic!("no object") };
    assert_eq!(seen.data, expect);
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let patched = widgets.patch("old", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data, json!({"spec": {"replicas": 2, "size": "small"}}));
    // What is stored stays when the default goes.
    let fields = json!({"size": {"type": "string"}, "replicas": {"type": "integer"}});
    changed["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = fields;
    let patch = Patch::Merge(json!({"spec": {"versions": [changed]}}));
    definitions.patch("widgets.example.com", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(widgets.get("old").await.unwrap().data, json!({"spec": {"replicas": 2, "size": "small"}}));
}

/// As in Kubernetes, fields that metadata doesn't have are no errors of its defaults, but they aren't set.
#[tokio::test]
async fn defaults_of_embedded_metadata_have_its_fields_only() {
    let (_, client) = start();
    let metadata = json!({"name": "a", "odd": "x"});
    let mut version = version("v1", true);
    let fields = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let embedded = |more: Value| {
        let mut schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"apiVersion": {"type": "string", "default": "v1"}, "kind": {"type": "string", "default": "K"}}});
        schema["properties"]["metadata"] = more;
        schema
    };
    fields["whole"] = embedded(json!({"type": "object", "default": metadata}));
    fields["parts"] = embedded(json!({"type": "object", "properties": {
        "name": {"type": "string", "default": "a"}, "odd": {"type": "string", "default": "x"},
    }}));
    define(&client, json!([version])).await;
    let spec = json!({"replicas": 1, "whole": {}, "parts": {"metadata": {}}});
    let created = widgets(&client, "v1").create(&PostParams::default(), &widget("w", &spec)).await.unwrap();
    let expect = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}});
    assert_eq!((&created.data["spec"]["whole"], &created.data["spec"]["parts"]), (&expect, &expect));
}

#[tokio::test]
async fn custom_objects_are_created_updated_and_deleted() {
    let (api, client) = start();
    refused(widgets(&client, "v1").list(&ListParams::default()).await, 404, "404 page not found");
    define(&client, json!([version("v1", true)])).await;
    let widgets = widgets(&client, "v1");
    let mut sent = widget("w", &json!({"replicas": 1, "unknown": 1}));
    sent.data["status"] = json!({"replicas": 7});
    let created = widgets.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!(created.data, json!({"spec": {"replicas": 1, "color": "red"}}), "defaulted, pruned, without status");
    assert_eq!(created.metadata.generation, Some(1));
    let wrong = Patch::Merge(json!({"spec": {"replicas": -1}}));
    refused(widgets.patch("w", &PatchParams::default(), &wrong).await, 422, "spec.replicas: Invalid value: -1");
    let strategic = Patch::Strategic(json!({"spec": {"replicas": 2}}));
    refused(widgets.patch("w", &PatchParams::default(), &strategic).await, 415, "application/merge-patch+json");
    let mut unversioned = created.clone();
    unversioned.metadata.resource_version = None;
    let replaced = widgets.replace("w", &PostParams::default(), &unversioned).await;
    refused(replaced, 422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update");

    let status = Patch::Merge(json!({"status": {"replicas": 1}, "spec": {"replicas": 9}}));
    let updated = widgets.patch_status("w", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((&updated.data["status"], &updated.data["spec"]["replicas"]), (&json!({"replicas": 1}), &json!(1)));
    assert_eq!(updated.metadata.generation, Some(1));
    let scaled = Patch::Merge(json!({"spec": {"replicas": 2}}));
    assert_eq!(
        widgets.patch_scale("w", &PatchParams::default(), &scaled).await.unwrap().spec.unwrap().replicas,
        Some(2)
    );
    assert_eq!(widgets.get("w").await.unwrap().metadata.generation, Some(2));

    let path = "/apis/example.com/v1/widgets";
    let table = raw::get(&api, path, "application/json;as=Table;v=v1;g=meta.k8s.io").await.json();
    assert_eq!(
        (&table["columnDefinitions"][1]["name"], &table["rows"][0]["cells"][1]),
        (&json!("Color"), &json!("red"))
    );
    assert_eq!(widgets.list(&ListParams::default().fields("spec.color=red")).await.unwrap().items.len(), 1);
    assert_eq!(widgets.list(&ListParams::default().fields("spec.color=blue")).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn all_versions_serve_the_same_objects() {
    let (_, client) = start();
    let definitions = define(&client, json!([version("v1", true), version("v1beta1", false)])).await;
    let (v1, v1beta1) = (widgets(&client, "v1"), widgets(&client, "v1beta1"));
    v1.create(&PostParams::default(), &widget("w", &json!({"replicas": 1}))).await.unwrap();
    let read = v1beta1.get("w").await.unwrap();
    assert_eq!(read.types.unwrap().api_version, "example.com/v1beta1");
    // The storage version changes; objects written before are still served in every version.
    let moved = Patch::Merge(json!({"spec": {"versions": [version("v1", false), version("v1beta1", true)]}}));
    definitions.patch("widgets.example.com", &PatchParams::default(), &moved).await.unwrap();
    for (api, version) in [(&v1, "example.com/v1"), (&v1beta1, "example.com/v1beta1")] {
        assert_eq!(api.get("w").await.unwrap().types.unwrap().api_version, version);
        let listed = api.list(&ListParams::default()).await.unwrap().items.remove(0);
        assert_eq!(listed.types.unwrap().api_version, version);
    }
}

#[tokio::test]
async fn objects_have_the_version_of_their_path() {
    let (api, client) = start();
    define(&client, json!([version("v1", true)])).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let missing = send(&api, &format!("POST {path}"), &[], r#"{"kind":"Widget","metadata":{"name":"w"}}"#).await;
    let message = "the API version in the data () does not match the expected API version (example.com/v1)";
    assert_eq!(missing.expect_code(400).json()["message"], message);
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}"#;
    send(&api, &format!("POST {path}"), &[], body).await.expect_code(201);
    let merge = ["Content-Type: application/merge-patch+json"];
    for (patch, code, message) in [
        (
            r#"{"apiVersion":"other.com/v9"}"#,
            422,
            "Widget.other.com \"w\" is invalid: apiVersion: Invalid value: \"other.com/v9\": must be example.com/v1",
        ),
        (r#"{"kind":"X"}"#, 422, "X.example.com \"w\" is invalid: kind: Invalid value: \"X\": must be Widget"),
        (
            r#"{"apiVersion":null}"#,
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
    ] {
        let answer = send(&api, &format!("PATCH {path}/w"), &merge, patch).await.expect_code(code).json();
        assert_eq!(answer["message"], message, "{patch}");
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_kind_is_removed() {
    let (_, client) = start();
    let definitions = define(&client, json!([version("v1", true)])).await;
    let widgets = widgets(&client, "v1");
    widgets.create(&PostParams::default(), &widget("w", &json!({"replicas": 1}))).await.unwrap();
    let events = widgets.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    let reader = tokio::spawn(events.try_collect::<Vec<_>>());
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    definitions.patch("widgets.example.com", &PatchParams::default(), &released).await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap().len(), 1);
    refused(widgets.get("w").await, 404, "404 page not found");
}

#[tokio::test]
async fn deprecated_versions_return_a_warning() {
    let (api, client) = start();
    let mut old = version("v1", false);
    old["deprecated"] = true.into();
    old["deprecationWarning"] = "v1 goes; use v2".into();
    define(&client, json!([old, version("v2", true)])).await;
    let mut widget = widget("a", &json!({"replicas": 1}));
    widget.types.as_mut().unwrap().api_version = "example.com/v2".into();
    widgets(&client, "v2").create(&PostParams::default(), &widget).await.unwrap();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    for line in ["", "/a", "/a/status", "/a/scale", "?watch=true&timeoutSeconds=1"] {
        let answer = raw::get(&api, &format!("{path}{line}"), "application/json").await;
        assert_eq!((answer.code, answer.header("warning")), (200, r#"299 - "v1 goes; use v2""#), "{line}");
        let answer = raw::get(&api, &format!("{}{line}", path.replace("v1", "v2")), "application/json").await;
        assert_eq!((answer.code, answer.header("warning")), (200, ""), "{line}");
    }
}
