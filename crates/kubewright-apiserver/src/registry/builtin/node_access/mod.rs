//! What nodes may do: the authorizer `Node` and the admission plugin `NodeRestriction`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/node/>).
//!
//! A node is a user `system:node:NAME` in the group `system:nodes`. It may read the objects that pods on it refer to,
//! and change only itself and its pods.

mod audiences;
mod authorizer;
mod mirror;
mod restriction;

pub(crate) use self::{
    authorizer::NodeAuthorizer,
    restriction::{Change, NodeRestriction},
};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
