//! What the pods of each node refer to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kubewright_apimachinery::pointer;
use parking_lot::RwLock;
use serde_json::Value;

use super::pod_references::{config_maps, secrets};
use crate::{
    fields::{has, list, text},
    storage::Key,
};

/// The annotation of a pod that a node runs from a file, and shows in the API.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// A kind of objects that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    Claim,
    ResourceClaim,
    ServiceAccount,
}

type Reference = (Kind, Key);

/// What the pods of each node refer to, and the Secrets of persistent volumes. Nothing is kept until it is
/// [enabled](Self::enable).
///
/// Each object that pods of a node refer to is kept once, with the number of these pods: usually few for any number of
/// pods, and never more than the pods contain.
#[derive(Debug, Default)]
pub(crate) struct NodeReferences {
    is_enabled: AtomicBool,
    nodes: RwLock<BTreeMap<Arc<str>, BTreeMap<Reference, usize>>>,
    /// The claims of the volumes that refer to a Secret, by the names of the volumes.
    secrets: RwLock<BTreeMap<Key, BTreeMap<Arc<str>, Key>>>,
}

impl NodeReferences {
    /// Keeps the references from now on. Called before there are any objects.
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Returns whether a pod of the node refers to an object, a Secret by way of a volume, too.
    pub(super) fn contains(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let reference = (kind, Key::new(namespace, name));
        if self.nodes.read().get(node).is_some_and(|references| references.contains_key(&reference)) {
            return true;
        }
        if kind != Kind::Secret {
            return false;
        }
        let secrets = self.secrets.read();
        let mut claims = secrets.get(&reference.1).into_iter().flat_map(BTreeMap::values);
        claims.any(|claim| self.contains(node, Kind::Claim, &claim.namespace, &claim.name))
    }

    /// Replaces a pod.
    pub(super) fn replace_pod(&self, before: Option<&Value>, after: Option<&Value>) {
        if !self.is_enabled() || before.zip(after).is_some_and(|(before, after)| has_same_references(before, after)) {
            return;
        }
        let (before, after) = (before.and_then(references_of), after.and_then(references_of));
        if before.is_none() && after.is_none() {
            return;
        }
        let mut nodes = self.nodes.write();
        if let Some((node, references)) = after {
            let present = match nodes.get_mut(node) {
                Some(present) => present,
                None => nodes.entry(node.into()).or_default(),
            };
            references.into_iter().for_each(|one| *present.entry(one).or_default() += 1);
        }
        if let Some((node, references)) = before
            && let Some(present) = nodes.get_mut(node)
        {
            for one in references {
                if let Some(count) = present.get_mut(&one) {
                    *count -= 1;
                    if *count == 0 {
                        present.remove(&one);
                    }
                }
            }
            if present.is_empty() {
                nodes.remove(node);
            }
        }
    }

    /// Replaces a persistent volume.
    pub(super) fn replace_volume(&self, before: Option<&Value>, after: Option<&Value>) {
        if !self.is_enabled() {
            return;
        }
        let secrets = |volume| volume_secrets(volume).collect::<Vec<_>>();
        let (before, after) = (before.map(secrets), after.map(|volume| (volume, secrets(volume))));
        if before.iter().all(Vec::is_empty) && after.iter().all(|(_, secrets)| secrets.is_empty()) {
            return;
        }
        let mut present = self.secrets.write();
        for (volume, secret) in before.into_iter().flatten() {
            if let Some(volumes) = present.get_mut(&secret) {
                volumes.remove(volume);
                if volumes.is_empty() {
                    present.remove(&secret);
                }
            }
        }
        if let Some((volume, secrets)) = after {
            let claim = Key::new(text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
            for (name, secret) in secrets {
                present.entry(secret).or_default().insert(name.into(), claim.clone());
            }
        }
    }
}

/// Returns whether an update of a pod can't have changed its references: ephemeral containers and names of claims are
/// added only.
fn has_same_references(before: &Value, after: &Value) -> bool {
    let same = |place: &str| pointer::get(before, place) == pointer::get(after, place);
    list(before, "/spec/ephemeralContainers").len() == list(after, "/spec/ephemeralContainers").len()
        && ["/metadata/uid", "/spec/nodeName", "/status/resourceClaimStatuses", "/status/extendedResourceClaimStatus"]
            .into_iter()
            .all(same)
}

/// Returns the node of a pod, and what the pod refers to; `None` if it has no node. A node must not get access to
/// anything by the mirror pods that it creates.
fn references_of(pod: &Value) -> Option<(&str, BTreeSet<Reference>)> {
    let (namespace, spec) = (text(pod, "/metadata/namespace"), &pod["spec"]);
    let node = spec["nodeName"].as_str().filter(|node| !node.is_empty())?;
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Some((node, BTreeSet::new()));
    }
    let account = Some(text(spec, "/serviceAccountName")).filter(|name| !name.is_empty());
    let mut references: Vec<_> = account.map(|name| (Kind::ServiceAccount, name)).into_iter().collect();
    references.extend(secrets(spec).map(|name| (Kind::Secret, name)));
    references.extend(config_maps(spec).map(|name| (Kind::ConfigMap, name)));
    references.extend(resource_claims(pod).map(|name| (Kind::ResourceClaim, name)));
    let namespace: Arc<str> = namespace.into();
    let key = |name: &str| Key { namespace: namespace.clone(), name: name.into() };
    let mut references: BTreeSet<_> = references.into_iter().map(|(kind, name)| (kind, key(name))).collect();
    references.extend(claims(pod).map(|name| (Kind::Claim, key(&name))));
    Some((node, references))
}

