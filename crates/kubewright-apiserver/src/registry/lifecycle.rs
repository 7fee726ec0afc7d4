//! The rules of a kind for updates and deletions of its objects.

use std::sync::{Arc, LazyLock};

use kubewright_apimachinery::apply::FieldSet;

/// All fields but the status, as far as the schema of a kind doesn't declare others.
static ALL: LazyLock<Arc<FieldSet>> = LazyLock::new(|| Arc::new(FieldSet::of(["metadata", "spec"])));

/// The metadata that users write.
pub(crate) const USER_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// The metadata that an update of a part of an object usually keeps, without an error if other values are sent.
pub(crate) const PART_METADATA: &[&str] =
    &["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];

/// The rules of a kind for updates and deletions, apart from its content.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    /// True if an update without `metadata.resourceVersion` replaces the object whatever its version is.
    pub unconditional_update: bool,
    /// True if an update of an object that doesn't exist creates it.
    pub created_by_update: bool,
    /// True if an apply of the status of an object that doesn't exist creates it.
    pub created_by_status: bool,
    /// True if Kubernetes has no cache of the objects, and so splits a list of any version as others.
    pub uncached: bool,
    /// The fields of the metadata that an update of the status doesn't change.
    pub status_keeps: &'static [&'static str],
    /// The fields that an update of the status doesn't change, and so doesn't own.
    pub status_resets: Arc<FieldSet>,
    /// The fields that updates of other parts don't change, if they aren't the usual ones: by subresource, empty for
    /// the object itself.
    pub part_resets: Vec<(&'static str, Arc<FieldSet>)>,
    /// True if an update may set a prefix for generated names that doesn't fit the rule of the kind's names.
    pub any_prefix: bool,
    /// True if every finalizer needs a domain, except for those of Kubernetes itself.
    pub qualified_finalizers: bool,
    /// True if the response to a deletion is the removed object instead of a `Status`.
    pub returns_deleted: bool,
    /// True if a deletion only marks the object, and a controller removes it later.
    pub removed_by_controller: bool,
    /// The treatment of dependents by a deletion without a propagation policy.
    pub dependents: Dependents,
    /// The warning about a deletion without a propagation policy.
    pub propagation_warning: Option<&'static str>,
    /// The path below `/registry` under which Kubernetes stores the objects in etcd. Errors contain it.
    pub registry_path: Arc<str>,
}

/// The treatment of dependents by a deletion without a propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// The garbage collector deletes them after their owner.
    Delete,
    /// The garbage collector removes their owner reference.
    Orphan,
    /// Objects of the kind have no dependents, and ignore propagation policies.
    Unsupported,
}

impl Lifecycle {
    /// Returns the rules of custom kinds.
    pub fn custom(group: &str, plural: &str) -> Self {
        Self {
            unconditional_update: false,
            created_by_update: false,
            created_by_status: false,
            uncached: false,
            status_keeps: &[],
            status_resets: ALL.clone(),
            part_resets: Vec::new(),
            any_prefix: true,
            qualified_finalizers: false,
            returns_deleted: false,
            removed_by_controller: false,
            dependents: Dependents::Delete,
            propagation_warning: None,
            registry_path: format!("{group}/{plural}").into(),
        }
    }
}
