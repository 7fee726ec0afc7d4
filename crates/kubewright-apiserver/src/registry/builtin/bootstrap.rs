//! The objects that exist in every new cluster.

use serde_json::{Value, json};

use super::{priority, roles};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

const ACCESS: &str = "rbac.authorization.k8s.io";

/// Returns the objects that a new server stores, each with its group and resource.
pub(crate) fn bootstrap_objects() -> Vec<(&'static str, &'static str, Value)> {
    let namespaces = NAMESPACES.iter().map(|name| ("", "namespaces", namespace(name)));
    let roles = roles::roles().into_iter().map(|role| (ACCESS, "clusterroles", role));
    let bindings = roles::bindings().into_iter().map(|binding| (ACCESS, "clusterrolebindings", binding));
    let priorities = priority::system_classes().map(|class| ("scheduling.k8s.io", "priorityclasses", class));
    namespaces.chain([("", "services", kubernetes())]).chain(priorities).chain(roles).chain(bindings).collect()
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

/// Returns the service through which pods reach the API server.
fn kubernetes() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    })
}
