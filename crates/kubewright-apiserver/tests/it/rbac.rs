//! Role-based access control.

use std::sync::Arc;

use http::Request;
use http_body_util::Full;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kubewright_apiserver::{
    AbacPolicies, AccessReview, AccessReviewer, ApiServer, Attributes, AuthorizationMode, TokenReviewer, UserInfo,
};
use serde_json::{Value, json};

use crate::{
    raw::{RawResponse, send_as},
    refused, start,
};

const ACCESS: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn create(api: &ApiServer, path: &str, object: Value) {
    create_as(api, &UserInfo::admin(), path, object).await.expect_code(201);
}

async fn create_as(api: &ApiServer, user: &UserInfo, path: &str, object: Value) -> RawResponse {
    send_as(api, user, &format!("POST {path}"), &[], object.to_string()).await
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn robot() -> UserInfo {
    UserInfo::service_account("default", "robot")
}

fn robot_subject() -> Value {
    json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}])
}

/// Grants the robot these permissions in `default`.
async fn give(api: &ApiServer, name: &str, rules: Value) {
    create(api, &format!("{ACCESS}/namespaces/default/roles"), role(name, rules)).await;
    let binding = binding(name, "Role", name, robot_subject());
    create(api, &format!("{ACCESS}/namespaces/default/rolebindings"), binding).await;
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn everything_can_be_allowed_to_users_with_credentials() {
    let without_credentials = async |api: &ApiServer| {
        api.handle(Request::get("/version").body(Full::from("")).unwrap()).await.status().as_u16()
    };
    let api = ApiServer::builder().authorization_modes([AuthorizationMode::AlwaysAllow]).build();
    send_as(&api, &robot(), "GET /api/v1/secrets", &[], "").await.expect_code(200);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    create_as(&api, &robot(), &format!("{ACCESS}/clusterroles"), role("all", all)).await.expect_code(201);
    let review = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"namespace": "default"}});
    let review = create_as(&api, &robot(), "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review).await;
    let rule = &review.json()["status"]["resourceRules"][0];
    assert_eq!((&rule["verbs"], &rule["apiGroups"], &rule["resources"]), (&json!(["*"]), &json!(["*"]), &json!(["*"])));
    assert_eq!(without_credentials(&api).await, 401);
    let api = ApiServer::builder().anonymous_auth(false).build();
    assert_eq!(without_credentials(&api).await, 401);
    send_as(&api, &robot(), "GET /api/v1/secrets", &[], "").await.expect_code(403);
    assert_eq!(without_credentials(&ApiServer::builder().build()).await, 200);
}

#[tokio::test]
async fn the_first_mode_that_allows_a_request_decides() {
    let policies = r#"{"user":"system:serviceaccount:default:robot","resource":"secrets","readonly":true}"#;
    let abac = || AuthorizationMode::Abac(AbacPolicies::from_lines(policies).unwrap());
    let get = async |api: &ApiServer, resource: &str| {
        send_as(api, &robot(), &format!("GET /api/v1/namespaces/default/{resource}"), &[], "").await
    };
    let api = ApiServer::builder().authorization_modes([abac(), AuthorizationMode::Rbac]).build();
    get(&api, "secrets").await.expect_code(200);
    let message = get(&api, "configmaps").await.expect_code(403).json()["message"].clone();
    let message = message.as_str().unwrap();
    assert!(message.ends_with("in the namespace \"default\": No policy matched."), "{message}");
    give(&api, "reader", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    get(&api, "configmaps").await.expect_code(200);

    let api = ApiServer::builder().authorization_modes([AuthorizationMode::AlwaysDeny, abac()]).build();
    get(&api, "secrets").await.expect_code(200);
    let message = get(&api, "configmaps").await.expect_code(403).json()["message"].clone();
    let message = message.as_str().unwrap();
    assert!(message.ends_with(": Everything is forbidden.\nNo policy matched."), "{message}");
    give(&api, "reader", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}])).await;
    get(&api, "configmaps").await.expect_code(403);
}

/// Decides by the name of the user, and knows the tokens that begin with `known`.
#[derive(Debug)]
struct ByName;

