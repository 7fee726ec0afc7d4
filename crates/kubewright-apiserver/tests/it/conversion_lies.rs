//! Conversion webhooks that fail, return invalid objects, or are behind services.

use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    admission::{MERGE, refused},
    conversion::{DEFINITIONS, V1, V2, World, by_webhook, convert, converted},
    webhook::Reply,
};

/// A webhook that changes what it has converted.
fn and_then(change: impl Fn(&mut Value) + Send + Sync + 'static) -> impl Fn(&Value) -> Reply + Send + Sync + 'static {
    move |request| {
        let objects = request["objects"].as_array().unwrap().iter();
        let objects = objects.map(|object| {
            let mut object = converted(object, &request["desiredAPIVersion"]);
            change(&mut object);
            object
        });
        Reply::Response(json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>()}))
    }
}

#[tokio::test]
async fn only_labels_and_annotations_of_the_metadata_may_change() {
    let world = World::start().await;
    world.create("v2", "a", json!({"width": 1, "height": 2})).await;
    world.becomes(and_then(|object| {
        object["metadata"]["labels"] = json!({"by": "hook"});
        object["metadata"]["annotations"] = json!({"example.com/kept": "x"});
        object["metadata"]["generation"] = 99.into();
        object["metadata"]["finalizers"] = json!(["example.com/mine"]);
        object["metadata"]["resourceVersion"] = "1".into();
        object["spec"]["unknown"] = 1.into();
    }));
    let read = world.get(&format!("{V1}/a")).await;
    let metadata = &read["metadata"];
    assert_eq!(
        (&metadata["labels"]["by"], &metadata["annotations"]["example.com/kept"]),
        (&json!("hook"), &json!("x"))
    );
    assert_eq!((&metadata["generation"], &metadata["finalizers"]), (&json!(1), &Value::Null));
    assert_eq!(read["spec"], json!({"size": "1x2"}), "what the version doesn't know is dropped");
    let stored = world.get(&format!("{V2}/a")).await;
    assert_eq!(metadata["resourceVersion"], stored["metadata"]["resourceVersion"]);
    // Label selectors apply to the labels of the requested version.
    let selected = async |version: &str| {
        let list = world.get(&format!("{version}?labelSelector=by%3Dhook")).await;
        list["items"].as_array().unwrap().len()
    };
    assert_eq!((selected(V1).await, selected(V2).await), (1, 0));
}

#[tokio::test]
async fn a_conversion_may_not_return_another_object() {
    let world = World::start().await;
    world.create("v2", "a", json!({"width": 1, "height": 2})).await;
    let place = "conversion webhook for example.com/v2, Kind=Pane returned";
    for (pointer, value, why) in [
        ("/metadata/name", json!("b"), "must have the same name: a != b"),
        ("/metadata/namespace", json!("other"), "must have the same namespace: default != other"),
        ("/metadata/uid", json!("x"), "must have the same UID: "),
        ("/metadata", json!(7), "must have the same name: a != "),
        ("/kind", json!("Door"), "invalid kind (expected Pane, received Door)"),
        (
            "/apiVersion",
            json!("example.com/v3"),
            "invalid groupVersion (expected example.com/v1, received example.com/v3)",
        ),
        ("/metadata/labels", json!({"a": "-"}), "metadata.labels: Invalid value: "),
        ("/metadata/annotations", json!({"a": 1}), "metadata.annotations must be a map of strings"),
    ] {
        world.becomes(and_then(move |object| {
            if let Some(metadata) = object.get_mut("metadata").filter(|_| pointer.starts_with("/metadata/")) {
                metadata[pointer.trim_start_matches("/metadata/")] = value.clone();
            } else {
                object[&pointer[1..]] = value.clone();
            }
        }));
        let answer = world.send(&format!("GET {V1}/a"), &[], Value::Null).await;
        refused(&answer, 500, &format!("{place} invalid converted object at index 0: {why}"));
    }
    world.becomes(|_| Reply::Response(json!({"result": {"status": "Success"}, "convertedObjects": []})));
    let listed = world.send(&format!("GET {V1}"), &[], Value::Null).await;
    // As Kubernetes' watch cache, which can't be filled.
    let why =
        format!("storage is (re)initializing: failed to list example.com/v1, Kind=Pane: {place} 0 objects, expected 1");
    refused(&listed, 429, &why);
    assert_eq!(listed.header("retry-after"), "1");
}

