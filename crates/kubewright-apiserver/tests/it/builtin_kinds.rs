//! Custom resource definitions with the names of built-in kinds.

use kubewright_apiserver::{ApiServer, UserInfo};
use serde_json::{Value, json};

use crate::{
    raw::{send, send_as},
    start,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// A definition in a group of the built-in kinds, approved as such groups require it.
fn definition(plural: &str, kind: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.rbac.authorization.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "rbac.authorization.k8s.io", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

async fn define(api: &ApiServer, definition: &Value) -> Value {
    let created = send(api, &format!("POST {DEFINITIONS}"), &[], definition.to_string()).await.expect_code(201).json();
    read(api, created["metadata"]["name"].as_str().unwrap()).await
}

/// Reads a definition, whose conditions are written after the write to which the server responds.
async fn read(api: &ApiServer, name: &str) -> Value {
    send(api, &format!("GET {DEFINITIONS}/{name}"), &[], "").await.expect_code(200).json()
}

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

/// Binds a role with permission to read pods to jane.
async fn bind(api: &ApiServer) {
    let role = json!({
        "metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    });
    let roles = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    send(api, roles, &[], role.to_string()).await.expect_code(201);
    let binding = json!({
        "metadata": {"name": "jane"}, "roleRef": {"kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    send(api, &format!("POST {BINDINGS}"), &[], binding.to_string()).await.expect_code(201);
}

async fn pods_of(api: &ApiServer, user: &str) -> u16 {
    let user = UserInfo::new(user, ["system:authenticated"]);
    send_as(api, &user, "GET /api/v1/namespaces/default/pods", &[], "").await.code
}

#[tokio::test]
async fn a_definition_does_not_take_over_a_built_in_kind() {
    let (api, _) = start();
    bind(&api).await;
    let defined = define(&api, &definition("rolebindings", "RoleBinding", "v1")).await;
    let accepted = condition(&defined, "NamesAccepted");
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ListKindConflict")));
    assert_eq!(accepted["message"], "\"RoleBindingList\" is already in use");
    assert_eq!(condition(&defined, "Established")["status"], "False");

    let unchecked = json!({"metadata": {"name": "x"}, "anything": 1}).to_string();
    send(&api, &format!("POST {BINDINGS}"), &[], unchecked).await.expect_code(422);
    let escalation = json!({
        "metadata": {"name": "x"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    let jane = UserInfo::new("jane", ["system:authenticated"]);
    send_as(&api, &jane, &format!("POST {BINDINGS}"), &[], escalation.to_string()).await.expect_code(403);
    assert_eq!(pods_of(&api, "jane").await, 200, "the binding still grants");

    let name = "rolebindings.rbac.authorization.k8s.io";
    let merge = ["Content-Type: application/merge-patch+json"];
    send(&api, &format!("DELETE {DEFINITIONS}/{name}"), &[], "").await.expect_code(200);
    let release = json!({"metadata": {"finalizers": null}}).to_string();
    send(&api, &format!("PATCH {DEFINITIONS}/{name}"), &merge, release).await.expect_code(200);
    send(&api, &format!("GET {BINDINGS}/jane"), &[], "").await.expect_code(200);
    assert_eq!(pods_of(&api, "jane").await, 200, "the binding outlives the definition");
}

#[tokio::test]
async fn a_definition_does_not_take_the_kind_of_a_built_in() {
    let (api, _) = start();
    let mut others = definition("others", "RoleBinding", "v1alpha7");
    others["spec"]["names"]["singular"] = "other".into();
    let defined = define(&api, &others).await;
    assert_eq!(condition(&defined, "NamesAccepted")["reason"], "ListKindConflict");
    assert_eq!(condition(&defined, "Established")["status"], "False");
}

#[tokio::test]
async fn a_definition_is_not_served_in_a_built_in_group_version() {
    let (api, _) = start();
    let defined = define(&api, &definition("others", "Other", "v1")).await;
    assert_eq!(condition(&defined, "NamesAccepted")["status"], "True");
    let established = condition(&defined, "Established");
    assert_eq!((&established["status"], &established["reason"]), (&json!("False"), &json!("GroupVersionConflict")));
    let message = established["message"].as_str().unwrap();
    assert!(message.contains("rbac.authorization.k8s.io/v1"), "{message}");
    send(&api, "GET /apis/rbac.authorization.k8s.io/v1/others", &[], "").await.expect_code(404);

    // Another version of the same group is allowed, as in Kubernetes.
    define(&api, &definition("more", "More", "v1alpha7")).await;
    send(&api, "GET /apis/rbac.authorization.k8s.io/v1alpha7/more", &[], "").await.expect_code(200);
    // An established CRD keeps its versions, and an added version that is built in is not served from it.
    let mut versions = definition("more", "More", "v1alpha7")["spec"]["versions"].clone();
    let mut builtin = versions[0].clone();
    builtin["name"] = "v1".into();
    builtin["storage"] = false.into();
    versions.as_array_mut().unwrap().push(builtin);
    let patch = json!({"spec": {"versions": versions}}).to_string();
    let merge = ["Content-Type: application/merge-patch+json"];
    let path = format!("PATCH {DEFINITIONS}/more.rbac.authorization.k8s.io");
    send(&api, &path, &merge, patch).await.expect_code(200);
    send(&api, "GET /apis/rbac.authorization.k8s.io/v1alpha7/more", &[], "").await.expect_code(200);
    send(&api, "GET /apis/rbac.authorization.k8s.io/v1/more", &[], "").await.expect_code(404);
}

#[tokio::test]
async fn protected_groups_need_a_valid_approval() {
    let (api, _) = start();
    let with = |annotation: Value| {
        let mut definition = definition("others", "Other", "v1alpha7");
        definition["metadata"]["annotations"]["api-approved.kubernetes.io"] = annotation;
        definition
    };
    let post = format!("POST {DEFINITIONS}");
    let refused = send(&api, &post, &[], with(json!("")).to_string()).await.expect_code(422).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("metadata.annotations[api-approved.kubernetes.io]: Required value"), "{message}");
    let refused = send(&api, &post, &[], with(json!("yes")).to_string()).await.expect_code(422).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("with either a URL or a reason starting with \"unapproved\""), "{message}");
    let approved = define(&api, &with(json!("https://github.com/kubernetes/kubernetes/pull/78458"))).await;
    let conformant = condition(&approved, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!((&conformant["status"], &conformant["reason"]), (&json!("True"), &json!("ApprovedAnnotation")));
    let patch = json!({"metadata": {"annotations": {"api-approved.kubernetes.io": "unapproved, a try"}}}).to_string();
    let path = format!("PATCH {DEFINITIONS}/others.rbac.authorization.k8s.io");
    let merge = ["Content-Type: application/merge-patch+json"];
    send(&api, &path, &merge, patch).await.expect_code(200);
    let changed = read(&api, "others.rbac.authorization.k8s.io").await;
    let conformant = condition(&changed, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!((&conformant["status"], &conformant["reason"]), (&json!("False"), &json!("UnapprovedAnnotation")));
    assert_eq!(conformant["message"], "not approved: \"unapproved, a try\"");
}
