//! Namespaces, nodes and service accounts.

use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

use super::columns::{NONE, age, count, integer, string, value_or};
use crate::{
    fields::{entries, fill, flag, has, list, remove, set, text, within},
    registry::{Column, Strategy},
};

/// The namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The strategy of namespaces. The finalizer in `spec` keeps a namespace until a controller has deleted its content.
#[derive(Debug)]
pub(super) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default(&self, object: &mut Value) {
        let name = text(object, "/metadata/name").to_owned();
        // The label of a generated name is set at creation.
        if !name.is_empty() {
            label_by_name(object, &name);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let name = text(object, "/metadata/name").to_owned();
        label_by_name(object, &name);
        within(object, "spec", |spec| {
            let mut finalizers = list(spec, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            set(spec, "finalizers", finalizers);
        });
        set(object, "status", json!({"phase": "Active"}));
    }

    /// Preserves the finalizers, which only the `finalize` subresource changes.
    fn prepare_update(&self, old: &Value, new: &mut Value) {
        set(new, "spec", old["spec"].clone());
        within(new, "status", |status| fill(status, "phase", "Active"));
    }

    fn forbids_deletion(&self, object: &Value) -> Option<&'static str> {
        IMMORTAL.contains(&text(object, "/metadata/name")).then_some("this namespace may not be deleted")
    }

    fn prepare_delete(&self, object: &mut Value) {
        within(object, "status", |status| set(status, "phase", "Terminating"));
    }

    /// Keeps a namespace until its controller has deleted its content.
    fn is_held(&self, object: &Value) -> bool {
        !list(object, "/spec/finalizers").is_empty()
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_label
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn label_by_name(namespace: &mut Value, name: &str) {
    within(namespace, "metadata", |metadata| {
        within(metadata, "labels", |labels| set(labels, "kubernetes.io/metadata.name", name));
    });
}

pub(super) fn namespace_columns() -> Vec<Column> {
    vec![string("Status", |object, _| text(object, "/status/phase").into()), age()]
}

/// The strategy of nodes.
#[derive(Debug)]
pub(super) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |_| {});
        within(object, "status", |status| {
            if let Some(capacity) = status.get("capacity").filter(|value| value.is_object()).cloned() {
                fill(status, "allocatable", capacity);
            }
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let Some(old) = old else { return Vec::new() };
        let mut causes = Vec::new();
        for field in ["podCIDR", "providerID"] {
            let before = text(&old["spec"], &format!("/{field}"));
            if !before.is_empty() && old["spec"][field] != new["spec"][field] {
                let why = "node updates may only change labels, taints, or capacity (or configSource, if the \
                           DynamicKubeletConfig feature gate is enabled)";
                causes.push(Cause::forbidden(format!("spec.{field}"), why));
            }
        }
        causes
    }

    fn has_generation(&self) -> bool {
        false
    }
}

pub(super) fn node_columns() -> Vec<Column> {
    vec![
        string("Status", |node, _| node_state(node).into()),
        string("Roles", |node, _| roles(node).into()),
        age(),
        string("Version", |node, _| text(node, "/status/nodeInfo/kubeletVersion").into()),
        string("Internal-IP", |node, _| node_address(node, "InternalIP")).wide(),
        string("External-IP", |node, _| node_address(node, "ExternalIP")).wide(),
        string("OS-Image", |node, _| value_or(node, "/status/nodeInfo/osImage", UNKNOWN)).wide(),
        string("Kernel-Version", |node, _| value_or(node, "/status/nodeInfo/kernelVersion", UNKNOWN)).wide(),
        string("Container-Runtime", |node, _| value_or(node, "/status/nodeInfo/containerRuntimeVersion", UNKNOWN))
            .wide(),
    ]
}

const UNKNOWN: &str = "<unknown>";

fn node_state(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|condition| text(condition, "/type") == "Ready");
    let state = match ready.map(|condition| text(condition, "/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    if flag(node, "/spec/unschedulable") { format!("{state},SchedulingDisabled") } else { state.into() }
}

fn roles(node: &Value) -> String {
    let roles: Vec<_> = entries(node, "/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { NONE.into() } else { roles.join(",") }
}

fn node_address(node: &Value, kind: &str) -> Value {
    let addresses = list(node, "/status/addresses");
    let found = addresses.iter().find(|address| text(address, "/type") == kind);
    found.map_or(NONE, |address| text(address, "/address")).into()
}

/// The strategy of service accounts.
#[derive(Debug)]
pub(super) struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    /// Removes empty lists, as kube-apiserver does.
    fn default(&self, object: &mut Value) {
        if has(object, "/secrets") && list(object, "/secrets").is_empty() {
            remove(object, "secrets");
        }
    }

    fn has_generation(&self) -> bool {
        false
    }
}

pub(super) fn service_account_columns() -> Vec<Column> {
    vec![integer("Secrets", |object, _| count(object, &["/secrets"])), age()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_active_labelled_and_finalized_by_its_controller() {
        let mut namespace = json!({"metadata": {"name": "n"}});
        NamespaceStrategy.default(&mut namespace);
        NamespaceStrategy.prepare_create(&mut namespace);
        assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert!(NamespaceStrategy.is_held(&namespace) && !NamespaceStrategy.is_held(&json!({})));
        let mut update = json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}, "status": {"phase": "Active"}});
        NamespaceStrategy.prepare_update(&namespace, &mut update);
        assert_eq!(update["spec"], namespace["spec"]);
    }

    #[test]
    fn nodes_show_state_and_roles() {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "agent"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            },
        });
        assert_eq!(node_state(&node), "Ready,SchedulingDisabled");
        assert_eq!(roles(&node), "agent,worker");
        assert_eq!(node_address(&node, "InternalIP"), "127.0.0.1");
        assert_eq!(node_state(&json!({})), "Unknown");
    }
}
