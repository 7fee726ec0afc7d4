//! The schemas of CRDs, as an API server enforces them.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResource, CustomResourceExt, KubeSchema,
    api::{ApiResource, DynamicObject, PostParams},
};
use kubewright_runtime::schema::{self, AsWritten};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{World, until};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "test.kubewright.dev", version = "v1", kind = "Thing", namespaced)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = schema::exactly_one_of(&["image", "source"]))]
#[derive(Default)]
struct ThingSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[schemars(transform = schema::exclusive_minimum(0.0))]
    #[schemars(transform = schema::exclusive_maximum(1.0))]
    share: Option<f64>,
    #[schemars(transform = schema::multiple_of(64.0))]
    memory: Option<i64>,
    #[schemars(transform = schema::min_properties(1))]
    #[schemars(transform = schema::max_properties(2))]
    labels: Option<BTreeMap<String, String>>,
    #[schemars(transform = schema::format("ipv4"))]
    address: Option<String>,
    #[schemars(transform = schema::immutable)]
    #[schemars(transform = schema::external_docs("https://example.com/classes", "The classes"))]
    class: Option<String>,
    #[schemars(transform = schema::int_or_string)]
    port: Option<String>,
    #[schemars(schema_with = "object", transform = schema::preserve_unknown_fields)]
    open: Option<Value>,
    #[schemars(schema_with = "object", transform = schema::embedded_resource)]
    resource: Option<Value>,
    written: AsWritten<BTreeMap<String, u8>>,
    ruled: Option<Ruled>,
}

/// With rules of kube's, beside ours.
// ANCHOR: rules
#[derive(Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.low <= self.high").message("low is above high"))]
struct Ruled {
    #[schemars(transform = schema::multiple_of(5.0))]
    low: i64,
    #[x_kube(validation = "self < 100")]
    #[schemars(transform = schema::multiple_of(5.0))]
    high: i64,
}
// ANCHOR_END: rules

fn object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object"})
}

fn thing(name: &str, fields: Value) -> DynamicObject {
    let mut spec = json!({"image": "busybox"});
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "test.kubewright.dev/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec,
    }))
    .expect("an object")
}

#[tokio::test(start_paused = true)]
async fn schema_transforms_are_enforced_by_the_api_server() {
    let world = World::without_fleets();
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.create(&PostParams::default(), &Thing::crd()).await.expect("a structural schema");
    let things: Api<DynamicObject> =
        Api::default_namespaced_with(world.client.clone(), &ApiResource::erase::<Thing>(&()));
    until("the kind is served", || async { things.list(&Default::default()).await.is_ok() }).await;

    let good = json!({
        "share": 0.5, "memory": 128, "labels": {"a": "b"}, "address": "10.0.0.1", "class": "fast", "port": 80,
        "open": {"any": {"thing": true}}, "written": {"deep": {"er": 1}}, "ruled": {"low": 5, "high": 10},
        "resource": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner"}, "data": {"a": "b"}},
    });
    let stored = things.create(&PostParams::default(), &thing("good", good.clone())).await.expect("all is right");
    for (key, value) in good.as_object().expect("an object") {
        assert_eq!(&stored.data["spec"][key], value, "{key}");
    }
    things.create(&PostParams::default(), &thing("port", json!({"port": "http"}))).await.expect("a name is a port too");

    let bad = [
        (json!({"source": "git"}), "exactly one of the fields image, source must be set"),
        (json!({"share": 0.0}), "spec.share"),
        (json!({"share": 1.0}), "spec.share"),
        (json!({"memory": 100}), "multiple of 64"),
        (json!({"labels": {}}), "spec.labels"),
        (json!({"labels": {"a": "", "b": "", "c": ""}}), "spec.labels"),
        (json!({"address": "nowhere"}), "spec.address"),
        (json!({"port": true}), "spec.port"),
        (json!({"resource": {"data": {}}}), "spec.resource"),
        (json!({"ruled": {"low": 20, "high": 10}}), "low is above high"),
        (json!({"ruled": {"low": 5, "high": 200}}), "spec.ruled"),
        (json!({"ruled": {"low": 4, "high": 10}}), "multiple of 5"),
        (json!({"ruled": {"low": 5, "high": 11}}), "multiple of 5"),
    ];
    for (fields, expected) in bad {
        let refused = things.create(&PostParams::default(), &thing("bad", fields.clone())).await;
        let why = refused.expect_err(&format!("{fields} is wrong")).to_string();
        assert!(why.contains(expected), "{fields}: {why}");
    }

    let mut changed = stored;
    changed.data["spec"]["class"] = "slow".into();
    let why = things.replace("good", &PostParams::default(), &changed).await.expect_err("it can't change").to_string();
    assert!(why.contains("spec.class") && why.contains("the value can't be changed"), "{why}");
}
