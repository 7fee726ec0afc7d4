//! Roles and role bindings: validation, prevention of privilege escalation, and their index for the authorizer
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/>).

use std::sync::Arc;

use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::Value;

use super::{
    columns::{self, age},
    validation::{Errors, Path, Shown, field, items, string, validate_label_selector, validate_required_name},
};
use crate::{
    auth::{Attributes, Requester, service_account_name},
    authorizer::{Authorizer, Binding, PolicyRule, RoleKey, Subject, quoted, uncovered},
    fields::{each, fill_zero, list, text, within},
    registry::{Column, Strategy},
};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The pointer to the selectors of the roles that a role aggregates.
const AGGREGATION: &str = "/aggregationRule/clusterRoleSelectors";

/// The scope of roles and bindings: one namespace or the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Namespace,
    Cluster,
}

fn key(object: &Value) -> RoleKey {
    (text(object, "/metadata/namespace").into(), text(object, "/metadata/name").into())
}

/// Returns whether a write changes more than the fields that the garbage collector changes.
fn changes_content(old: Option<&Value>, new: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    old.is_none_or(|old| content(old) != content(new))
}

/// Rejects a grant of rules that the requester doesn't hold.
fn check_escalation(
    requester: &Requester<'_>,
    resource: &str,
    object: &Value,
    rules: &[PolicyRule],
) -> Result<(), Status> {
    let user = requester.user();
    let held = requester.effective_rules(user, text(object, "/metadata/namespace"));
    let uncovered = uncovered(&held.rules, rules);
    if uncovered.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{uncovered}",
        user.name,
        quoted(&user.groups),
    );
    if !held.errors.is_empty() {
        why += &format!("; resolution errors: [{}]", held.errors.join(", "));
    }
    Err(Status::forbidden(GROUP, resource, text(object, "/metadata/name"), &why))
}

/// The strategy of roles. It reports committed roles to the authorizer.
#[derive(Debug)]
pub(super) struct RoleStrategy {
    pub(super) scope: Scope,
    pub(super) authorizer: Arc<Authorizer>,
}

impl RoleStrategy {
    fn resource(&self) -> &'static str {
        if self.scope == Scope::Cluster { "clusterroles" } else { "roles" }
    }
}

impl Strategy for RoleStrategy {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let path = Path::new("rules");
            for (index, rule) in items(new, "rules").iter().enumerate() {
                validate_rule(rule, self.scope, &path.index(index), errors);
            }
            if let Some(rule) = field(new, "aggregationRule") {
                validate_aggregation(rule, errors);
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn check_access(&self, requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let name = text(new, "/metadata/name");
        let escalate = Attributes {
            verb: "escalate".into(),
            group: GROUP.into(),
            resource: self.resource().into(),
            namespace: text(new, "/metadata/namespace").into(),
            name: name.into(),
            ..Attributes::default()
        };
        if requester.user().is_unrestricted() || !changes_content(old, new) || requester.may(&escalate) {
            return Ok(());
        }
        check_escalation(requester, self.resource(), new, &rules(new))?;
        // An aggregation rule can add any rule to the role, and removing it takes rules away. Changing a role that has
        // or had one therefore requires all permissions.
        if [old, Some(new)].into_iter().flatten().any(|role| !list(role, AGGREGATION).is_empty()) {
            let held = requester.effective_rules(requester.user(), "").rules;
            if !uncovered(&held, &PolicyRule::full_authority()).is_empty() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Status::forbidden(GROUP, self.resource(), name, why));
            }
        }
        Ok(())
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(role) = after.or(before) {
            self.authorizer.roles().set_role(&key(role), after.map(rules));
        }
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::path_segment
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn rules(role: &Value) -> Vec<PolicyRule> {
    list(role, "/rules").iter().map(PolicyRule::parse).collect()
}

fn validate_rule(rule: &Value, scope: Scope, path: &Path<'_>, errors: &mut Errors) {
    let is_filled = |field: &str| !items(rule, field).is_empty();
    let mut require = |field: &str, why: &str| {
        if !is_filled(field) {
            errors.required(&path.child(field), why);
        }
    };
    require("verbs", "verbs must contain at least one value");
    if !is_filled("nonResourceURLs") {
        require("apiGroups", "resource rules must supply at least one api group");
        require("resources", "resource rules must supply at least one resource");
        return;
    }
    let mut refuse = |why: &str| {
        errors.invalid(&path.child("nonResourceURLs"), rule["nonResourceURLs"].clone(), why);
    };
    if scope == Scope::Namespace {
        refuse("namespaced rules cannot apply to non-resource URLs");
    }
    if ["apiGroups", "resources", "resourceNames"].into_iter().any(is_filled) {
        refuse("rules cannot apply to both regular resources and non-resource URLs");
    }
}

fn validate_aggregation(rule: &Value, errors: &mut Errors) {
    let path = Path::new("aggregationRule.clusterRoleSelectors");
    let selectors = items(rule, "clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(&path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        if errors.any(|errors| validate_label_selector(selector, &path, errors)) {
            errors.invalid(&path, Value::Null, "invalid label selector.");
        }
    }
}