/// Returns the names of the claims of a pod's volumes.
fn claims(pod: &Value) -> impl Iterator<Item = String> {
    list(pod, "/spec/volumes").iter().filter_map(|volume| volume_claim(pod, volume))
}

/// Returns the name of the claim of a volume of a pod.
pub(super) fn volume_claim(pod: &Value, volume: &Value) -> Option<String> {
    if has(volume, "/ephemeral") {
        return Some(format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name")));
    }
    Some(text(volume, "/persistentVolumeClaim/claimName").to_owned()).filter(|name| !name.is_empty())
}

/// Returns the names of a pod's resource claims: those that it names, and those that were made for it.
fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let claims = list(pod, "/spec/resourceClaims").iter().map(|claim| match text(claim, "/resourceClaimName") {
        "" => {
            let made = list(pod, "/status/resourceClaimStatuses").iter();
            let mut made = made.filter(|one| one["name"] == claim["name"]);
            made.next().map_or("", |one| text(one, "/resourceClaimName"))
        }
        name => name,
    });
    let extended = text(pod, "/status/extendedResourceClaimStatus/resourceClaimName");
    claims.chain([extended]).filter(|name| !name.is_empty())
}

/// Returns the Secrets that a node needs for a persistent volume with a claim, each with the name of the volume.
fn volume_secrets(volume: &Value) -> impl Iterator<Item = (&str, Key)> {
    const REFERENCES: [&str; 10] = [
        "cephfs/secretRef",
        "cinder/secretRef",
        "csi/nodeExpandSecretRef",
        "csi/nodePublishSecretRef",
        "csi/nodeStageSecretRef",
        "flexVolume/secretRef",
        "iscsi/secretRef",
        "rbd/secretRef",
        "scaleIO/secretRef",
        "storageos/secretRef",
    ];
    let spec = &volume["spec"];
    let own = text(spec, "/claimRef/namespace");
    let of_claim = move |namespace, is_own: bool| if is_own && str::is_empty(namespace) { own } else { namespace };
    let references = REFERENCES.into_iter().map(move |place| {
        let reference = pointer::get(spec, &format!("/{place}")).unwrap_or(&Value::Null);
        let names_own = !place.starts_with("csi") && !place.starts_with("cinder") && !place.starts_with("storageos");
        (of_claim(text(reference, "/namespace"), names_own), text(reference, "/name"))
    });
    let azure = &spec["azureFile"];
    let azure = (of_claim(text(azure, "/secretNamespace"), true), text(azure, "/secretName"));
    let has_claim = has(spec, "/claimRef");
    references
        .chain([azure])
        .filter(move |(_, name)| has_claim && !name.is_empty())
        .map(|(namespace, name)| (text(volume, "/metadata/name"), Key::new(namespace, name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        pod
    }

    fn enabled() -> NodeReferences {
        let references = NodeReferences::default();
        references.enable();
        references
    }

    #[test]
    fn references_of_all_kinds_are_found() {
        let references = enabled();
        let mut pod = pod(
            "p",
            "a",
            json!({
                "serviceAccountName": "account", "imagePullSecrets": [{"name": "pull"}],
                "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "variable"}}}]}],
                "containers": [{"envFrom": [{"secretRef": {"name": "whole"}}, {"configMapRef": {"name": "whole"}}]}],
                "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "variable"}}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "volume"}}, {"name": "b", "configMap": {"name": "volume"}},
                    {"name": "c", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
                    {"name": "d", "projected": {"sources": [
                        {"secret": {"name": "source"}}, {"configMap": {"name": "source"}}, {"configMap": {"name": ""}},
                    ]}},
                    {"name": "e", "ephemeral": {}}, {"name": "f", "persistentVolumeClaim": {"claimName": "claim"}},
                ],
                "resourceClaims": [{"name": "x", "resourceClaimName": "named"}, {"name": "y"}],
            }),
        );
        pod["status"]["resourceClaimStatuses"] = json!([{"name": "y", "resourceClaimName": "made"}]);
        references.replace_pod(None, Some(&pod));
        let all = |kind: Kind| -> Vec<String> {
            let nodes = references.nodes.read();
            let of_kind = nodes["a"].keys().filter(|(of, _)| *of == kind);
            of_kind.map(|(_, key)| format!("{}/{}", key.namespace, key.name)).collect()
        };
        assert_eq!(all(Kind::Secret), ["n/csi", "n/pull", "n/source", "n/variable", "n/volume", "n/whole"]);
        assert_eq!(all(Kind::ConfigMap), ["n/source", "n/variable", "n/volume", "n/whole"]);
        assert_eq!(all(Kind::Claim), ["n/claim", "n/p-e"]);
        assert_eq!(all(Kind::ResourceClaim), ["n/made", "n/named"]);
        assert_eq!(all(Kind::ServiceAccount), ["n/account"]);
        references.replace_pod(Some(&pod), None);
        assert!(references.nodes.read().is_empty());
    }

    #[test]
    fn an_object_is_kept_once_for_all_pods_of_a_node() {
        let references = enabled();
        let spec = json!({"serviceAccountName": "s"});
        let pods: Vec<_> = (0..1_000).map(|index| pod(&format!("p{index}"), "a", spec.clone())).collect();
        pods.iter().for_each(|pod| references.replace_pod(None, Some(pod)));
        assert_eq!(references.nodes.read()["a"].len(), 1);
        let contains = |node| references.contains(node, Kind::ServiceAccount, "n", "s");
        pods[1..].iter().for_each(|pod| references.replace_pod(Some(pod), None));
        assert!(contains("a") && !contains("b"));
        references.replace_pod(Some(&pods[0]), None);
        assert!(!contains("a") && references.nodes.read().is_empty());
    }

    #[test]
    fn a_pod_counts_once_it_has_a_node_and_gets_new_references() {
        let references = enabled();
        let contains = |kind, name| references.contains("a", kind, "n", name);
        let waiting = pod("p", "", json!({"serviceAccountName": "s"}));
        references.replace_pod(None, Some(&waiting));
        assert!(!contains(Kind::ServiceAccount, "s"));
        let bound = pod("p", "a", json!({"serviceAccountName": "s"}));
        references.replace_pod(Some(&waiting), Some(&bound));
        assert!(contains(Kind::ServiceAccount, "s"));
        let mut debugged = bound.clone();
        debugged["spec"]["ephemeralContainers"] = json!([{"envFrom": [{"secretRef": {"name": "late"}}]}]);
        references.replace_pod(Some(&bound), Some(&debugged));
        assert!(contains(Kind::ServiceAccount, "s") && contains(Kind::Secret, "late"));
        let mut mirror = pod("m", "a", json!({"imagePullSecrets": [{"name": "pull"}]}));
        mirror["metadata"]["annotations"][MIRROR] = "hash".into();
        references.replace_pod(None, Some(&mirror));
        assert!(!contains(Kind::Secret, "pull"));
    }

    #[test]
    fn a_secret_is_reached_by_way_of_a_volume() {
        let references = enabled();
        let volume = |claim: &str| {
            json!({"metadata": {"name": "v"}, "spec": {
                "claimRef": {"namespace": "n", "name": claim},
                "csi": {
                    "nodeStageSecretRef": {"namespace": "other", "name": "stage"},
                    "controllerPublishSecretRef": {"namespace": "other", "name": "controller"},
                },
            }})
        };
        references.replace_volume(None, Some(&volume("c")));
        let contains = |name| references.contains("a", Kind::Secret, "other", name);
        assert!(!contains("stage"));
        let pod = pod("p", "a", json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}));
        references.replace_pod(None, Some(&pod));
        assert!(contains("stage") && !contains("controller"));
        references.replace_volume(Some(&volume("c")), Some(&volume("d")));
        assert!(!contains("stage"));
        references.replace_volume(Some(&volume("d")), None);
        assert!(references.secrets.read().is_empty());
        let azure = json!({"metadata": {"name": "v"}, "spec": {
            "claimRef": {"namespace": "n", "name": "c"}, "azureFile": {"secretName": "account"},
        }});
        references.replace_volume(None, Some(&azure));
        assert!(references.contains("a", Kind::Secret, "n", "account"));
    }
}
