//! The kinds that the controllers use.

use kubewright_apiserver::Change;

use crate::object_client::ObjectPath;

/// A kind, with the names used in references and requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The group; empty for the core group.
    pub(crate) group: &'static str,
    /// The kind.
    pub(crate) kind: &'static str,
    /// The plural name of the resource.
    pub(crate) plural: &'static str,
}

impl Kind {
    /// Persistent volume claims.
    pub(crate) const CLAIM: Self = Self { group: "", kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims" };
    /// Addresses of services, which have no namespace.
    pub(crate) const IP_ADDRESS: Self = Self { group: "networking.k8s.io", kind: "IPAddress", plural: "ipaddresses" };
    /// Ranges of addresses of services, which have no namespace.
    pub(crate) const SERVICE_CIDR: Self =
        Self { group: "networking.k8s.io", kind: "ServiceCIDR", plural: "servicecidrs" };
    /// Nodes, which have no namespace.
    pub(crate) const NODE: Self = Self { group: "", kind: "Node", plural: "nodes" };
    /// Pods.
    pub(crate) const POD: Self = Self { group: "", kind: "Pod", plural: "pods" };

    /// Persistent volumes, which have no namespace.
    pub(crate) const VOLUME: Self = Self { group: "", kind: "PersistentVolume", plural: "persistentvolumes" };

    /// Classes of the attributes of volumes, which have no namespace.
    pub(crate) const ATTRIBUTES_CLASS: Self =
        Self { group: "storage.k8s.io", kind: "VolumeAttributesClass", plural: "volumeattributesclasses" };

    /// Returns the API version. All kinds here have the version `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".into() } else { format!("{}/v1", self.group) }
    }

    /// Returns whether a change concerns an object of this kind.
    pub(crate) fn is_of(&self, change: &Change) -> bool {
        change.resource.storage.split_once('/') == Some((self.group, self.plural))
    }

    /// Returns the path of an object, or of a collection if the name is empty. The namespace of an object of the
    /// cluster is empty.
    pub(crate) fn address(&self, namespace: &str, name: &str) -> ObjectPath {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        ObjectPath { group: self.group.into(), ..ObjectPath::core(self.plural, namespace, name) }
    }
}
