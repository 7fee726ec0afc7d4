//! The flow schemas and priority levels that exist in every cluster
//! (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults>).

use serde_json::{Value, json};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// A default level whose requests are queued: name, shares of the concurrency, percentage that others may borrow,
/// number of queues, and number of queues that a flow may use.
const QUEUED: [(&str, i64, i64, i64, i64); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

/// Returns the spec of a level that can't be changed, apart from the numbers of `exempt`.
pub(super) fn mandatory_level(name: &str) -> Option<Value> {
    match name {
        "exempt" => Some(json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        "catch-all" => Some(json!({
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
        })),
        _ => None,
    }
}

/// Returns the default priority levels.
pub(in crate::registry::builtin) fn default_levels() -> impl Iterator<Item = Value> {
    let mandatory = ["exempt", "catch-all"].into_iter().filter_map(|name| Some((name, mandatory_level(name)?)));
    let queued = QUEUED.into_iter().map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let response = json!({"type": "Queue", "queuing": queuing});
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        (name, json!({"type": "Limited", "limited": limited}))
    });
    mandatory.chain(queued).map(|(name, spec)| object("PriorityLevelConfiguration", name, spec))
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "generation": 1, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// Returns a rule about all requests of these subjects.
fn everything(subjects: Value) -> Value {
    json!({
        "subjects": subjects, "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn schema(name: &str, level: &str, precedence: i64, method: &str, rule: Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
    });
    if !method.is_empty() {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    object("FlowSchema", name, spec)
}

/// Returns the spec of a schema that can't be changed.
pub(super) fn mandatory_schema(name: &str) -> Option<Value> {
    let found = ["exempt", "catch-all"].contains(&name);
    let found =
        found.then(|| default_schemas().into_iter().find(|schema| schema["metadata"]["name"] == name)).flatten();
    found.map(|mut schema| schema["spec"].take())
}

/// Returns the default flow schemas, by order of precedence.
pub(in crate::registry::builtin) fn default_schemas() -> Vec<Value> {
    const BY_USER: &str = "ByUser";
    const BY_NAMESPACE: &str = "ByNamespace";
    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let nodes = || groups(&["system:nodes"]);
    let (manager, scheduler) = (user("system:kube-controller-manager"), user("system:kube-scheduler"));
    let health = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]});
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let node_rules = json!([resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])]);
    let elections = json!({
        "subjects": [manager, scheduler, system_accounts()], "resourceRules": [leases(&["get", "create", "update"])],
    });
    vec![
        schema("exempt", "exempt", 1, "", everything(groups(&["system:masters"]))),
        schema("probes", "exempt", 2, "", json!({"subjects": everybody(), "nonResourceRules": [health]})),
        schema("system-leader-election", "leader-election", 100, BY_USER, elections),
        schema(
            "system-node-high",
            "node-high",
            400,
            BY_USER,
            json!({"subjects": nodes(), "resourceRules": node_rules}),
        ),
        schema("system-nodes", "system", 500, BY_USER, everything(nodes())),
        schema("kube-controller-manager", "workload-high", 800, BY_NAMESPACE, everything(json!([manager]))),
        schema("kube-scheduler", "workload-high", 800, BY_NAMESPACE, everything(json!([scheduler]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            BY_NAMESPACE,
            everything(json!([system_accounts()])),
        ),
        schema("service-accounts", "workload-low", 9000, BY_USER, everything(groups(&["system:serviceaccounts"]))),
        schema("global-default", "global-default", 9900, BY_USER, everything(everybody())),
        schema("catch-all", "catch-all", 10_000, BY_USER, everything(everybody())),
    ]
}
