//! The authorizer of nodes.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use super::{
    super::{
        node_references::{Kind, NodeReferences},
        roles,
    },
    LEASES,
};
use crate::{
    auth::{Attributes, UserInfo},
    authorizer::{Decision, EffectiveRules, Extension, PolicyRule},
    fields::text,
    storage::{Key, Store},
};

/// What all nodes may do with objects of other kinds than those that are decided one by one.
static RULES: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| roles::rules_of("system:node"));

/// Authorizes requests of nodes by the pods that run on them.
#[derive(Debug)]
pub(crate) struct NodeAuthorizer {
    pub(crate) references: Arc<NodeReferences>,
    pub(crate) store: Arc<Store>,
}

/// The decision about a request of a node: `Ok` allows it, the reason for an error may be empty.
type Allowed = Result<(), Cow<'static, str>>;

impl Extension for NodeAuthorizer {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        let decided = match user.node() {
            None => Err("".into()),
            Some("") => Err(format!("unknown node for user {:?}", user.name).into()),
            Some(node) => self.decide(node, attributes),
        };
        match decided {
            Ok(()) => Decision::allow(""),
            Err(reason) => Decision::no_opinion(reason),
        }
    }

    fn rules(&self, user: &UserInfo, _namespace: &str) -> EffectiveRules {
        let error = user.node().map(|_| "node authorizer does not support user rule resolution".to_owned());
        EffectiveRules { rules: Vec::new(), errors: error.into_iter().collect() }
    }
}

impl NodeAuthorizer {
    fn decide(&self, node: &str, attributes: &Attributes) -> Allowed {
        let Attributes { verb, group, resource, subresource, .. } = attributes;
        match (group.as_str(), resource.as_str()) {
            ("", "secrets") => self.read(node, Kind::Secret, attributes),
            ("", "configmaps") => self.read(node, Kind::ConfigMap, attributes),
            ("", "persistentvolumeclaims") if subresource == "status" => {
                require(["update", "patch"].contains(&verb.as_str()), "can only get/update/patch this type")?;
                self.refers(node, Kind::Claim, attributes)
            }
            ("", "persistentvolumeclaims") => {
                check_get(attributes)?;
                self.refers(node, Kind::Claim, attributes)
            }
            ("", "persistentvolumes") => {
                check_get(attributes)?;
                self.has_volume(node, attributes)
            }
            ("resource.k8s.io", "resourceclaims") => {
                check_get(attributes)?;
                self.refers(node, Kind::ResourceClaim, attributes)
            }
            ("storage.k8s.io", "volumeattachments") => {
                check_get(attributes)?;
                self.names_node(node, "storage.k8s.io/volumeattachments", attributes)
            }
            ("", "serviceaccounts") => self.use_account(node, attributes),
            ("coordination.k8s.io", "leases") => check_lease(node, attributes),
            ("storage.k8s.io", "csinodes") => check_csi_node(node, attributes),
            ("resource.k8s.io", "resourceslices") => self.use_slice(node, attributes),
            ("", "nodes") => check_node(node, attributes),
            ("", "pods") => self.use_pod(node, attributes),
            _ => require(RULES.iter().any(|rule| rule.allows(attributes)), ""),
        }
    }

    /// Decides about a read of an object that pods refer to.
    fn read(&self, node: &str, kind: Kind, attributes: &Attributes) -> Allowed {
        require(["get", "list", "watch"].contains(&&*attributes.verb), "can only read resources of this type")?;
        require(attributes.subresource.is_empty(), "cannot read subresource")?;
        require(!attributes.namespace.is_empty(), "can only read namespaced object of this type")?;
        self.refers(node, kind, attributes)
    }

    /// Decides by whether a pod of the node refers to the object.
    fn refers(&self, node: &str, kind: Kind, attributes: &Attributes) -> Allowed {
        let Attributes { namespace, name, .. } = attributes;
        require(!name.is_empty(), "No Object name found")?;
        if self.references.contains(node, kind, namespace, name) { Ok(()) } else { unrelated(node) }
    }

    /// Decides by whether a pod of the node refers to the claim of the volume.
    fn has_volume(&self, node: &str, attributes: &Attributes) -> Allowed {
        require(!attributes.name.is_empty(), "No Object name found")?;
        let Some(volume) = self.find("/persistentvolumes", "", &attributes.name) else { return unrelated(node) };
        let claim = &volume["spec"]["claimRef"];
        let (namespace, name) = (text(claim, "/namespace"), text(claim, "/name"));
        if self.references.contains(node, Kind::Claim, namespace, name) { Ok(()) } else { unrelated(node) }
    }

