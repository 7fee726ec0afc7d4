//! Admission policies as Kubernetes evaluates them: requests with the answers of Kubernetes 1.36.3
//! (`tests/data/admission-policies.py` records them).

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::{
    admission_beyond::Echo,
    raw::{RawResponse, send},
};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/admission-policies.json");

/// The cases that are answered otherwise, by what differs. The list only shrinks.
const KNOWN: &[(&str, &[&str])] = &[("errors about operands don't name the operator", &["no such overload"])];

/// Returns what is recorded of an answer.
fn shown(answer: &RawResponse) -> Value {
    let body = answer.json();
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    let mut shown = json!({"code": answer.code, "warnings": warnings});
    let mut copy = |from: &Value, fields: &[&str]| {
        for field in fields.iter().filter(|field| from.get(**field).is_some()) {
            shown[*field] = from[*field].clone();
        }
    };
    if answer.code >= 300 {
        copy(&body, &["reason", "message", "details"]);
        return shown;
    }
    if body["kind"] != "Status" {
        copy(&body, &["spec", "data", "kind"]);
    }
    copy(&body["metadata"], &["labels", "annotations"]);
    if let Some(entries) = body["metadata"]["managedFields"].as_array() {
        let mut entries = entries.clone();
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        shown["owners"] = entries.into();
    }
    shown
}

async fn request(api: &ApiServer, request: &Value) -> RawResponse {
    let text = |field: &str| request[field].as_str();
    let line = format!("{} {}", text("method").unwrap(), text("path").unwrap());
    let mut headers = vec![
        format!("Content-Type: {}", text("type").unwrap_or("application/json")),
        "User-Agent: recorder".to_owned(),
    ];
    if let Some(user) = text("user") {
        headers.push(format!("Impersonate-User: {user}"));
        let groups = request["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        headers.extend(groups.map(|group| format!("Impersonate-Group: {group}")));
    }
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    let body = if request["body"].is_null() { String::new() } else { request["body"].to_string() };
    send(api, &line, &headers, body).await
}

/// Returns the path at which an object is created.
fn path(object: &Value, namespace: &str) -> String {
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let api = object["apiVersion"].as_str().unwrap();
    let root = if api == "v1" { "/api/v1".to_owned() } else { format!("/apis/{api}") };
    let is_cluster_wide = api.starts_with("admissionregistration") || kind == "customresourcedefinition";
    if is_cluster_wide { format!("{root}/{plural}") } else { format!("{root}/namespaces/{namespace}/{plural}") }
}

/// Returns how the answers of a case differ.
async fn differences(case: &Value, namespace: &str) -> Vec<String> {
    let api = ApiServer::builder().build();
    let own = json!({"metadata": {"name": namespace, "labels": {"env": "test"}}});
    send(&api, "POST /api/v1/namespaces", &[], own.to_string()).await.expect_code(201);
    let mut refused = Vec::new();
    let objects = ["setup", "policies"].iter().flat_map(|field| case[*field].as_array().unwrap());
    for object in objects {
        let answer =
            send(&api, &format!("POST {}", path(object, namespace)), &["User-Agent: recorder"], object.to_string())
                .await;
        if answer.code >= 300 {
            refused.push(shown(&answer));
        }
    }
    let mut differences = Vec::new();
    let mut compare = |line: &str, recorded: &Value, actual: &Value| {
        if recorded != actual {
            differences.push(format!("{}: {line}\n    Kubernetes {recorded}\n    embedded   {actual}", case["case"]));
        }
    };
    compare("policies", &case["refused"], &refused.into());
    for (sent, recorded) in case["requests"].as_array().unwrap().iter().zip(case["answers"].as_array().unwrap()) {
        let mut answer = request(&api, sent).await;
        if let Some((_, generated)) = answer.text.split_once("gen-") {
            // The suffix of a generated name is random.
            let suffix: String = generated.chars().take(5).collect();
            answer.text = answer.text.replace(&format!("gen-{suffix}"), "gen-");
        }
        let actual = shown(&answer);
        compare(&format!("{} {}", sent["method"], sent["path"]), recorded, &actual);
    }
    differences
}

#[tokio::test]
async fn policies_are_evaluated_as_in_kubernetes() {
    let recorded: Value = serde_json::from_slice(&std::fs::read(RECORDED).unwrap()).unwrap();
    let namespace = recorded["namespace"].as_str().unwrap();
    let known: BTreeSet<&str> = KNOWN.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let cases = recorded["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["case"].as_str().unwrap();
        let found = differences(case, namespace).await;
        match (found.is_empty(), known.contains(name)) {
            (false, false) => wrong.extend(found),
            (true, true) => wrong.push(format!("{name} doesn't differ, remove it from the list")),
            _ => {}
        }
    }
    assert!(cases.len() >= 60, "{} cases", cases.len());
    assert!(wrong.is_empty(), "{} answers differ from those of Kubernetes:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns a validating policy for all operations, and its binding.
fn policy(resource: &str, spec: &Value) -> [Value; 2] {
    let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}},
    });
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    [policy, binding]
}

async fn install(objects: [Value; 2]) -> ApiServer {
    let api = ApiServer::builder().action("", "v1", "pods", "exec", Arc::new(Echo)).build();
    for object in objects {
        let line = format!("POST {}", path(&object, "default"));
        send(&api, &line, &[], object.to_string()).await.expect_code(201);
    }
    api
}

