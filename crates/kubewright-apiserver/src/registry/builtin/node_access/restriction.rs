//! The admission plugin `NodeRestriction`.

use std::{collections::BTreeSet, sync::Arc};

use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    super::{certificate, node_references::MIRROR},
    LEASES,
    audiences::check_audience,
    mirror::referenced,
};
use crate::{
    admission::Operation,
    auth::UserInfo,
    authorizer::Authorizer,
    fields::{entries, flag, list, text},
    meta,
    registry::Resource,
    storage::{Key, Store},
};

/// The namespace of labels that nodes must not set.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// The labels of Kubernetes that nodes may set, and the namespaces of others.
const LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The signers of the certificates of nodes.
const SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Limits nodes to changes of themselves and of their pods.
#[derive(Debug)]
pub(crate) struct NodeRestriction {
    pub(crate) store: Arc<Store>,
    pub(crate) authorizer: Arc<Authorizer>,
}

/// A change, as its admission sees it. Objects are in served form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    /// The name of the object, which may be empty while it isn't generated, and for the objects of a collection.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: Option<&'a Value>,
}

/// Why a change is refused.
pub(super) enum Refusal {
    /// With 403 and this reason.
    Forbidden(String),
    /// With another status.
    Other(Status),
}

type Checked = Result<(), Refusal>;

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Forbidden(why)
    }
}

fn forbid(why: impl Into<String>) -> Checked {
    Err(Refusal::Forbidden(why.into()))
}

fn require(holds: bool, why: &str) -> Checked {
    if holds { Ok(()) } else { forbid(why) }
}

impl NodeRestriction {
    /// Checks a change by a user. Those of other users than nodes are accepted, and those of parts of this process,
    /// which roles don't limit either.
    ///
    /// # Errors
    /// Returns 403 for a change that the node must not make, and 404 for one that refers to a pod or node that doesn't
    /// exist.
    pub(crate) fn check(&self, user: &UserInfo, change: Change<'_>) -> Result<(), Status> {
        let Some(node) = user.node().filter(|_| !user.is_unrestricted) else { return Ok(()) };
        let checked = match node {
            "" => forbid(format!("could not determine node from user {:?}", user.name)),
            node => self.check_node_change(node, user, change),
        };
        checked.map_err(|refusal| match refusal {
            Refusal::Other(status) => status,
            Refusal::Forbidden(why) => {
                let fields = ["name", "generateName"].map(|field| change.new.map_or("", |new| meta::text(new, field)));
                let names = [change.name].into_iter().chain(fields);
                let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
                Status::forbidden(&change.resource.group, &change.resource.plural, name, &why)
            }
        })
    }