#[tokio::test]
async fn a_failed_conversion_is_reported_and_nothing_is_written() {
    let world = World::start().await;
    let failing = "conversion webhook for example.com/v1, Kind=Pane failed: ";
    let create = async || {
        let pane = crate::conversion::pane("v1", "a", json!({"size": "1x2"}));
        world.send(&format!("POST {V1}"), &[], pane).await
    };
    world.becomes(|_| Reply::Response(json!({"result": {"status": "Failed", "message": "no such glass"}})));
    refused(&create().await, 500, &format!("{failing}no such glass"));
    world.becomes(|_| Reply::Response(json!({"uid": "other", "result": {"status": "Success"}})));
    refused(&create().await, 500, &format!("{failing}expected response.uid="));
    world.becomes(|_| Reply::Raw(StatusCode::SERVICE_UNAVAILABLE, b"later".to_vec()));
    refused(&create().await, 500, &format!("{failing}an error on the server (\"later\") has prevented"));
    world.becomes(|_| Reply::Raw(StatusCode::OK, b"<html>".to_vec()));
    refused(&create().await, 500, failing);
    assert_eq!(world.get(V2).await["items"], json!([]));
    // An unreachable webhook is named by its address in the error; requests in the stored version still succeed.
    let nowhere = by_webhook(json!({"url": "https://127.0.0.1:1/convert", "caBundle": world.hook.authority}));
    let patch = json!({"spec": {"conversion": nowhere}});
    world.send(&format!("PATCH {DEFINITIONS}/panes.example.com"), &[MERGE], patch).await.expect_code(200);
    refused(
        &create().await,
        500,
        &format!("{failing}Post \"https://127.0.0.1:1/convert?timeout=30s\": dial tcp 127.0.0.1:1"),
    );
    world.create("v2", "a", json!({"width": 1, "height": 2})).await;
    for line in ["GET", "DELETE"] {
        let answer = world.send(&format!("{line} {V1}/a"), &[], Value::Null).await;
        refused(&answer, 500, "conversion webhook for example.com/v2, Kind=Pane failed: Post");
    }
    world.send(&format!("DELETE {V2}/a"), &[], Value::Null).await.expect_code(200);
}

#[tokio::test]
async fn a_conversion_webhook_of_a_service_is_called() {
    let world = World::start().await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 9443, "targetPort": 1}]}});
    world.send("POST /api/v1/namespaces/default/services", &[], service).await.expect_code(201);
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": world.hook.address.port()}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    let slices = "POST /apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    world.send(slices, &[], slice).await.expect_code(201);
    let service = json!({"namespace": "default", "name": "hook", "path": "/convert", "port": 9443});
    let conversion = by_webhook(json!({"service": service, "caBundle": world.hook.authority}));
    let patch = json!({"spec": {"conversion": {"webhook": conversion["webhook"]}}});
    let mut patch = patch;
    patch["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = Value::Null;
    world.send(&format!("PATCH {DEFINITIONS}/panes.example.com"), &[MERGE], patch).await.expect_code(200);
    world.create("v1", "a", json!({"size": "1x2"})).await;
    assert_eq!(world.get(&format!("{V2}/a")).await["spec"]["width"], 1);
    assert_eq!(world.hook.paths(), ["/convert", "/convert"]);
}

#[tokio::test]
async fn concurrent_writes_all_succeed() {
    let world = World::start().await;
    world.create("v1", "a", json!({"size": "1x2", "replicas": 0})).await;
    world.becomes(convert);
    let patches = (0..8).map(|index| {
        let body = json!({"metadata": {"labels": {format!("l{index}"): "x"}}});
        let world = &world;
        async move { world.send(&format!("PATCH {V1}/a"), &[MERGE], body).await.expect_code(200) }
    });
    futures::future::join_all(patches).await;
    let labels = world.get(&format!("{V2}/a")).await["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 8);
}