impl AccessReviewer for ByName {
    fn review(&self, user: &UserInfo, attributes: &Attributes) -> AccessReview {
        let reason = format!("{} of {}", attributes.verb, attributes.resource);
        match user.name.as_str() {
            "allowed" => AccessReview { allowed: true, reason, ..AccessReview::default() },
            "denied" => AccessReview { denied: true, reason, ..AccessReview::default() },
            "both" => AccessReview { allowed: true, denied: true, reason, ..AccessReview::default() },
            "failed" => AccessReview { evaluation_error: "no answer".into(), ..AccessReview::default() },
            "refused" => AccessReview { denied: true, evaluation_error: "no answer".into(), ..AccessReview::default() },
            _ => AccessReview { reason, ..AccessReview::default() },
        }
    }
}

impl TokenReviewer for ByName {
    fn review(&self, token: &str, audiences: &[String]) -> Result<Option<(UserInfo, Vec<String>)>, String> {
        match token {
            "known" => Ok(Some((UserInfo::new("allowed", ["g"]), Vec::new()))),
            "other" => Ok(Some((UserInfo::new("allowed", ["g"]), audiences.to_vec()))),
            "bad" => Err("it is bad".into()),
            _ => Ok(None),
        }
    }
}

#[tokio::test]
async fn another_program_decides_about_requests_and_tokens() {
    let modes = [AuthorizationMode::Webhook(Arc::new(ByName)), AuthorizationMode::AlwaysAllow];
    let api = ApiServer::builder().authorization_modes(modes).token_reviewer(Arc::new(ByName)).build();
    for (user, code) in
        [("allowed", 200), ("denied", 403), ("both", 500), ("failed", 200), ("refused", 500), ("anyone", 200)]
    {
        let user = UserInfo::new(user, ["system:authenticated"]);
        send_as(&api, &user, "GET /api/v1/secrets", &[], "").await.expect_code(code);
    }
    let refused = UserInfo::new("refused", ["system:authenticated"]);
    let undecided = send_as(&api, &refused, "GET /api/v1/secrets?limit=1&watch=0", &[], "").await;
    assert_eq!(undecided.text, "Internal Server Error: \"/api/v1/secrets?limit=1&amp;watch=0\": no answer\n");
    assert_eq!(undecided.header("content-type"), "text/plain; charset=utf-8");
    let review = async |path: &str, spec: Value| {
        let path = format!("/apis/{path}");
        create_as(&api, &UserInfo::admin(), &path, json!({"spec": spec})).await.expect_code(201).json()["status"]
            .clone()
    };
    let access = async |user: &str| {
        let spec = json!({"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}});
        review("authorization.k8s.io/v1/subjectaccessreviews", spec).await
    };
    assert_eq!(access("allowed").await, json!({"allowed": true, "reason": "get of pods"}));
    assert_eq!(access("denied").await, json!({"allowed": false, "denied": true, "reason": "get of pods"}));
    let error = "webhook subject access review returned both allow and deny response";
    let both = json!({"allowed": false, "denied": true, "reason": "get of pods", "evaluationError": error});
    assert_eq!(access("both").await, both);

    let token = async |token: &str, audiences: Value| {
        let spec = json!({"token": token, "audiences": audiences});
        review("authentication.k8s.io/v1/tokenreviews", spec).await
    };
    let own = json!(["https://kubernetes.default.svc.cluster.local"]);
    let user = json!({"username": "allowed", "groups": ["g", "system:authenticated"]});
    assert_eq!(token("known", json!([])).await, json!({"authenticated": true, "user": user, "audiences": own}));
    let other = json!(["x"]);
    assert_eq!(token("other", other.clone()).await, json!({"authenticated": true, "user": user, "audiences": other}));
    assert_eq!(token("known", json!(["x"])).await, json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(token("unknown", json!([])).await, json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(token("bad", json!([])).await, json!({"user": {}, "error": "[invalid bearer token, it is bad]"}));
}

#[tokio::test]
async fn static_tokens_identify_users() {
    let user = UserInfo::new("ann", ["system:masters"]);
    let api = ApiServer::builder().static_token("secret", user).build();
    let review = async |audiences: Value| {
        let review = json!({"spec": {"token": "secret", "audiences": audiences}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        create_as(&api, &UserInfo::admin(), path, review).await.expect_code(201).json()["status"].clone()
    };
    let own = json!(["https://kubernetes.default.svc.cluster.local"]);
    let user = json!({"username": "ann", "groups": ["system:masters", "system:authenticated"]});
    assert_eq!(review(json!([])).await, json!({"authenticated": true, "user": user, "audiences": own}));
    assert_eq!(review(json!(["other"])).await, json!({"user": {}, "error": "invalid bearer token"}));
    let request = |token: &str| Request::get("/api/v1/secrets").header("authorization", format!("Bearer {token}"));
    let code = async |token| api.handle(request(token).body(Full::from("")).unwrap()).await.status().as_u16();
    assert_eq!((code("secret").await, code("other").await), (200, 401));
}

#[tokio::test]
async fn without_a_role_only_public_requests_are_allowed() {
    let (api, _) = start();
    let client = api.client_of(robot());
    let pods = |namespace| Api::<Pod>::namespaced(client.clone(), namespace);
    let said = "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API \
                group \"\" in the namespace \"default\"";
    refused(pods("default").list(&ListParams::default()).await, 403, said);
    let said = "namespaces is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \
                \"namespaces\" in API group \"\" at the cluster scope";
    refused(Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await, 403, said);
    let said = "pods \"a\" is forbidden: User \"system:serviceaccount:default:robot\" cannot get resource \"pods/log\" \
                in API group \"\" in the namespace \"default\"";
    refused(pods("default").logs("a", &Default::default()).await, 403, said);
    let said = "namespaces \"x\" is forbidden: User \"system:serviceaccount:default:robot\" cannot delete resource \
                \"namespaces\" in API group \"\" in the namespace \"x\"";
    refused(Api::<Namespace>::all(client.clone()).delete("x", &Default::default()).await, 403, said);
    assert!(client.apiserver_version().await.is_ok() && client.list_api_groups().await.is_ok());

    let get = async |user: &UserInfo, path: &str| send_as(&api, user, &format!("GET {path}"), &[], "").await;
    let metrics = get(&robot(), "/metrics").await.expect_code(403).json();
    let said = "forbidden: User \"system:serviceaccount:default:robot\" cannot get path \"/metrics\"";
    assert_eq!((&metrics["message"], &metrics["reason"]), (&json!(said), &json!("Forbidden")));
    // Requests for resources that aren't served are forbidden as well.
    let unknown = get(&robot(), "/apis/x.example.com/v1/namespaces/a/things/b").await.expect_code(403).json();
    let said = "things.x.example.com \"b\" is forbidden: User \"system:serviceaccount:default:robot\" cannot get \
                resource \"things\" in API group \"x.example.com\" in the namespace \"a\"";
    assert_eq!(unknown["message"], said);
    assert_eq!(get(&UserInfo::admin(), "/apis/x.example.com/v1/namespaces/a/things/b").await.code, 404);

    let nobody = UserInfo::anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        get(&nobody, path).await.expect_code(200);
    }
    let root = get(&nobody, "/api").await.expect_code(403).json();
    assert_eq!(root["message"], "forbidden: User \"system:anonymous\" cannot get path \"/api\"");
}

#[tokio::test]
async fn a_role_applies_to_its_subjects_in_its_namespace() {
    let (api, admin) = start();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get", "list", "watch"]},
    ]);
    give(&api, "maps", rules).await;
    let client = api.client_of(robot());
    let maps = config_maps(&client, "default");
    maps.create(&PostParams::default(), &config_map("mine")).await.unwrap();
    maps.create(&PostParams::default(), &config_map("other")).await.unwrap();
    assert!(maps.get("mine").await.is_ok());
    refused(maps.get("other").await, 403, "cannot get resource \"configmaps\"");
    refused(maps.list(&ListParams::default()).await, 403, "cannot list");
    let only = ListParams::default().fields("metadata.name=mine");
    assert_eq!(maps.list(&only).await.unwrap().items.len(), 1, "whoever may look at one may look for it");
    refused(maps.delete("mine", &Default::default()).await, 403, "cannot delete");
    refused(maps.delete_collection(&Default::default(), &Default::default()).await, 403, "cannot deletecollection");
    refused(config_maps(&client, "kube-system").get("mine").await, 403, "in the namespace \"kube-system\"");
    // An apply that creates an object needs both verbs.
    let apply = PatchParams::apply("robot");
    maps.patch("new", &apply, &Patch::Apply(config_map("new"))).await.unwrap();
    api_replace_role(&admin, json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}])).await;
    maps.patch("new", &apply, &Patch::Apply(config_map("new"))).await.unwrap();
    let newer = maps.patch("newer", &apply, &Patch::Apply(config_map("newer"))).await;
    refused(
        newer,
        403,
        "configmaps \"newer\" is forbidden: User \"system:serviceaccount:default:robot\" cannot create",
    );

    let usage = api.usage("system:serviceaccount:default:robot");
    let denied: Vec<_> = usage.denied.keys().map(|attempt| attempt.verb.as_str()).collect();
    assert_eq!(denied, ["create", "delete", "deletecollection", "get", "get", "list"]);
    let allowed = usage.allowed.iter().map(|(attempt, times)| (attempt.verb.as_str(), *times));
    assert_eq!(allowed.collect::<Vec<_>>(), [("create", 3), ("get", 1), ("list", 1), ("patch", 3)]);
}