    /// Decides by whether the object names the node in its `spec.nodeName`.
    fn names_node(&self, node: &str, storage: &str, attributes: &Attributes) -> Allowed {
        require(!attributes.name.is_empty(), "No Object name found")?;
        let object = self.find(storage, &attributes.namespace, &attributes.name);
        let is_own = object.is_some_and(|object| text(&object, "/spec/nodeName") == node);
        if is_own { Ok(()) } else { unrelated(node) }
    }

    fn find(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage, &Key::new(namespace, name)).map(|stored| stored.value())
    }

    fn use_account(&self, node: &str, attributes: &Attributes) -> Allowed {
        let Attributes { verb, name, subresource, .. } = attributes;
        if verb == "get" && subresource.is_empty() {
            return self.read(node, Kind::ServiceAccount, attributes);
        }
        let is_creation = verb == "create" && !name.is_empty();
        require(is_creation, "can only create tokens for individual service accounts")?;
        require(subresource == "token", "can only create token subresource of serviceaccount")?;
        self.refers(node, Kind::ServiceAccount, attributes)
    }

    fn use_slice(&self, node: &str, attributes: &Attributes) -> Allowed {
        require(attributes.subresource.is_empty(), "cannot authorize ResourceSlice subresources")?;
        match attributes.verb.as_str() {
            // The admission plugin knows the slice.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                self.names_node(node, "resource.k8s.io/resourceslices", attributes)
            }
            "watch" | "list" | "deletecollection" => require(
                attributes.selects("spec.nodeName", node),
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => Err(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                      delete, deletecollection"
                    .into(),
            ),
        }
    }

    fn use_pod(&self, node: &str, attributes: &Attributes) -> Allowed {
        match (attributes.subresource.as_str(), attributes.verb.as_str()) {
            ("", "get") => self.names_node(node, "/pods", attributes),
            ("", "list" | "watch") if attributes.selects("spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if attributes.name.is_empty() => {
                Err("can only list/watch pods with spec.nodeName field selector".into())
            }
            ("", "list" | "watch") => self.names_node(node, "/pods", attributes),
            // The admission plugin knows the pod.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err("".into()),
        }
    }
}

fn require(holds: bool, reason: &'static str) -> Allowed {
    if holds { Ok(()) } else { Err(reason.into()) }
}

fn unrelated(node: &str) -> Allowed {
    Err(format!("no relationship found between node '{node}' and this object").into())
}

fn check_get(attributes: &Attributes) -> Allowed {
    require(attributes.verb == "get", "can only get individual resources of this type")?;
    require(attributes.subresource.is_empty(), "cannot get subresource")
}

/// Returns whether a request is of the kinds that a node may make for an object of its own name.
fn is_use_of_own(attributes: &Attributes) -> bool {
    ["get", "create", "update", "patch", "delete"].contains(&attributes.verb.as_str())
}

/// Returns whether a request is for the object with the node's name. A creation doesn't name its object yet; the
/// admission plugin knows it.
fn is_for_own(node: &str, attributes: &Attributes) -> bool {
    attributes.verb == "create" || attributes.name == node
}

fn check_lease(node: &str, attributes: &Attributes) -> Allowed {
    require(is_use_of_own(attributes), "can only get, create, update, patch, or delete a node lease")?;
    let why = "can only access leases in the \"kube-node-lease\" system namespace";
    require(attributes.namespace == LEASES, why)?;
    let why = "can only access node lease with the same name as the requesting node";
    require(is_for_own(node, attributes), why)
}

fn check_csi_node(node: &str, attributes: &Attributes) -> Allowed {
    require(is_use_of_own(attributes), "can only get, create, update, patch, or delete a CSINode")?;
    require(attributes.subresource.is_empty(), "cannot authorize CSINode subresources")?;
    require(is_for_own(node, attributes), "can only access CSINode with the same name as the requesting node")
}

fn check_node(node: &str, attributes: &Attributes) -> Allowed {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        // The admission plugin knows the node.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name.as_str() {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object").into()),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object").into()),
        },
        _ => Err("".into()),
    }
}
