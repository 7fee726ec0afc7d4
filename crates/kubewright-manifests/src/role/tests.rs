use std::collections::BTreeSet;

use kubewright_apimachinery::description::{Controller, Kind, Relation, Resource, Use};
use serde_json::json;

use super::*;

fn used(group: &str, plural: &str, namespaced: bool, relation: Relation) -> Use {
    let resource = Resource::new(group.into(), "v1".into(), "Kind".into(), plural.into(), namespaced);
    Use::new(resource, relation)
}

fn rights(group: &str, resource: &str, verbs: &[Verb]) -> Rule {
    let mut rule = Rule::default();
    (rule.group, rule.resource, rule.namespaced) = (group.into(), resource.into(), true);
    rule.verbs = verbs.iter().copied().collect();
    rule
}

/// Returns a controller of cows that owns pods.
fn cows() -> Controller {
    let mut controller = Controller::default();
    controller.name = "cow".into();
    controller.uses = vec![used("my.domain", "cows", true, Relation::For), used("", "pods", true, Relation::Owns)];
    controller
}

fn described(controller: Controller) -> Description {
    let mut description = Description::default();
    description.controllers = vec![controller];
    description
}

/// Formats the rules of the objects of the first file, one per line.
fn lines(description: &Description, namespaced: bool) -> Vec<String> {
    let texts = |rule: &Value, part: &str| {
        let texts = rule[part].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(",")
    };
    let mut lines = Vec::new();
    for object in &roles(description, "cow-", namespaced).unwrap()[0].objects {
        lines.push(format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()));
        for rule in object["rules"].as_array().into_iter().flatten() {
            let what =
                ["apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs"].map(|part| texts(rule, part));
            lines.push(what.join(" ").trim().to_owned());
        }
    }
    lines
}

fn refused(controller: Controller) -> String {
    roles(&described(controller), "", false).err().unwrap().to_string()
}

#[test]
fn common_rules_are_derived() {
    let mut controller = cows();
    controller.uses.push(used("", "secrets", true, Relation::Reads));
    let expected = [
        "ClusterRole manager-role",
        "pods   create,delete,get,list,patch,watch",
        "secrets   get,list,watch",
        "events.k8s.io events   create,patch",
        "my.domain cows   get,list,watch",
        "my.domain cows/finalizers   update",
        "my.domain cows/status   patch",
    ];
    assert_eq!(lines(&described(controller.clone()), false), expected);
    controller.finalizer = Some("cows.my.domain/cleanup".into());
    controller.workspace = true;
    let with_more = lines(&described(controller), false);
    assert!(with_more.contains(&"my.domain cows   get,list,patch,watch".to_owned()), "{with_more:?}");
    assert!(with_more.contains(&"configmaps   create,delete,get,patch".to_owned()), "{with_more:?}");
}

#[test]
fn rules_are_joined_by_verbs_resources_and_groups() {
    let mut controller = cows();
    controller.uses.extend([
        used("", "services", true, Relation::Owns),
        used("your.domain", "cows", true, Relation::For),
        used("", "pods", true, Relation::Watches),
    ]);
    let mut urls = ["/metrics", "/healthz"].map(|url| {
        let mut rule = rights("", "", &[Verb::Get]);
        rule.url = url.into();
        rule
    });
    urls[1].verbs.insert(Verb::Get);
    controller.may = urls.to_vec();
    let expected = [
        "ClusterRole manager-role",
        "pods,services   create,delete,get,list,patch,watch",
        "events.k8s.io events   create,patch",
        "my.domain,your.domain cows   get,list,watch",
        "my.domain,your.domain cows/finalizers   update",
        "my.domain,your.domain cows/status   patch",
        "/healthz,/metrics get",
    ];
    assert_eq!(lines(&described(controller), false), expected);
}

#[test]
fn all_verbs_include_the_others() {
    let mut controller = cows();
    controller.may = vec![
        rights("", "secrets", &[Verb::Get]),
        rights("", "secrets", &[Verb::All]),
        rights("*", "*/scale", &[Verb::Patch]),
    ];
    let lines = lines(&described(controller), false);
    for expected in ["secrets   *", "* */scale   patch"] {
        assert!(lines.contains(&expected.to_owned()), "{expected} in {lines:#?}");
    }
}

#[test]
fn names_and_roles_are_not_joined() {
    let mut controller = cows();
    let mut token = rights("", "secrets", &[Verb::Get]);
    token.names = BTreeSet::from(["token".into()]);
    let mut own = rights("", "secrets", &[Verb::Create]);
    own.scope = Scope::Own;
    let mut apart = rights("", "nodes", &[Verb::Get]);
    apart.role = "node-role".into();
    controller.may = vec![token, own, apart];
    let lines = lines(&described(controller), false);
    for expected in [
        "secrets token  get",
        "Role manager-own-role",
        "RoleBinding manager-own-rolebinding",
        "secrets   create",
        "ClusterRole node-role",
        "ClusterRoleBinding node-rolebinding",
    ] {
        assert!(lines.contains(&expected.to_owned()), "{expected} in {lines:#?}");
    }
}