#[tokio::test]
async fn changed_and_deleted_policies_take_effect_at_once() {
    let api =
        install(policy("configmaps", &json!({"validations": [{"expression": "false", "message": "first"}]}))).await;
    let create = async || send(&api, "POST /api/v1/namespaces/default/configmaps?dryRun=All", &[], CONFIG_MAP).await;
    assert!(create().await.expect_code(422).text.contains("denied request: first"));
    let root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p";
    let changed = r#"{"spec": {"validations": [{"expression": "false", "message": "second"}]}}"#;
    let merge = ["Content-Type: application/merge-patch+json"];
    send(&api, &format!("PATCH {root}"), &merge, changed).await.expect_code(200);
    assert!(create().await.expect_code(422).text.contains("denied request: second"));
    send(&api, &format!("DELETE {root}"), &[], "").await.expect_code(200);
    create().await.expect_code(201);
}

const CONFIG_MAP: &str = r#"{"metadata": {"name": "c"}}"#;

#[tokio::test]
async fn expressions_of_a_policy_share_a_budget() {
    let costly = json!({"expression": "lists.range(90000).all(a, a >= 0)"});
    let spec = json!({"validations": vec![costly; 30]});
    let api = install(policy("configmaps", &spec)).await;
    let answer = send(&api, "POST /api/v1/namespaces/default/configmaps", &[], CONFIG_MAP).await.expect_code(422);
    let why = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(answer.text.contains(why), "{}", answer.text);
}

#[tokio::test]
async fn connections_are_validated() {
    let spec = json!({"validations": [{
        "expression": "request.operation != 'CONNECT' || object.container != 'secret'",
        "messageExpression": "object.kind + ' of ' + request.name",
    }]});
    let api = install(policy("pods/exec", &spec)).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "secret", "image": "i"}]}}).to_string();
    send(&api, "POST /api/v1/namespaces/default/pods", &[], pod).await.expect_code(201);
    let line = "POST /api/v1/namespaces/default/pods/p/exec?container=secret&command=ls&stdout=true";
    let answer = send(&api, line, &[], "").await.expect_code(422);
    assert!(answer.text.contains("denied request: PodExecOptions of p"), "{}", answer.text);
}

/// Kubernetes 1.36.3 shows parameters of built-in kinds without their owners, and mutating policies without their
/// types.
#[tokio::test]
async fn parameters_of_built_in_kinds_have_no_owners() {
    let api = ApiServer::builder().build();
    let group = "admissionregistration.k8s.io/v1";
    let shown =
        "string(has(params.kind)) + string(has(params.apiVersion)) + string(has(params.metadata.managedFields))";
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let expression = format!("Object{{data: {{'p': {shown} + params.data.a}}}}");
    let policy = json!({"metadata": {"name": "m"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "reinvocationPolicy": "Never",
    }});
    let reference = json!({"name": "param", "parameterNotFoundAction": "Deny"});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "m", "paramRef": reference}});
    let maps = "/api/v1/namespaces/default/configmaps";
    for (path, object) in [
        (maps.to_owned(), json!({"metadata": {"name": "param"}, "data": {"a": "1"}})),
        (format!("/apis/{group}/mutatingadmissionpolicies"), policy),
        (format!("/apis/{group}/mutatingadmissionpolicybindings"), binding),
    ] {
        send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201);
    }
    let answer = send(&api, &format!("POST {maps}"), &[], json!({"metadata": {"name": "it"}}).to_string()).await;
    assert_eq!(answer.json()["data"]["p"], "falsefalsefalse1", "{}", answer.text);
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]});
    let shown = format!("{shown} + params.kind + params.apiVersion");
    let policy = json!({"metadata": {"name": "v"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "messageExpression": shown}],
    }});
    let binding = json!({"metadata": {"name": "v"}, "spec": {"policyName": "v", "paramRef": reference,
        "validationActions": ["Deny"]}});
    for (path, object) in [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)] {
        send(&api, &format!("POST /apis/{group}/{path}"), &[], object.to_string()).await.expect_code(201);
    }
    let secret = json!({"metadata": {"name": "it"}}).to_string();
    let answer = send(&api, "POST /api/v1/namespaces/default/secrets", &[], secret).await.expect_code(422);
    assert!(answer.text.contains("denied request: truetruefalseConfigMapv1"), "{}", answer.text);
}

/// A server with a policy that patches what is sent to pods and configuration maps, and with a pod.
async fn with_patch(expression: &str) -> ApiServer {
    let api = ApiServer::builder().build();
    let path = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "CONNECT"],
        "resources": ["configmaps", "pods/exec"],
    });
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    for (path, object) in [
        ("/api/v1/namespaces/default/pods".to_owned(), pod),
        (
            format!("{path}/mutatingadmissionpolicies"),
            json!({"metadata": {"name": "m"}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "mutations": [mutation],
            }}),
        ),
        (
            format!("{path}/mutatingadmissionpolicybindings"),
            json!({"metadata": {"name": "m"}, "spec": {"policyName": "m"}}),
        ),
    ] {
        send(&api, &format!("POST {path}"), &[], object.to_string()).await.expect_code(201);
    }
    api
}

#[tokio::test]
async fn a_policy_changes_the_options_of_a_connection() {
    let api = with_patch("[JSONPatch{op: 'replace', path: '/container', value: 'b'}]").await;
    let path = "POST /api/v1/namespaces/default/pods/p/exec?container=a&command=x&stdout=1";
    let refused = send(&api, path, &[], "").await;
    assert_eq!(refused.json()["message"], "container b is not valid for pod p", "{}", refused.text);
}

#[tokio::test]
async fn a_policy_cannot_change_the_kind() {
    let api = with_patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]").await;
    let object = json!({"metadata": {"name": "a"}}).to_string();
    let refused = send(&api, "POST /api/v1/namespaces/default/configmaps", &[], object).await.expect_code(500).json();
    let why = "Internal error occurred: failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown \
               conversion";
    assert_eq!(refused["message"], why);
}