async fn api_replace_role(admin: &Client, rules: Value) {
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::default_namespaced(admin.clone());
    let patch = Patch::Merge(json!({"rules": rules}));
    roles.patch("maps", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn default_roles_are_bound() {
    let (api, _) = start();
    for (role, resource, verb, allowed) in [
        ("view", "pods", "list", true),
        ("view", "secrets", "list", false),
        ("edit", "secrets", "list", true),
        ("edit", "roles", "create", false),
        ("admin", "roles", "create", true),
        ("admin", "pods", "list", true),
    ] {
        let name = format!("{role}-{resource}-{verb}");
        let subject = json!([{"kind": "User", "name": name}]);
        let path = format!("{ACCESS}/namespaces/default/rolebindings");
        create(&api, &path, binding(&name, "ClusterRole", role, subject)).await;
        let group = if resource == "roles" { "rbac.authorization.k8s.io" } else { "" };
        let attributes = json!({"namespace": "default", "verb": verb, "resource": resource, "group": group});
        let review = json!({"spec": {"user": name, "resourceAttributes": attributes}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let status = create_as(&api, &UserInfo::admin(), path, review).await.expect_code(201).json()["status"].clone();
        assert_eq!(status["allowed"], allowed, "{name}");
        if allowed {
            let why =
                format!("RBAC: allowed by RoleBinding \"{name}/default\" of ClusterRole \"{role}\" to User \"{name}\"");
            assert_eq!(status["reason"], why);
        }
    }
}

#[tokio::test]
async fn nobody_grants_rights_that_they_do_not_hold() {
    let (api, _) = start();
    let own = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]);
    give(&api, "keeper", own).await;
    let roles = format!("{ACCESS}/namespaces/default/roles");
    let bindings = format!("{ACCESS}/namespaces/default/rolebindings");
    let few = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    create_as(&api, &robot(), &roles, role("few", few)).await.expect_code(201);
    let many = json!([{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "delete"]}]);
    let refused = create_as(&api, &robot(), &roles, role("many", many.clone())).await.expect_code(403).json();
    let said = "roles.rbac.authorization.k8s.io \"many\" is forbidden: user \
                \"system:serviceaccount:default:robot\" (groups=[\"system:serviceaccounts\" \
                \"system:serviceaccounts:default\" \"system:authenticated\"]) is attempting to grant RBAC permissions \
                not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], \
                Resources:[\"secrets\"], Verbs:[\"get\" \"delete\"]}";
    assert_eq!(refused["message"], said);
    // Changing a role or binding one must not grant more permissions either.
    let change = json!({"rules": many}).to_string();
    let merge = ["Content-Type: application/merge-patch+json"];
    send_as(&api, &robot(), &format!("PATCH {roles}/few"), &merge, change).await.expect_code(403);
    let bind = async |name: &str, kind: &str, role: &str| {
        create_as(&api, &robot(), &bindings, binding(name, kind, role, robot_subject())).await
    };
    bind("a", "Role", "few").await.expect_code(201);
    bind("b", "ClusterRole", "cluster-admin").await.expect_code(403);
    let missing = bind("c", "Role", "nowhere").await.expect_code(404).json();
    assert_eq!(missing["message"], "rolebindings.rbac.authorization.k8s.io \"nowhere\" not found");
    // The verbs `bind` and `escalate` permit it.
    let more = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["edit"], "verbs": ["bind"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]},
    ]);
    give(&api, "more", more).await;
    bind("d", "ClusterRole", "edit").await.expect_code(201);
    bind("e", "ClusterRole", "admin").await.expect_code(403);
    create_as(&api, &robot(), &roles, role("many", many)).await.expect_code(201);
}

