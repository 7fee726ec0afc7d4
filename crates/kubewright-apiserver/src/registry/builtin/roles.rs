//! The default roles that users of an embedded cluster need, and their bindings
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>).

use serde_json::{Value, json};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
const MONITORING: &[&str] =
    &["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"];

const ISSUER: &[&str] =
    &["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"];

/// A rule for resources: group, resources and verbs.
type RuleSpec = (&'static str, &'static [&'static str], &'static [&'static str]);

const VIEW: &[RuleSpec] = &[
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
        READ,
    ),
    (
        "",
        &[
            "bindings",
            "events",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
        READ,
    ),
    ("", &["namespaces"], READ),
    ("discovery.k8s.io", &["endpointslices"], READ),
    (
        "apps",
        &[
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
        READ,
    ),
    ("autoscaling", &["horizontalpodautoscalers", "horizontalpodautoscalers/status"], READ),
    ("batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], READ),
    ("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    ("networking.k8s.io", &["ingresses", "ingresses/status", "networkpolicies"], READ),
];

const EDIT: &[RuleSpec] = &[
    ("", &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], READ),
    ("", &["serviceaccounts"], &["impersonate"]),
    ("", &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], WRITE),
    ("", &["pods/eviction"], CREATE),
    (
        "",
        &[
            "configmaps",
            "events",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
        WRITE,
    ),
    ("", &["serviceaccounts/token"], CREATE),
    (
        "apps",
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
        WRITE,
    ),
    ("autoscaling", &["horizontalpodautoscalers"], WRITE),
    ("batch", &["cronjobs", "jobs"], WRITE),
    ("policy", &["poddisruptionbudgets"], WRITE),
    ("networking.k8s.io", &["ingresses", "networkpolicies"], WRITE),
    ("coordination.k8s.io", &["leases"], ALL),
];

const ADMIN: &[RuleSpec] = &[
    ("authorization.k8s.io", &["localsubjectaccessreviews"], CREATE),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings"], ALL),
];

const BASIC_USER: &[RuleSpec] = &[
    ("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], CREATE),
    ("authentication.k8s.io", &["selfsubjectreviews"], CREATE),
];

const DELEGATOR: &[RuleSpec] = &[
    ("authentication.k8s.io", &["tokenreviews"], CREATE),
    ("authorization.k8s.io", &["subjectaccessreviews"], CREATE),
];

fn rules(specs: &[RuleSpec]) -> Vec<Value> {
    let rule =
        |(group, resources, verbs): &RuleSpec| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    specs.iter().map(rule).collect()
}

fn get(paths: &[&str]) -> Vec<Value> {
    vec![json!({"nonResourceURLs": paths, "verbs": ["get"]})]
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    })
}

fn label(role: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{role}")
}

/// Returns a cluster role. With `part_of`, it is aggregated into the role of that name.
fn role(name: &str, part_of: Option<&str>, rules: Vec<Value>) -> Value {
    let mut role = object("ClusterRole", name);
    if let Some(target) = part_of {
        role["metadata"]["labels"][label(target)] = "true".into();
    }
    role["rules"] = rules.into();
    role
}

/// Returns an aggregated role. It contains its rules from the start; a controller updates them later.
fn aggregated(name: &str, part_of: Option<&str>, parts: [Vec<Value>; 2]) -> Value {
    let mut role = role(name, part_of, parts.concat());
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]});
    role
}

fn binding(role: &str, groups: &[&str]) -> Value {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let mut binding = object("ClusterRoleBinding", role);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role});
    let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
    binding["subjects"] = groups.iter().map(subject).collect();
    binding
}

/// Returns the default cluster roles.
pub(super) fn roles() -> Vec<Value> {
    let everything = vec![
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
    ];
    // Rules are in the order of the aggregated roles' names, as the controller sorts them.
    let view = rules(VIEW);
    let edit = [rules(EDIT), view.clone()];
    let admin = [edit.concat(), rules(ADMIN)];
    vec![
        role("cluster-admin", None, everything),
        aggregated("admin", None, admin),
        aggregated("edit", Some("admin"), edit),
        aggregated("view", Some("edit"), [view.clone(), Vec::new()]),
        role("system:aggregate-to-admin", Some("admin"), rules(ADMIN)),
        role("system:aggregate-to-edit", Some("edit"), rules(EDIT)),
        role("system:aggregate-to-view", Some("view"), view),
        role("system:auth-delegator", None, rules(DELEGATOR)),
        role("system:basic-user", None, rules(BASIC_USER)),
        role("system:discovery", None, get(DISCOVERY)),
        role("system:monitoring", None, get(MONITORING)),
        role("system:public-info-viewer", None, get(PUBLIC)),
        role("system:service-account-issuer-discovery", None, get(ISSUER)),
    ]
}

/// The role that may read how this server identifies users to aggregated API servers.
const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";

fn reader_metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "kube-system", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

/// Returns the role by which aggregated API servers find out how this server identifies users to them.
pub(super) fn authentication_reader() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": reader_metadata(AUTHENTICATION_READER),
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
            "verbs": READ,
        }],
    })
}

/// Returns the binding of [`authentication_reader`] to Kubernetes' own components.
pub(super) fn authentication_reader_binding() -> Value {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let user = |name: &str| json!({"apiGroup": GROUP, "kind": "User", "name": name});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": reader_metadata(&format!("system::{AUTHENTICATION_READER}")),
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": AUTHENTICATION_READER},
        "subjects": [user("system:kube-controller-manager"), user("system:kube-scheduler")],
    })
}

/// Returns the bindings of the default cluster roles.
pub(super) fn bindings() -> Vec<Value> {
    vec![
        binding("cluster-admin", &["system:masters"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:discovery", &["system:authenticated"]),
        binding("system:monitoring", &["system:monitoring"]),
        binding("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
        binding("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ]
}
