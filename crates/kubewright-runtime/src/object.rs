//! The traits of kinds and the keys of objects.

use std::{any::TypeId, cmp::Ordering, fmt, sync::Arc};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{
    Resource,
    core::{ApiResource, GroupVersionKind},
};
use serde::{Serialize, de::DeserializeOwned};

/// A Kubernetes object whose kind is known at compile time.
///
/// Implemented for every type of `k8s-openapi` with metadata, for types that derive `kube::CustomResource`, and for
/// [views](crate::view).
pub trait Object:
    Resource<DynamicType = (), Scope: 'static> + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Returns whether the kind is namespaced.
    fn is_namespaced() -> bool {
        TypeId::of::<Self::Scope>() == TypeId::of::<NamespaceResourceScope>()
    }
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: 'static>
        + Clone
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// An object of a kind that may be known only at run time: every [`Object`], kube's `DynamicObject`, and
/// `PartialObjectMeta` of either. Implemented for all of them; there is nothing to implement by hand.
pub trait AnyObject:
    Resource<DynamicType: Clone + Send + Sync, Scope: 'static>
    + Clone
    + fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> AnyObject for K where
    K: Resource<DynamicType: Clone + Send + Sync, Scope: 'static>
        + Clone
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindScope {
    Cluster,
    Namespaced,
    /// Known only at run time: a key with a namespace means a namespaced object.
    Unknown,
}

impl KindScope {
    pub(crate) fn of<K: AnyObject>() -> Self {
        match TypeId::of::<K::Scope>() {
            id if id == TypeId::of::<ClusterResourceScope>() => Self::Cluster,
            id if id == TypeId::of::<NamespaceResourceScope>() => Self::Namespaced,
            _ => Self::Unknown,
        }
    }

    /// Returns whether the cache treats the kind as namespaced, as it does if the scope is unknown.
    pub(crate) fn is_namespaced(self) -> bool {
        self != Self::Cluster
    }
}

/// The name of a kind, as in logs, errors and the [`Description`](crate::manager::Description) of a manager.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindName {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version, such as `v1alpha1`.
    pub version: String,
    /// The kind, such as `PodSet`.
    pub kind: String,
    /// The plural name of the resource, as in URLs and RBAC rules, such as `podsets`.
    pub plural: String,
}

impl KindName {
    /// The name of `K`.
    pub fn of<K: Object>() -> Self {
        Self::named::<K>(&())
    }

    /// The name of a kind that is known only at run time.
    pub(crate) fn named<K: Resource>(kind: &K::DynamicType) -> Self {
        Self {
            group: K::group(kind).into_owned(),
            version: K::version(kind).into_owned(),
            kind: K::kind(kind).into_owned(),
            plural: K::plural(kind).into_owned(),
        }
    }

    /// The kind as kube's dynamic types take it.
    pub(crate) fn api_resource(&self) -> ApiResource {
        let Self { group, version, kind, plural } = self;
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Group and version, as in the `apiVersion` of an object.
    pub(crate) fn api_version(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }
}

impl KindName {
    /// The kind with its group, such as `PodSet.app.example.com`, or `Pod` in the core group.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

/// Writes the plural with the group as `kubectl` accepts it, such as `podsets.app.example.com`, or `pods` in the core
/// group.
impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// The namespace and name of an object. Cheap to clone; ordered by namespace, then name.
///
/// A key doesn't include the UID: an object that is deleted and created again under the same name has the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let namespace = match (&self.namespace, &other.namespace) {
            // Neighbours in a tree mostly share the allocation.
            (Some(one), Some(same)) if Arc::ptr_eq(one, same) => Ordering::Equal,
            (one, other) => one.cmp(other),
        };
        namespace.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ObjectKey {
    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// The key of an object. An empty namespace counts as none.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.as_deref().filter(|namespace| !namespace.is_empty()).map(Into::into),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// The key of another name in the same namespace.
    pub fn sibling(&self, name: &str) -> Self {
        Self { namespace: self.namespace.clone(), name: name.into() }
    }

    /// The namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Writes `namespace/name`, or the name of a cluster-scoped object.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns the resource version as a number, which is comparable within a kind as of Kubernetes 1.35 (KEP-5504). `None`
/// if it is missing or isn't a decimal number.
pub(crate) fn version_of<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Pod};

    use super::*;

    #[test]
    fn a_key_displays_as_namespace_and_name() {
        assert_eq!(ObjectKey::namespaced("default", "web").to_string(), "default/web");
        assert_eq!(ObjectKey::cluster("node-1").to_string(), "node-1");
        assert!(ObjectKey::namespaced("a", "z") < ObjectKey::namespaced("b", "a"));
    }

    #[test]
    fn scope_is_known_from_the_type() {
        assert!(Pod::is_namespaced());
        assert!(!Namespace::is_namespaced());
        assert_eq!(KindName::of::<Pod>().to_string(), "pods");
    }
}