#[tokio::test]
async fn an_aggregated_role_is_changed_only_with_all_rights() {
    let (api, _) = start();
    let own = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create", "update", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    create(&api, &format!("{ACCESS}/clusterroles"), role("role-editor", own)).await;
    let bound = binding("role-editor", "ClusterRole", "role-editor", robot_subject());
    create(&api, &format!("{ACCESS}/clusterrolebindings"), bound).await;
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = async |change: Value| {
        let line = format!("PATCH {ACCESS}/clusterroles/view");
        send_as(&api, &robot(), &line, &merge, change.to_string()).await
    };
    let said = "clusterroles.rbac.authorization.k8s.io \"view\" is forbidden: must have cluster-admin privileges to use \
                the aggregationRule";
    for change in [
        json!({"aggregationRule": null, "rules": []}),
        json!({"aggregationRule": null, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        json!({"rules": []}),
    ] {
        let refused = patch(change.clone()).await.expect_code(403).json();
        assert_eq!(refused["message"], said, "{change}");
    }
    let view = send_as(&api, &UserInfo::admin(), &format!("GET {ACCESS}/clusterroles/view"), &[], "").await.json();
    assert!(!view["rules"].as_array().unwrap().is_empty() && view["aggregationRule"].is_object());
    // Changing only owner references and finalizers is allowed, as the garbage collector needs it.
    patch(json!({"metadata": {"finalizers": ["example.com/wait"]}})).await.expect_code(200);
}

#[tokio::test]
async fn roles_and_bindings_are_checked() {
    let (api, _) = start();
    let roles = format!("{ACCESS}/namespaces/default/roles");
    let bad =
        role("bad", json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}, {"apiGroups": [""], "resources": ["a"]}]));
    let refused = create_as(&api, &UserInfo::admin(), &roles, bad).await.expect_code(422).json();
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("namespaced rules cannot apply to non-resource URLs"), "{said}");
    assert!(said.contains("rules[1].verbs: Required value: verbs must contain at least one value"), "{said}");
    let bindings = format!("{ACCESS}/namespaces/default/rolebindings");
    create(&api, &bindings, binding("a", "ClusterRole", "view", robot_subject())).await;
    let patch = json!({"roleRef": {"name": "edit"}}).to_string();
    let merge = ["Content-Type: application/merge-patch+json"];
    let line = format!("PATCH {bindings}/a");
    let refused = send_as(&api, &UserInfo::admin(), &line, &merge, patch).await.expect_code(422).json();
    assert!(refused["message"].as_str().unwrap().contains("cannot change roleRef"), "{refused}");
}

