//! The objects of a new cluster, compared with those of Kubernetes 1.36.3 (`tests/data/default-objects.py` records
//! them).

use std::collections::BTreeSet;

use kubewright_apiserver::ApiServer;
use serde_json::Value;

use crate::raw::send;

const RECORDED: &str = include_str!("../data/default-objects.jsonl");

/// Returns an object as it is recorded: without what differs between clusters.
fn comparable(mut object: Value) -> Value {
    let remove = |value: &mut Value, fields: &[&str]| {
        fields.iter().for_each(|field| drop(value.as_object_mut().and_then(|value| value.remove(*field))));
    };
    remove(&mut object["metadata"], &["uid", "creationTimestamp", "resourceVersion"]);
    for pointer in ["/metadata/managedFields", "/status/conditions"] {
        for entry in object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten() {
            remove(entry, &["time", "lastTransitionTime"]);
        }
    }
    object
}

/// Returns the path of the collection of an object.
fn collection(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = match text("/kind").to_lowercase() {
        class if class.ends_with('s') => format!("{class}es"),
        kind => format!("{kind}s"),
    };
    match text("/metadata/namespace") {
        "" => format!("/{root}/{version}/{plural}"),
        namespace => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
    }
}

#[tokio::test]
async fn a_new_cluster_has_the_objects_of_kubernetes() {
    let api = ApiServer::builder().build();
    let recorded: Vec<Value> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut differences, mut collections) = (Vec::new(), BTreeSet::new());
    for expected in recorded {
        let (path, name) = (collection(&expected), expected["metadata"]["name"].as_str().unwrap().to_owned());
        let found = send(&api, &format!("GET {path}/{name}"), &[], "").await.json();
        let found = comparable(found);
        if found != expected {
            differences.push(format!("{path}/{name}\n    Kubernetes {expected}\n    embedded   {found}"));
        }
        collections.insert(path.clone());
    }
    for path in collections {
        let list = send(&api, &format!("GET {path}"), &[], "").await.json();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let is_recorded = RECORDED.lines().any(|line| {
                let object: Value = serde_json::from_str(line).unwrap();
                collection(&object) == path && object["metadata"]["name"] == name
            });
            if !is_recorded {
                differences.push(format!("{path}/{name} isn't in Kubernetes"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The default roles and bindings are written without passing through their types, so their text has to be what those
/// write.
#[tokio::test]
async fn the_text_of_default_roles_is_that_of_their_types() {
    let api = ApiServer::builder().build();
    for path in ["clusterroles/view", "clusterroles/system:node", "clusterrolebindings/system:node"] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
        let read = send(&api, &format!("GET {path}"), &[], "").await.expect_code(200).text;
        // A dry run answers the object that it has decoded and completed.
        let written = send(&api, &format!("PUT {path}?dryRun=All"), &[], read.clone()).await.expect_code(200).text;
        assert_eq!(written, read);
    }
}
