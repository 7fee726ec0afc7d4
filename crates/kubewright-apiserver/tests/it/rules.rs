//! CEL rules of custom kinds.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::{raw::send, refused, start};

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
async fn objects_are_validated_by_the_rules_of_their_definition() {
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
    let shown = r#"x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.min \u003c=","Message":"","#;
    refused(create("self.min <=").await, 422, shown);
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
    let refusal = r#"Range.example.com "r" is invalid: spec: Invalid value: max must be at least 7"#;
    refused(ranges.create(&post, &range(7, "a")).await, 422, refusal);
    let mut nameless = range(1, "a");
    nameless.metadata.name = None;
    refused(ranges.create(&post, &nameless).await, 422, "some validation rules were not checked because the object");
    let mut stored = ranges.create(&post, &range(3, "a")).await.unwrap();
    stored.data["spec"]["zone"] = "b".into();
    refused(ranges.replace("r", &post, &stored).await, 422, r#"spec.zone: Invalid value: "b": zone is immutable"#);
    stored.data["spec"]["zone"] = "a".into();
    stored.data["spec"]["min"] = 4.into();
    ranges.replace("r", &post, &stored).await.unwrap();
}

/// A definition with two rules on each item of a list, each of which costs nine units for each of `rounds`.
fn costly_definition(rounds: usize) -> Value {
    let rule = json!({"rule": format!("lists.range({rounds}).all(n, n + self >= self)"), "message": "no"});
    let items = json!({"type": "integer", "x-kubernetes-validations": [rule, rule]});
    let mut definition = definition("true");
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["list"] = json!({"type": "array", "maxItems": 27, "items": items});
    definition
}

#[tokio::test]
async fn a_costly_update_lets_other_requests_run() {
    let (api, _client) = start();
    let json = ["Content-Type: application/json"];
    let definition = costly_definition(40_000);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&api, &format!("POST {path}"), &json, definition.to_string()).await.expect_code(201);
    let ranges = "/apis/example.com/v1/namespaces/default/ranges";
    let range = json!({"apiVersion": "example.com/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": {"min": 1}});
    send(&api, &format!("POST {ranges}"), &json, range.to_string()).await.expect_code(201);

    // Three items cost more than one turn's share, 27 more than an object's budget.
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = async |items: usize| {
        let patch = json!({"spec": {"list": vec![1; items]}});
        send(&api, &format!("PATCH {ranges}/r"), &merge, patch.to_string()).await
    };
    let mut turns = 0;
    let mut update = std::pin::pin!(patch(3));
    let answer = std::future::poll_fn(|context| {
        turns += 1;
        update.as_mut().poll(context)
    })
    .await;
    assert_eq!(answer.expect_code(200).json()["spec"]["list"], json!([1, 1, 1]));
    assert!(turns > 3, "{turns}");
    let refused = patch(27).await.expect_code(422);
    assert!(refused.text.contains("running out of cost budget"), "{}", refused.text);
    assert_eq!(send(&api, &format!("GET {ranges}/r"), &[], "").await.json()["spec"]["list"], json!([1, 1, 1]));
}

/// The messages are those of Kubernetes 1.36.3.
#[tokio::test]
async fn malformed_patterns_are_refused() {
    let (api, _) = start();
    let cause = async |path: &str, object: Value| {
        let line = format!("POST /apis/{path}?dryRun=All");
        let refused = send(&api, &line, &[], object.to_string()).await.expect_code(422).json();
        let causes = refused["details"]["causes"].as_array().unwrap().clone();
        let [cause] = causes.as_slice() else { panic!("{refused}") };
        let text = |field: &str| cause[field].as_str().unwrap().to_owned();
        (text("reason"), text("message"))
    };
    let rule = async |rule: Value| {
        let mut definition = definition("true");
        *definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap() = json!({
            "type": "object", "properties": {"s": {"type": "string", "maxLength": 10}}, "x-kubernetes-validations": [rule],
        });
        let (reason, message) = cause("apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        assert_eq!(reason, "FieldValueInvalid");
        message.rsplit_once("}: ").unwrap().1.to_owned()
    };
    let why = "error parsing regexp: missing closing ]: `[`";
    let found = rule(json!({"rule": "self.s.find('[') == ''", "messageExpression": "self.s.find('(')"})).await;
    assert_eq!(found, format!("program instantiation failed: {why}"));
    let found = rule(json!({"rule": "true", "messageExpression": "self.s.find('[')"})).await;
    assert_eq!(found, format!("messageExpression instantiation failed: {why}"));
    let found = rule(json!({"rule": "self.s.find('[')"})).await;
    assert_eq!(found, "cel expression must evaluate to a bool");

    let policy = json!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
            }]},
            "validations": [{"expression": "matches(object.metadata.name, '[')"}],
        },
    });
    let (reason, message) = cause("admissionregistration.k8s.io/v1/validatingadmissionpolicies", policy).await;
    assert_eq!(
        (reason, message),
        ("InternalError".into(), format!("Internal error: program instantiation failed: {why}"))
    );
}
