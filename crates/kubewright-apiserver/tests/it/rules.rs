//! Rules of custom kinds, in CEL.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::{refused, start};

fn definition(rule: &str) -> Value {
    let spec = json!({
        "type": "object",
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "zone": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "zone is immutable"}],
        }},
        "x-kubernetes-validations": [{"rule": rule, "messageExpression": "'max must be at least %d'.format([self.min])"}],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ranges.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "ranges", "kind": "Range"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

#[tokio::test]
async fn objects_are_held_to_their_definitions_rules() {
    let (_api, client) = start();
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")),
    );
    let post = PostParams::default();
    let create = async |rule| {
        let definition = serde_json::from_value(definition(rule)).unwrap();
        definitions.create(&post, &definition).await
    };
    refused(create("self.min <=").await, 422, "x-kubernetes-validations[0].rule: Invalid value: \"self.min <=\"");
    create("self.min <= self.max").await.unwrap();

    let ranges: Api<DynamicObject> = Api::default_namespaced_with(
        client,
        &ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Range")),
    );
    let range = |min: i64, zone: &str| -> DynamicObject {
        let spec = json!({"min": min, "max": 5, "zone": zone});
        let range = json!({"apiVersion": "example.com/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": spec});
        serde_json::from_value(range).unwrap()
    };
    let refusal = r#"Range.example.com "r" is invalid: spec: Invalid value: "object": max must be at least 7"#;
    refused(ranges.create(&post, &range(7, "a")).await, 422, refusal);
    let mut stored = ranges.create(&post, &range(3, "a")).await.unwrap();
    stored.data["spec"]["zone"] = "b".into();
    refused(ranges.replace("r", &post, &stored).await, 422, r#"spec.zone: Invalid value: "string": zone is immutable"#);
    stored.data["spec"]["zone"] = "a".into();
    stored.data["spec"]["min"] = 4.into();
    ranges.replace("r", &post, &stored).await.unwrap();
}