    fn check_node_change(&self, node: &str, user: &UserInfo, change: Change<'_>) -> Checked {
        let (Resource { group, plural, .. }, old) = (change.resource, change.old.unwrap_or(&Value::Null));
        let new = change.new.unwrap_or(&Value::Null);
        match (&**group, &**plural, change.subresource) {
            ("", "pods", "") => self.check_pod(node, change),
            ("", "pods", "status") => check_pod_status(node, old, new),
            ("", "pods", "eviction") => {
                let pod = self.pod(change.namespace, change.name)?;
                let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
                require(text(&pod, "/spec/nodeName") == node, &why)
            }
            ("", "pods", other) => {
                forbid(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
            ("", "nodes", _) => check_node(node, change),
            ("", "persistentvolumeclaims", "status") => check_claim_status(node, old, new),
            ("", "persistentvolumeclaims", _) => forbid("may only update PVC status"),
            ("", "serviceaccounts", "token") => self.check_token(node, user, change),
            ("coordination.k8s.io", "leases", _) => {
                let why = "can only access leases in the \"kube-node-lease\" system namespace";
                require(change.namespace == LEASES, why)?;
                let why = "can only access node lease with the same name as the requesting node";
                require(name_of(change) == node, why)
            }
            ("storage.k8s.io", "csinodes", _) => {
                require(name_of(change) == node, "can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices", _) => {
                let (what, slice) = match change.operation {
                    Operation::Create => ("create", new),
                    Operation::Delete => ("delete", old),
                    _ => return Ok(()),
                };
                let why = format!("can only {what} ResourceSlice with the same NodeName as the requesting node");
                require(text(slice, "/spec/nodeName") == node, &why)
            }
            ("certificates.k8s.io", "certificatesigningrequests", _) if change.operation == Operation::Create => {
                check_certificate_request(node, new)
            }
            _ => Ok(()),
        }
    }

    /// Returns a pod, or 404 in the words of Kubernetes' cache.
    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Value>, Refusal> {
        self.find("/pods", namespace, name).ok_or_else(|| Refusal::Other(Status::not_found("", "pod", name)))
    }

    fn find(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage, &Key::new(namespace, name)).map(|stored| stored.value())
    }

    /// Checks that a node creates and deletes only mirror pods, of the pods that it runs from files.
    fn check_pod(&self, node: &str, change: Change<'_>) -> Checked {
        match (change.operation, change.new) {
            (Operation::Create, Some(pod)) => self.check_new_pod(node, pod),
            (Operation::Delete, _) => {
                // As in Kubernetes, the pods of a collection aren't found, since their names aren't known.
                let pod = self.pod(change.namespace, change.name)?;
                let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
                require(text(&pod, "/spec/nodeName") == node, &why)
            }
            (operation, _) => {
                let operation = operation.as_str();
                forbid(format!(
                    "unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods"
                ))
            }
        }
    }

    fn check_new_pod(&self, node: &str, pod: &Value) -> Checked {
        if !entries(pod, "/metadata/annotations").any(|(name, _)| name == MIRROR) {
            let why = "can only create mirror pods";
            return forbid(format!("pod does not have {MIRROR:?} annotation, node {node:?} {why}"));
        }
        let only = |what: &str| format!("node {node:?} can only create pods with {what} set to itself");
        require(text(pod, "/spec/nodeName") == node, &only("spec.nodeName"))?;
        let owner = match list(pod, "/metadata/ownerReferences") {
            [] => return forbid(only("an owner reference")),
            [owner] => owner,
            _ => return forbid(only("a single owner reference")),
        };
        let is_node = (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name")) == ("v1", "Node", node);
        require(is_node, &only("an owner reference"))?;
        require(flag(owner, "/controller"), &only("a controller owner reference"))?;
        if flag(owner, "/blockOwnerDeletion") {
            return forbid(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let present = self.find("/nodes", "", node);
        let present = present.ok_or_else(|| Refusal::Other(Status::not_found("", "node", node)))?;
        let (expected, found) = (meta::text(&present, "uid"), text(owner, "/uid"));
        require(expected == found, &format!("node {node} UID mismatch: expected {found} got {expected}"))?;
        match referenced(&pod["spec"]) {
            Some(what) => forbid(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    /// Checks that a node requests only tokens for its pods.
    fn check_token(&self, node: &str, user: &UserInfo, change: Change<'_>) -> Checked {
        if change.operation != Operation::Create {
            return Ok(());
        }
        let request = change.new.unwrap_or(&Value::Null);
        let bound = &request["spec"]["boundObjectRef"];
        let (name, uid) = (text(bound, "/name"), text(bound, "/uid"));
        let is_pod = (text(bound, "/apiVersion"), text(bound, "/kind")) == ("v1", "Pod") && !name.is_empty();
        require(is_pod, "node requested token not bound to a pod")?;
        require(!uid.is_empty(), "node requested token with a pod binding without a uid")?;
        let pod = self.pod(change.namespace, name)?;
        if uid != meta::text(&pod, "uid") {
            return forbid(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ));
        }
        let is_own = text(&pod, "/spec/nodeName") == node;
        require(is_own, "node requested token bound to a pod scheduled on a different node")?;
        let requester = (user, &*self.authorizer);
        check_audience(&self.store, requester, (change.namespace, change.name), &pod, request).map_err(Refusal::from)
    }
}

/// Returns the name of the object of a change, which a creation has in the object.
fn name_of(change: Change<'_>) -> &str {
    match change.operation {
        Operation::Create => change.new.map_or("", |new| meta::text(new, "name")),
        _ => change.name,
    }
}

fn check_pod_status(node: &str, old: &Value, new: &Value) -> Checked {
    let is_own = text(old, "/spec/nodeName") == node;
    let why = format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
    require(is_own, &why)?;
    let same_labels = changed_labels(new, old).is_empty();
    require(same_labels, &format!("node {node:?} cannot update labels through pod status"))?;
    let same = |field: &str| {
        Some(&old["status"][field]).filter(|value| is_set(value))
            == Some(&new["status"][field]).filter(|value| is_set(value))
    };
    require(same("resourceClaimStatuses"), &format!("node {node:?} cannot update resource claim statues"))?;
    let why = format!("node {node:?} cannot update extended resource claim status");
    require(same("extendedResourceClaimStatus"), &why)
}

/// Returns whether a value is neither null nor an empty list.
fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty())
}

/// Checks that an update of a claim changes only what a node finds out about its volume.
fn check_claim_status(node: &str, old: &Value, new: &Value) -> Checked {
    const STATUS: [&str; 4] = ["allocatedResourceStatuses", "allocatedResources", "capacity", "conditions"];
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, fields) in [("metadata", &["managedFields", "resourceVersion"][..]), ("status", &STATUS)] {
            if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                part.retain(|field, _| !fields.contains(&field.as_str()));
            }
        }
        claim
    };
    let why = "is not allowed to update fields other than status.quantity and status.conditions";
    require(rest(old) == rest(new), &format!("node {node:?} {why}: the claim has other changes"))
}

fn check_node(node: &str, change: Change<'_>) -> Checked {
    let name = match (change.name, change.new) {
        ("", Some(new)) => meta::text(new, "name"),
        (name, _) => name,
    };
    require(name == node, &format!("node {node:?} is not allowed to modify node {name:?}"))?;
    let null = &Value::Null;
    let (old, new) = (change.old.unwrap_or(null), change.new.unwrap_or(null));
    let forbidden: Vec<_> = changed_labels(new, old).into_iter().filter(|label| is_forbidden(label)).collect();
    match change.operation {
        Operation::Create => {
            let has_source = is_set(&new["spec"]["configSource"]);
            let why = format!("node {node:?} is not allowed to create pods with a non-nil configSource");
            require(!has_source, &why)?;
            let labels = forbidden.join(", ");
            require(
                forbidden.is_empty(),
                &format!("node {node:?} is not allowed to set the following labels: {labels}"),
            )
        }
        Operation::Update => {
            let source = &new["spec"]["configSource"];
            let why = format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
            require(!is_set(source) || *source == old["spec"]["configSource"], &why)?;
            let same = |part: &str, field: &str| list(&old[part], field) == list(&new[part], field);
            require(same("spec", "/taints"), &format!("node {node:?} is not allowed to modify taints"))?;
            let why = format!("node {node:?} is not allowed to modify ownerReferences");
            require(same("metadata", "/ownerReferences"), &why)?;
            let labels = forbidden.join(", ");
            require(forbidden.is_empty(), &format!("is not allowed to modify labels: {labels}"))
        }
        _ => Ok(()),
    }
}

/// Returns the names of the labels that two objects don't have in common, in order.
fn changed_labels<'a>(one: &'a Value, other: &'a Value) -> BTreeSet<&'a str> {
    let only = |one: &'a Value, other: &'a Value| {
        let other = other["metadata"].get("labels");
        let labels = entries(one, "/metadata/labels");
        let changed = labels.filter(move |(name, value)| other.and_then(|labels| labels.get(*name)) != Some(value));
        changed.map(|(name, _)| name.as_str())
    };
    only(one, other).chain(only(other, one)).collect()
}

/// Returns whether a node must not set a label: it is restricted, or one of Kubernetes that it doesn't know of nodes.
fn is_forbidden(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let is_within = |of: &str| namespace.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_known = LABELS.contains(&label) || LABEL_NAMESPACES.into_iter().any(is_within);
    is_within(RESTRICTED) || !is_known && (is_within("kubernetes.io") || is_within("k8s.io"))
}

fn check_certificate_request(node: &str, request: &Value) -> Checked {
    if !SIGNERS.contains(&text(request, "/spec/signerName")) {
        return Ok(());
    }
    let name = certificate::common_name(&request["spec"]).map_err(|why| format!("unable to parse csr: {why}"))?;
    let expected = format!("system:node:{node}");
    require(name == expected, &format!("can only create a node CSR with CN={expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes_are_restricted() {
        for allowed in [
            "app",
            "example.com/a",
            "kubernetes.io/os",
            "node.kubernetes.io/a",
            "a.kubelet.kubernetes.io/b",
            "mykubernetes.io/a",
        ] {
            assert!(!is_forbidden(allowed), "{allowed}");
        }
        for forbidden in [
            "kubernetes.io/a",
            "node-role.kubernetes.io/control-plane",
            "a.k8s.io/b",
            "node-restriction.kubernetes.io/a",
            "a.node-restriction.kubernetes.io/b",
        ] {
            assert!(is_forbidden(forbidden), "{forbidden}");
        }
    }
}