#[test]
fn a_namespaced_operator_has_cluster_roles_only_for_cluster_scoped_kinds() {
    let mut controller = cows();
    controller.uses.push(used("", "nodes", false, Relation::Watches));
    let expected = [
        "ClusterRole manager-cluster-role",
        "nodes   get,list,watch",
        "ClusterRoleBinding manager-cluster-rolebinding",
        "Role manager-role",
        "pods   create,delete,get,list,patch,watch",
        "events.k8s.io events   create,patch",
        "my.domain cows   get,list,watch",
        "my.domain cows/finalizers   update",
        "my.domain cows/status   patch",
    ];
    assert_eq!(lines(&described(controller), true), expected);
}

#[test]
fn excluded_verbs_are_removed() {
    let mut controller = cows();
    controller.may_not =
        vec![rights("", "pods", &[Verb::Delete]), rights("events.k8s.io", "events", &[Verb::Create, Verb::Patch])];
    let lines = lines(&described(controller.clone()), false);
    assert!(lines.contains(&"pods   create,get,list,patch,watch".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("events")), "{lines:?}");
    controller.may_not = vec![rights("", "pods", &[Verb::Delete, Verb::Update])];
    assert_eq!(
        refused(controller),
        "controller cow omits the rule to update, delete pods, which its wiring doesn't imply: remove that rule from its .rbac(…)"
    );
}

#[test]
fn a_kind_without_the_status_subresource_has_no_rule_for_it() {
    let version = |subresources| json!({"name": "v1", "subresources": subresources});
    let mut description = described(cows());
    for (subresources, has_status) in [(json!({}), false), (json!({"status": {}}), true)] {
        let definition =
            json!({"spec": {"group": "my.domain", "names": {"plural": "cows"}, "versions": [version(subresources)]}});
        description.kinds = vec![Kind::new(vec![definition])];
        let lines = lines(&description, false);
        assert_eq!(lines.contains(&"my.domain cows/status   patch".to_owned()), has_status);
    }
}

#[test]
fn built_in_kinds_have_a_rule_for_their_status_if_there_is_one() {
    let cases = [
        ("", "secrets", false),
        ("", "configmaps", false),
        ("", "pods", true),
        ("apps", "deployments", true),
        ("networking.k8s.io", "ingresses", true),
        ("networking.k8s.io", "networkpolicies", false),
        ("my.domain", "secrets", true),
    ];
    for (group, plural, has_status) in cases {
        let mut controller = cows();
        controller.uses = vec![used(group, plural, true, Relation::For)];
        let lines = lines(&described(controller), false);
        let has_rule = lines.iter().any(|line| line.contains(&format!("{plural}/status")));
        assert_eq!(has_rule, has_status, "{group} {plural}: {lines:?}");
        assert!(lines.iter().any(|line| line.contains(&format!("{plural}/finalizers"))), "{lines:?}");
    }
}

#[test]
fn invalid_rules_are_errors() {
    let with = |rule: Rule| {
        let mut controller = cows();
        controller.may = vec![rule];
        refused(controller)
    };
    let mut named = rights("", "secrets", &[Verb::Get, Verb::Create]);
    named.names = BTreeSet::from(["token".into()]);
    assert!(with(named).starts_with("the rule to get, create secrets \"token\" can't be limited to names"));
    assert!(with(rights("", "secrets", &[])).contains("has no verb"));
    let mut url = rights("", "", &[Verb::Get]);
    url.url = "metrics".into();
    assert!(with(url).starts_with("invalid rule to get metrics: a path begins with a slash"));
}

#[test]
fn features_have_roles_with_the_name_prefix() {
    let mut secret = rights("", "secrets", &[Verb::Get]);
    secret.names = BTreeSet::from(["webhook-server-cert".into()]);
    secret.scope = Scope::Own;
    let mut description = described(cows());
    description.features = [("webhook".to_owned(), vec![secret])].into();
    let files = roles(&description, "cow-", false).unwrap();
    assert_eq!(
        files.iter().map(|file| file.path).collect::<Vec<_>>(),
        ["config/rbac/role.yaml", "config/webhook/role.yaml"]
    );
    let [role] = files[1].objects.as_slice() else { panic!("one role, as there are no rights to the cluster") };
    assert_eq!((&role["kind"], &role["metadata"]["name"]), (&json!("Role"), &json!("webhook-role")));
    assert_eq!(role["rules"][0]["resourceNames"], json!(["cow-webhook-server-cert"]));
}