/// The strategy of role bindings. It reports committed bindings to the authorizer.
#[derive(Debug)]
pub(super) struct BindingStrategy {
    pub(super) scope: Scope,
    pub(super) authorizer: Arc<Authorizer>,
}

impl BindingStrategy {
    fn resource(&self) -> &'static str {
        if self.scope == Scope::Cluster { "clusterrolebindings" } else { "rolebindings" }
    }
}

impl Strategy for BindingStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "roleRef", |role| fill_zero(role, "apiGroup", GROUP));
        for subject in each(object, "subjects") {
            if matches!(text(subject, "/kind"), "User" | "Group") {
                fill_zero(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let (role, path) = (&new["roleRef"], Path::new("roleRef"));
            let kinds: &[&str] = if self.scope == Scope::Cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
            for (field, supported) in [("apiGroup", &[GROUP][..]), ("kind", kinds)] {
                let value = string(role, field);
                if !supported.contains(&value) {
                    errors.not_supported(&path.child(field), value, supported);
                }
            }
            validate_required_name(string(role, "name"), name::path_segment, &path.child("name"), errors);
            let subjects = Path::new("subjects");
            for (index, subject) in items(new, "subjects").iter().enumerate() {
                validate_subject(subject, self.scope, &subjects.index(index), errors);
            }
            if old.is_some_and(|old| old["roleRef"] != *role) {
                let fields = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
                let shown = Shown::object(fields.map(|(shown, field)| (shown, string(role, field).into())));
                errors.invalid(&path, shown, "cannot change roleRef");
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn check_access(&self, requester: &Requester<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let cluster = text(new, "/roleRef/kind") == "ClusterRole";
        let resource = if cluster { "clusterroles" } else { "roles" };
        let (namespace, role) = (text(new, "/metadata/namespace"), text(new, "/roleRef/name"));
        let bind = Attributes {
            verb: "bind".into(),
            group: GROUP.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: role.into(),
            ..Attributes::default()
        };
        if requester.user().is_unrestricted() || !changes_content(old, new) || requester.may(&bind) {
            return Ok(());
        }
        let rules = requester.role((!cluster).then_some(namespace), role);
        // Kubernetes names the resource of the request, also for the role that it looks up.
        let rules = rules.ok_or_else(|| Status::not_found(GROUP, self.resource(), role))?;
        check_escalation(requester, self.resource(), new, &rules)
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(object) = after.or(before) {
            self.authorizer.roles().set_binding(&key(object), after.map(binding));
        }
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::path_segment
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn binding(object: &Value) -> Binding {
    let role = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = list(object, "/subjects").iter();
    let subjects =
        subjects.map(|subject| [text(subject, "/kind"), text(subject, "/namespace"), text(subject, "/name")]);
    described_binding(text(object, "/metadata/namespace"), text(object, "/metadata/name"), role, subjects)
}

/// Returns a binding of a role, which is given by kind and name, to subjects, which are given by kind, namespace and
/// name. The binding has a namespace unless it is for the whole cluster.
pub(super) fn described_binding<'a>(
    namespace: &str,
    name: &str,
    (kind, role): (&str, &str),
    subjects: impl Iterator<Item = [&'a str; 3]>,
) -> Binding {
    let description = if namespace.is_empty() {
        format!("ClusterRoleBinding {name:?} of {kind} {role:?}")
    } else {
        format!("RoleBinding {:?} of {kind} {role:?}", format!("{name}/{namespace}"))
    };
    let role_namespace = if kind == "ClusterRole" { "" } else { namespace };
    let subjects = subjects.filter_map(|subject| described_subject(subject, namespace)).collect();
    Binding { role: (role_namespace.into(), role.into()), description, subjects }
}

/// Returns a subject with its name in messages. A service account without a namespace is in that of the binding.
fn described_subject([kind, own, name]: [&str; 3], namespace: &str) -> Option<(Subject, String)> {
    match kind {
        "User" => Some((Subject::User(name.into()), format!("{kind} {name:?}"))),
        "Group" => Some((Subject::Group(name.into()), format!("{kind} {name:?}"))),
        "ServiceAccount" => {
            let namespace = if own.is_empty() { namespace } else { own };
            let description = format!("{kind} {:?}", format!("{name}/{namespace}"));
            Some((Subject::User(service_account_name(namespace, name).into()), description))
        }
        _ => None,
    }
}

fn validate_subject(subject: &Value, scope: Scope, path: &Path<'_>, errors: &mut Errors) {
    let kind = string(subject, "kind");
    let rule = if kind == "ServiceAccount" { name::dns1123_subdomain } else { |_: &str| Vec::new() };
    validate_required_name(string(subject, "name"), rule, &path.child("name"), errors);
    let group = match kind {
        "ServiceAccount" => "",
        "User" | "Group" => GROUP,
        _ => {
            errors.not_supported(&path.child("kind"), kind, &["ServiceAccount", "User", "Group"]);
            return;
        }
    };
    let sent = string(subject, "apiGroup");
    if sent != group {
        errors.not_supported(&path.child("apiGroup"), sent, &[group]);
    }
    if kind == "ServiceAccount" && scope == Scope::Cluster && string(subject, "namespace").is_empty() {
        errors.required(&path.child("namespace"), "");
    }
}

pub(super) fn binding_columns() -> Vec<Column> {
    vec![
        columns::string("Role", |object, _| {
            format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into()
        }),
        age(),
        columns::string("Users", |object, _| subjects(object, "User")).wide(),
        columns::string("Groups", |object, _| subjects(object, "Group")).wide(),
        columns::string("ServiceAccounts", |object, _| subjects(object, "ServiceAccount")).wide(),
    ]
}

fn subjects(object: &Value, kind: &str) -> Value {
    let names: Vec<_> = list(object, "/subjects")
        .iter()
        .filter(|subject| text(subject, "/kind") == kind)
        .map(|subject| match (kind, text(subject, "/namespace")) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
            _ => text(subject, "/name").into(),
        })
        .collect();
    names.join(", ").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role_strategy(scope: Scope) -> RoleStrategy {
        RoleStrategy { scope, authorizer: Arc::default() }
    }

    fn fields(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|cause| cause.field.as_str()).collect()
    }

    #[test]
    fn rules_are_for_resources_or_paths() {
        let check = |rule: Value, scope: Scope, expect: &[&str]| {
            let causes = role_strategy(scope).validate(None, &json!({"rules": [rule]}));
            assert_eq!(fields(&causes), expect, "{rule}");
        };
        check(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), Scope::Namespace, &[]);
        check(json!({}), Scope::Cluster, &["rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"]);
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        check(path.clone(), Scope::Cluster, &[]);
        check(path, Scope::Namespace, &["rules[0].nonResourceURLs"]);
        let both = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]});
        check(both, Scope::Cluster, &["rules[0].nonResourceURLs"]);
        let aggregated = json!({"aggregationRule": {"clusterRoleSelectors": []}});
        let causes = role_strategy(Scope::Cluster).validate(None, &aggregated);
        assert_eq!(fields(&causes), ["aggregationRule.clusterRoleSelectors"]);
    }

    #[test]
    fn bindings_need_a_valid_role_and_subjects() {
        let strategy = BindingStrategy { scope: Scope::Cluster, authorizer: Arc::default() };
        let mut binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "a"},
            "subjects": [
                {"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "robot", "namespace": "n"},
            ],
        });
        strategy.default(&mut binding);
        assert_eq!(strategy.validate(None, &binding), []);
        let mut other = binding.clone();
        other["roleRef"]["name"] = "b".into();
        assert_eq!(
            strategy.validate(Some(&binding), &other)[0].message,
            format!(
                "Invalid value: {{\"APIGroup\":{GROUP:?},\"Kind\":\"ClusterRole\",\"Name\":\"b\"}}: cannot change roleRef"
            )
        );
        let bad = json!({
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "a/b"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "Robot", "name": ""}],
        });
        let expect = ["roleRef.kind", "roleRef.name", "subjects[0].namespace", "subjects[1].name", "subjects[1].kind"];
        assert_eq!(fields(&strategy.validate(None, &bad)), expect);
    }
}
