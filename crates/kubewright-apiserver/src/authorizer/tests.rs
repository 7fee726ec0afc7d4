use serde_json::json;

use super::*;

fn key(namespace: &str, name: &str) -> RoleKey {
    (namespace.into(), name.into())
}

fn pods(verb: &str) -> Vec<PolicyRule> {
    vec![PolicyRule::parse(&json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}))]
}

fn binding(role: RoleKey, subject: Subject) -> Option<Binding> {
    Some(Binding { role, description: "B".into(), subjects: vec![(subject, "S".into())] })
}

fn attributes(verb: &str, namespace: &str) -> Attributes {
    Attributes { verb: verb.into(), resource: "pods".into(), namespace: namespace.into(), ..Attributes::default() }
}

#[test]
fn bindings_apply_to_their_own_namespace() {
    let authorizer = Authorizer::default();
    let jane = UserInfo::new("jane", ["staff"]);
    let may = |verb: &str, namespace: &str| authorizer.authorize(&jane, &attributes(verb, namespace)).allowed;
    authorizer.roles().set_role(&key("", "all"), Some(pods("get")));
    authorizer.roles().set_role(&key("a", "own"), Some(pods("list")));
    assert!(!may("get", "a"));
    authorizer.roles().set_binding(&key("a", "one"), binding(key("", "all"), Subject::User("jane".into())));
    assert!(may("get", "a") && !may("get", "b") && !may("get", "") && !may("list", "a"));
    authorizer.roles().set_binding(&key("a", "two"), binding(key("a", "own"), Subject::Group("staff".into())));
    assert!(may("list", "a") && !may("list", "b"));
    authorizer.roles().set_binding(&key("", "three"), binding(key("", "all"), Subject::Group("staff".into())));
    assert!(may("get", "b") && may("get", ""));
    assert_eq!(authorizer.effective_rules(&jane, "a").rules.len(), 3);
    assert_eq!(authorizer.effective_rules(&jane, "").rules.len(), 1);
    // A changed binding no longer applies to its former subjects.
    authorizer.roles().set_binding(&key("", "three"), binding(key("", "all"), Subject::Group("others".into())));
    assert!(!may("get", "b"));
    authorizer.roles().set_binding(&key("a", "one"), None);
    assert!(!may("get", "a") && may("list", "a"));
    authorizer.roles().set_role(&key("a", "own"), None);
    assert!(!may("list", "a"));
    assert!(authorizer.authorize(&UserInfo::admin(), &attributes("delete", "a")).allowed);
}

#[test]
fn decisions_have_a_reason() {
    let authorizer = Authorizer::default();
    let jane = UserInfo::new("jane", ["staff"]);
    authorizer.roles().set_role(&key("", "all"), Some(pods("get")));
    authorizer.roles().set_binding(&key("", "b"), binding(key("", "all"), Subject::Group("staff".into())));
    authorizer.roles().set_binding(&key("a", "c"), binding(key("a", "gone"), Subject::User("jane".into())));
    assert_eq!(authorizer.authorize(&jane, &attributes("get", "a")).reason, "RBAC: allowed by B to S");
    let denied = authorizer.authorize(&jane, &attributes("list", "a"));
    assert_eq!(denied.reason, r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#);
    assert_eq!(authorizer.authorize(&jane, &attributes("list", "b")).reason, "");
}