#[tokio::test]
async fn impersonation_needs_a_right() {
    let (api, _) = start();
    let whoami = async |user: &UserInfo, headers: &[&str]| {
        send_as(&api, user, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", headers, "{}").await
    };
    let as_jane = ["Impersonate-User: jane", "Impersonate-Group: staff", "Impersonate-Extra-acme%2Fteam: blue"];
    let jane = whoami(&UserInfo::admin(), &as_jane).await.expect_code(201).json()["status"]["userInfo"].clone();
    let expect =
        json!({"username": "jane", "groups": ["staff", "system:authenticated"], "extra": {"acme/team": ["blue"]}});
    assert_eq!(jane, expect);
    let robot_name = "system:serviceaccount:default:robot";
    let as_robot = format!("Impersonate-User: {robot_name}");
    let user = whoami(&UserInfo::admin(), &[&as_robot]).await.expect_code(201).json()["status"]["userInfo"].clone();
    assert_eq!(user["groups"], json!(robot().groups));
    // Impersonation replaces the permissions of the requesting user with those of the impersonated one.
    send_as(&api, &UserInfo::admin(), "GET /api/v1/pods", &["Impersonate-User: jane"], "").await.expect_code(403);

    let refused = whoami(&robot(), &as_jane).await.expect_code(403).json();
    let said = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:serviceaccount:default:robot\" cannot \
                impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at \
                the cluster scope";
    assert_eq!(refused["message"], said);
    let rules =
        json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate"]}]);
    create(&api, &format!("{ACCESS}/clusterroles"), role("be-jane", rules)).await;
    let bound = binding("be-jane", "ClusterRole", "be-jane", robot_subject());
    create(&api, &format!("{ACCESS}/clusterrolebindings"), bound).await;
    whoami(&robot(), &as_jane[..1]).await.expect_code(201);
    whoami(&robot(), &["Impersonate-User: john"]).await.expect_code(403);
    let refused = whoami(&robot(), &as_jane).await.expect_code(403).json();
    assert!(refused["message"].as_str().unwrap().contains("resource \"groups\""), "{refused}");
    whoami(&robot(), &["Impersonate-User: jane", "Impersonate-Group: system:masters"]).await.expect_code(403);
    whoami(&UserInfo::admin(), &["Impersonate-Group: staff"]).await.expect_code(400);
}

#[tokio::test]
async fn impersonation_can_be_allowed_for_certain_requests() {
    let (api, _) = start();
    const AS_JANE: [&str; 1] = ["Impersonate-User: jane"];
    let jane = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]);
    let maps = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list"]}]);
    create(&api, &format!("{ACCESS}/clusterroles"), role("jane", maps)).await;
    let bound = json!({
        "metadata": {"name": "jane"}, "subjects": jane,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"},
    });
    create(&api, &format!("{ACCESS}/clusterrolebindings"), bound).await;
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    create(&api, &format!("{ACCESS}/clusterroles"), role("list-as-jane", rules)).await;
    let bound = binding("list-as-jane", "ClusterRole", "list-as-jane", robot_subject());
    create(&api, &format!("{ACCESS}/clusterrolebindings"), bound).await;

    let list = async |resource: &str, headers: &[&str]| {
        send_as(&api, &robot(), &format!("GET /api/v1/{resource}"), headers, "").await
    };
    list("configmaps", &[]).await.expect_code(403);
    list("configmaps", &AS_JANE).await.expect_code(200);
    for (headers, said) in [
        (vec!["Impersonate-User: john"], "cannot impersonate:user-info resource \"users\""),
        (vec![AS_JANE[0], "Impersonate-Group: staff"], "cannot impersonate:user-info resource \"groups\""),
        (
            vec![AS_JANE[0], "Impersonate-Group: system:masters"],
            "impersonating the system:masters group is not allowed",
        ),
        (vec![AS_JANE[0], "Impersonate-Extra-team: blue"], "extra.key: Invalid value: \"team\""),
    ] {
        let refused = list("configmaps", &headers).await.expect_code(403).text;
        assert!(refused.replace("\\\"", "\"").contains(said), "{refused}");
    }
    let refused = list("secrets", &AS_JANE).await.expect_code(403).text;
    assert!(refused.contains("cannot impersonate-on:user-info:list resource"), "{refused}");

    // Who acts as a node without the verb `impersonate` is in its group.
    let headers = ["Impersonate-User: system:node:a"];
    let path = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
    let node = send_as(&api, &UserInfo::admin(), path, &headers, "{}").await.expect_code(201).json();
    assert_eq!(node["status"]["userInfo"]["groups"], json!(["system:nodes", "system:authenticated"]));
}

#[tokio::test]
async fn rules_reviews_list_the_requesters_rules() {
    let (api, _) = start();
    give(&api, "maps", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])).await;
    let ask = async |namespace: &str| {
        let review = json!({"spec": {"namespace": namespace}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        create_as(&api, &robot(), path, review).await.expect_code(201).json()["status"].clone()
    };
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
    let own = ask("default").await;
    assert!(own["resourceRules"].as_array().unwrap().contains(&rule), "{own}");
    assert_eq!(own["incomplete"], false);
    assert!(own["nonResourceRules"].to_string().contains("/healthz"));
    assert!(!ask("kube-system").await["resourceRules"].as_array().unwrap().contains(&rule));
}
