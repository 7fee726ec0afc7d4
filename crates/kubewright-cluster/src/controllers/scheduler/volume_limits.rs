//! How many volumes of a driver of the Container Storage Interface a node can have, as its CSINode says. The rules and
//! messages are those of kube-scheduler's plugin `NodeVolumeLimits`. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::{
    candidate::{Candidate, Occupant},
    volumes::{CsiVolume, Volumes},
};
use crate::controllers::{
    kind::Kind,
    reconcile::{Key, keep},
    value::{list, number, text},
};

/// Why a node can't take a pod whose volumes would be too many.
pub(super) const EXCEEDED: &str = "node(s) exceed max volume count";

/// The drivers of a node, which have no namespace.
const NODE: Kind = Kind { group: "storage.k8s.io", kind: "CSINode", plural: "csinodes" };
/// Volumes that are attached to nodes, which have no namespace.
const ATTACHMENT: Kind = Kind { group: "storage.k8s.io", kind: "VolumeAttachment", plural: "volumeattachments" };

/// The drivers of the nodes, and the volumes that are attached.
#[derive(Debug, Default)]
pub(super) struct VolumeLimits {
    nodes: BTreeMap<Key, Arc<Value>>,
    attachments: BTreeMap<Key, Arc<Value>>,
}

impl VolumeLimits {
    /// Processes a change. Returns whether it matters to pods with claims.
    pub(super) fn take(&mut self, change: &Change) -> bool {
        let kind = [NODE, ATTACHMENT].into_iter().find(|kind| kind.is_of(change));
        if let Some(kind) = &kind {
            self.put(kind.kind, change.object(), change.kind == ChangeKind::Deleted);
        }
        kind.is_some()
    }

    /// Keeps a version of an object, or drops the object.
    pub(super) fn put(&mut self, kind: &str, object: &Arc<Value>, gone: bool) {
        keep(if kind == NODE.kind { &mut self.nodes } else { &mut self.attachments }, object, gone);
    }

    /// Returns whether a node would have more volumes of a driver than it can with those of a pod. The `others` are the
    /// pods that it has, with their namespaces.
    pub(super) fn are_exceeded<'a, I: Iterator<Item = (&'a str, &'a Occupant)>>(
        &self,
        pod: &Candidate<'_>,
        node: &str,
        volumes: &Volumes,
        others: impl FnOnce() -> I,
    ) -> bool {
        if pod.taken.claims.is_empty() {
            return false;
        }
        let limits = self.limits(node);
        let of = |namespace: &str, claims: &[String]| -> BTreeSet<CsiVolume> {
            let found = claims.iter().filter_map(|name| volumes.csi_volume(namespace, name));
            found.filter(|volume| limits.contains_key(&*volume.driver)).collect()
        };
        let mut wanted = of(pod.namespace(), &pod.taken.claims);
        if wanted.is_empty() {
            return false;
        }
        let mut present: BTreeSet<_> = others().flat_map(|(namespace, other)| of(namespace, &other.claims)).collect();
        wanted.retain(|volume| !present.contains(volume));
        // A volume that is attached, but that no pod of the node uses, counts even if the pod is to use it.
        present.extend(self.attached(node, volumes));
        let count = |of: &BTreeSet<CsiVolume>, driver: &str| of.iter().filter(|volume| volume.driver == driver).count();
        limits.iter().any(|(driver, limit)| {
            let new = count(&wanted, driver);
            new > 0 && i64::try_from(count(&present, driver) + new).is_ok_and(|sum| sum > *limit)
        })
    }

    /// Returns how many volumes of each driver a node can have.
    fn limits(&self, node: &str) -> BTreeMap<&str, i64> {
        let node = self.nodes.get(&Key { namespace: String::new(), name: node.to_owned() });
        let drivers = node.map_or(&[][..], |node| list(node, "/spec/drivers")).iter();
        drivers.filter_map(|driver| Some((text(driver, "/name"), number(driver, "/allocatable/count")?))).collect()
    }

    fn attached<'a>(&'a self, node: &'a str, volumes: &'a Volumes) -> impl Iterator<Item = CsiVolume> + 'a {
        let here = self.attachments.values().filter(move |one| text(one, "/spec/nodeName") == node);
        here.filter_map(|attachment| {
            let driver = text(attachment, "/spec/attacher").to_owned();
            let volume = volumes.csi_volume_of(text(attachment, "/spec/source/persistentVolumeName"))?;
            (!driver.is_empty()).then_some(CsiVolume { driver, ..volume })
        })
    }
}
