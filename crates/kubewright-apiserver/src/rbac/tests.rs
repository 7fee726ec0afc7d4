use serde_json::json;

use super::*;

fn place(namespace: &str, name: &str) -> Place {
    (namespace.into(), name.into())
}

fn pods(verb: &str) -> Vec<Rule> {
    vec![Rule::parse(&json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}))]
}

fn binding(role: Place, subject: Subject) -> Option<Binding> {
    Some(Binding { role, shown: "B".into(), subjects: vec![(subject, "S".into())] })
}

fn attempt(verb: &str, namespace: &str) -> Attempt {
    Attempt { verb: verb.into(), resource: "pods".into(), namespace: namespace.into(), ..Attempt::default() }
}

#[test]
fn bindings_reach_as_far_as_their_place() {
    let grants = Grants::default();
    let jane = UserInfo::new("jane", ["staff"]);
    let may = |verb: &str, namespace: &str| grants.decide(&jane, &attempt(verb, namespace)).allowed;
    grants.set_role(&place("", "all"), Some(pods("get")));
    grants.set_role(&place("a", "own"), Some(pods("list")));
    assert!(!may("get", "a"));
    grants.set_binding(&place("a", "one"), binding(place("", "all"), Subject::User("jane".into())));
    assert!(may("get", "a") && !may("get", "b") && !may("get", "") && !may("list", "a"));
    grants.set_binding(&place("a", "two"), binding(place("a", "own"), Subject::Group("staff".into())));
    assert!(may("list", "a") && !may("list", "b"));
    grants.set_binding(&place("", "three"), binding(place("", "all"), Subject::Group("staff".into())));
    assert!(may("get", "b") && may("get", ""));
    assert_eq!(grants.held(&jane, "a").rules.len(), 3);
    assert_eq!(grants.held(&jane, "").rules.len(), 1);
    // A binding that changes lets go of those it no longer names.
    grants.set_binding(&place("", "three"), binding(place("", "all"), Subject::Group("others".into())));
    assert!(!may("get", "b"));
    grants.set_binding(&place("a", "one"), None);
    assert!(!may("get", "a") && may("list", "a"));
    grants.set_role(&place("a", "own"), None);
    assert!(!may("list", "a"));
    assert!(grants.decide(&UserInfo::admin(), &attempt("delete", "a")).allowed);
}

#[test]
fn verdicts_say_why() {
    let grants = Grants::default();
    let jane = UserInfo::new("jane", ["staff"]);
    grants.set_role(&place("", "all"), Some(pods("get")));
    grants.set_binding(&place("", "b"), binding(place("", "all"), Subject::Group("staff".into())));
    grants.set_binding(&place("a", "c"), binding(place("a", "gone"), Subject::User("jane".into())));
    assert_eq!(grants.decide(&jane, &attempt("get", "a")).reason, "RBAC: allowed by B to S");
    let denied = grants.decide(&jane, &attempt("list", "a"));
    assert_eq!(denied.reason, r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#);
    assert_eq!(grants.decide(&jane, &attempt("list", "b")).reason, "");
}
