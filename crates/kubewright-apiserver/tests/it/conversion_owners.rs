//! Managed fields of kinds whose versions name fields differently.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    admission::MERGE,
    conversion::{V1, V2, World},
    raw::RawResponse,
};

const APPLY: &str = "Content-Type: application/apply-patch+yaml";

/// Applies panes as several managers.
struct Appliers(World);

impl Appliers {
    async fn try_apply(&self, version: &str, manager: &str, spec: Value, query: &str) -> RawResponse {
        let path = if version == "v1" { V1 } else { V2 };
        let line = format!("PATCH {path}/a?fieldManager={manager}{query}");
        let version = format!("example.com/{version}");
        let config = json!({"apiVersion": version, "kind": "Pane", "metadata": {"name": "a"}, "spec": spec});
        self.0.send(&line, &[APPLY], config).await
    }

    async fn apply(&self, version: &str, manager: &str, spec: Value) {
        let answer = self.try_apply(version, manager, spec, "").await;
        assert!(answer.code < 300, "{}", answer.json());
    }

    async fn spec(&self) -> Value {
        let mut spec = self.0.get(&format!("{V2}/a")).await["spec"].take();
        spec.as_object_mut().unwrap().remove("glass");
        spec
    }

    /// Returns the fields of the spec that each manager owns, with the version of its entry.
    async fn owners(&self) -> BTreeMap<String, String> {
        let pane = self.0.get(&format!("{V2}/a")).await;
        let entry = |entry: &Value| {
            let text = |field: &str| entry[field].as_str().unwrap().to_owned();
            let fields = entry["fieldsV1"]["f:spec"].as_object().into_iter().flatten();
            let fields = fields.map(|(field, _)| field.trim_start_matches("f:"));
            // The default of this field is added by the first write in v2.
            let fields: Vec<_> = fields.filter(|field| *field != "glass").collect();
            (text("manager"), format!("{} {}", text("apiVersion").replace("example.com/", ""), fields.join(" ")))
        };
        pane["metadata"]["managedFields"].as_array().unwrap().iter().map(entry).collect()
    }

    async fn own(&self, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(manager, fields)| ((*manager).to_owned(), (*fields).to_owned())).collect();
        assert_eq!(self.owners().await, expected);
    }
}

#[tokio::test]
async fn an_apply_in_one_version_conflicts_with_owners_in_another() {
    let panes = Appliers(World::start().await);
    panes.apply("v1", "old", json!({"size": "3x4"})).await;
    let refused = panes.try_apply("v2", "new", json!({"width": 5, "height": 4}), "").await.expect_code(409).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("conflict with \"old\": .spec.size"), "{message}");
    panes.own(&[("old", "v1 size")]).await;
    // Applying the same value is no conflict: both managers own it, each by the field names of its version.
    panes.apply("v2", "new", json!({"width": 3, "height": 4})).await;
    panes.own(&[("new", "v2 height width"), ("old", "v1 size")]).await;
    // Untouched fields keep their owner; changed ones lose it.
    panes.try_apply("v2", "another", json!({"replicas": 2}), "").await.expect_code(200);
    panes.try_apply("v2", "new", json!({"width": 5, "height": 4}), "&force=true").await.expect_code(200);
    panes.own(&[("another", "v2 replicas"), ("new", "v2 height width")]).await;
    assert_eq!(panes.spec().await, json!({"width": 5, "height": 4, "replicas": 2}));
    let refused = panes.try_apply("v1", "old", json!({"size": "5x6"}), "").await.expect_code(409).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("conflict with \"new\": .spec.height"), "{message}");
}

#[tokio::test]
async fn an_update_in_one_version_takes_from_owners_in_another() {
    let panes = Appliers(World::start().await);
    panes.apply("v1", "old", json!({"size": "3x4", "replicas": 1})).await;
    // The storage version is v2, so only the ownership of the fields needs a conversion.
    let patch = async |line: String, spec: Value| {
        panes.0.send(&line, &[MERGE], json!({"spec": spec})).await.expect_code(200);
    };
    patch(format!("PATCH {V2}/a?fieldManager=new"), json!({"replicas": 2})).await;
    panes.own(&[("new", "v2 replicas"), ("old", "v1 size")]).await;
    patch(format!("PATCH {V2}/a?fieldManager=new"), json!({"width": 5})).await;
    panes.own(&[("new", "v2 replicas width")]).await;
    patch(format!("PATCH {V1}/a?fieldManager=late"), json!({"size": "6x4"})).await;
    panes.own(&[("late", "v1 size"), ("new", "v2 replicas")]).await;
}

#[tokio::test]
async fn a_field_no_longer_applied_stays_if_another_version_of_it_is_owned() {
    let panes = Appliers(World::start().await);
    panes.apply("v1", "old", json!({"size": "3x4", "replicas": 1})).await;
    panes.apply("v2", "new", json!({"width": 3, "height": 4})).await;
    panes.apply("v1", "old", json!({"replicas": 1})).await;
    assert_eq!(panes.spec().await, json!({"width": 3, "height": 4, "replicas": 1}));
    panes.own(&[("new", "v2 height width"), ("old", "v1 replicas")]).await;
    panes.apply("v2", "new", json!({})).await;
    assert_eq!(panes.spec().await, json!({"replicas": 1}), "now nobody wants it");
}

#[tokio::test]
async fn a_manager_keeps_its_fields_when_it_changes_the_version() {
    let panes = Appliers(World::start().await);
    panes.apply("v1", "mover", json!({"size": "3x4", "replicas": 1})).await;
    panes.apply("v2", "mover", json!({"width": 3, "height": 4})).await;
    panes.own(&[("mover", "v2 height width")]).await;
    assert_eq!(panes.spec().await, json!({"width": 3, "height": 4}), "replicas are applied no more");
    panes.apply("v1", "mover", json!({"replicas": 1})).await;
    assert_eq!(panes.spec().await, json!({"replicas": 1}));
}
