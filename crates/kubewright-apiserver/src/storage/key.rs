//! The key of a stored object.

use std::sync::Arc;

/// The namespace and name of an object of one resource. Keys sort like lists: by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The namespace; empty for cluster-scoped objects.
    pub(crate) namespace: Arc<str>,
    /// The object's name.
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}
