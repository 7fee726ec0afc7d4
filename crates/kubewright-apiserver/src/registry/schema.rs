//! The schema of a kind.

use std::sync::Arc;

use kubewright_apimachinery::schema::{Definitions, Node, Schema};

use crate::object_type::ObjectType;

/// The schema of a kind.
#[derive(Debug)]
pub struct ResourceSchema {
    /// The root schema of the kind.
    pub root: Schema,
    /// The definitions in which references resolve. Built-in kinds share one table.
    pub definitions: Arc<Definitions>,
    /// The root's name in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub name: String,
    /// True if this is a custom kind. Custom kinds are pruned, defaulted and validated by schema; built-in ones are
    /// decoded by type.
    pub custom: bool,
    /// The type of a built-in kind in the served version.
    pub(crate) served: Option<ObjectType>,
    /// The type of a built-in kind in the stored form.
    pub(crate) stored: Option<ObjectType>,
}

impl ResourceSchema {
    /// Returns the root node.
    pub fn node(&self) -> Node<'_> {
        Node::new(&self.root, &self.definitions)
    }
}
