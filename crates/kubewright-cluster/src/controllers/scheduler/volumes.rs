//! The persistent volumes of pods: where they are, and which ones the claims get that wait for their first consumer.
//! The rules and messages are those of kube-scheduler's plugin `VolumeBinding`. Pure.
//!
//! Such a claim is bound for a node. If the node has a volume for it, the volume is reserved for the claim, else the
//! claim is marked with the node, for the provisioner of its class. The volume binder does the rest, and the pod is
//! bound when all of its claims are.

use std::{collections::BTreeMap, sync::Arc};

use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

use super::{candidate::Candidate, filter};
use crate::{
    controllers::{
        kind::Kind,
        reconcile::{Key, keep},
        value::{controller_of, is_deleting, list, selector, selects, text},
        volume_binder::{
            CHOSEN, CLASS, NO_PROVISIONER, SELECTED_NODE, annotation, claim_of, class_of, is_completed, is_delayed,
            matching, reference,
        },
    },
    object_client::ObjectPath,
    quantity::quantity,
};

/// Why a node can't take a pod whose volume is elsewhere.
const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
/// Why a node can't take a pod whose claim gets no volume there.
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
/// Why a node can't take a pod whose volumes are too large to be created there.
const NO_SPACE: &str = "node(s) did not have enough free storage";
/// Why a node can't take a pod whose volume doesn't exist.
const MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
/// Why a node can't take a pod whose volume has labels of another zone.
const OTHER_ZONE: &str = "node(s) had no available volume zone";

/// The labels of zones and regions, each with the label that replaces it.
const ZONES: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// Drivers of the Container Storage Interface.
pub(super) const DRIVER: Kind = Kind { group: "storage.k8s.io", kind: "CSIDriver", plural: "csidrivers" };
/// The space that is left for volumes of a class in a part of the cluster.
pub(super) const CAPACITY: Kind =
    Kind { group: "storage.k8s.io", kind: "CSIStorageCapacity", plural: "csistoragecapacities" };

/// The objects that describe where volumes are, and where they can be created. The keys of those without a namespace
/// have none.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    claims: BTreeMap<Key, Arc<Value>>,
    volumes: BTreeMap<Key, Arc<Value>>,
    classes: BTreeMap<Key, Arc<Value>>,
    drivers: BTreeMap<Key, Arc<Value>>,
    capacities: BTreeMap<Key, Arc<Value>>,
}

/// The claims that a change matters to.
#[derive(Debug)]
pub(super) enum Scope {
    Claim(Key),
    /// Those that are bound to a volume, or may be.
    Volume {
        name: String,
        class: Option<String>,
    },
    Unbound,
}

/// A change of a volume or claim for a pod, by which the volume is bound.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reservation {
    before: Arc<Value>,
    /// The object to write.
    pub(super) after: Arc<Value>,
}

impl Reservation {
    /// Returns the path of the object.
    pub(super) fn path(&self) -> ObjectPath {
        let (namespace, name) = (text(&self.after, "/metadata/namespace"), text(&self.after, "/metadata/name"));
        kind_of(&self.after).address(namespace, name)
    }
}

/// The identity of a volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CsiVolume {
    pub(super) driver: String,
    pub(super) handle: String,
}

/// How far the binding of the volumes of a pod is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Pending,
    Bound,
    /// They can't be bound for the node.
    Failed(String),
}

impl Volumes {
    /// Processes a change; returns `None` if it isn't about volumes.
    pub(super) fn take(&mut self, change: &Change) -> Option<Scope> {
        let kind = [Kind::CLAIM, Kind::VOLUME, CLASS, DRIVER, CAPACITY].into_iter().find(|kind| kind.is_of(change))?;
        let gone = change.kind == ChangeKind::Deleted;
        Some(self.put(&kind, change.object(), gone))
    }

    /// Keeps a version of an object, or drops the object.
    pub(super) fn put(&mut self, kind: &Kind, object: &Arc<Value>, gone: bool) -> Scope {
        let objects = match kind.kind {
            "PersistentVolumeClaim" => return Scope::Claim(keep(&mut self.claims, object, gone)),
            "PersistentVolume" => {
                let Key { name, .. } = keep(&mut self.volumes, object, gone);
                return Scope::Volume { name, class: class_of(object).map(str::to_owned) };
            }
            "StorageClass" => &mut self.classes,
            "CSIDriver" => &mut self.drivers,
            _ => &mut self.capacities,
        };
        keep(objects, object, gone);
        Scope::Unbound
    }

    /// Returns whether a change matters to a claim.
    pub(super) fn matters(&self, change: &Scope, namespace: &str, name: &str) -> bool {
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        let claim = self.claims.get(&key);
        match change {
            Scope::Claim(changed) => *changed == key,
            Scope::Volume { name, class } => claim.is_some_and(|claim| {
                text(claim, "/spec/volumeName") == name || (!is_completed(claim) && class_of(claim) == class.as_deref())
            }),
            Scope::Unbound => claim.is_some_and(|claim| !is_completed(claim)),
        }
    }

    /// Returns a claim in the namespace of a pod.
    pub(super) fn claim(&self, pod: &Candidate<'_>, name: &str) -> Option<&Arc<Value>> {
        self.claims.get(&Key { namespace: pod.namespace().to_owned(), name: name.to_owned() })
    }

    fn volume(&self, name: &str) -> Option<&Arc<Value>> {
        self.volumes.get(&Key { namespace: String::new(), name: name.to_owned() })
    }

    /// Returns the volume of a claim if it is one of a CSI driver. One that is to be created yet counts as its own.
    pub(super) fn csi_volume(&self, namespace: &str, claim: &str) -> Option<CsiVolume> {
        let key = Key { namespace: namespace.to_owned(), name: claim.to_owned() };
        let claim = self.claims.get(&key)?;
        let volume = text(claim, "/spec/volumeName");
        if self.volume(volume).is_some() {
            return self.csi_volume_of(volume);
        }
        let driver = text(self.class(claim)?, "/provisioner").to_owned();
        // No handle begins with a slash and the namespace of a claim by chance.
        Some(CsiVolume { driver, handle: format!("/{}/{}", key.namespace, key.name) })
    }

    /// Returns a volume if it is one of a CSI driver.
    pub(super) fn csi_volume_of(&self, name: &str) -> Option<CsiVolume> {
        let csi = &self.volume(name)?["spec"]["csi"];
        let (driver, handle) = (text(csi, "/driver").to_owned(), text(csi, "/volumeHandle").to_owned());
        (!driver.is_empty() && !handle.is_empty()).then_some(CsiVolume { driver, handle })
    }

    fn class(&self, claim: &Value) -> Option<&Value> {
        let name = class_of(claim).filter(|name| !name.is_empty())?.to_owned();
        self.classes.get(&Key { namespace: String::new(), name }).map(|class| &**class)
    }

    /// Returns whether a claim is bound for the node of its first consumer.
    fn is_delayed(&self, claim: &Value) -> bool {
        text(claim, "/spec/volumeName").is_empty() && is_delayed(self.class(claim))
    }

    /// Returns why a pod has to wait for its claims, whatever the node.
    pub(super) fn obstacle(&self, pod: &Candidate<'_>) -> Option<String> {
        let problem = pod.taken.claims.iter().find_map(|name| self.problem(pod, name));
        problem.or_else(|| {
            let waits = |claim: &&Arc<Value>| !is_completed(claim) && !self.is_delayed(claim);
            let mut claims = pod.taken.claims.iter().filter_map(|name| self.claim(pod, name));
            claims.any(|claim| waits(&claim)).then(|| "pod has unbound immediate PersistentVolumeClaims".into())
        })
    }

    fn problem(&self, pod: &Candidate<'_>, name: &str) -> Option<String> {
        let is_ephemeral = is_ephemeral(pod.object, name);
        let Some(claim) = self.claim(pod, name) else {
            let missing = format!("persistentvolumeclaim \"{name}\"");
            return Some(match is_ephemeral {
                true => format!("waiting for ephemeral volume controller to create the {missing}"),
                false => format!("{missing} not found"),
            });
        };
        if text(claim, "/status/phase") == "Lost" {
            let volume = text(claim, "/spec/volumeName");
            return Some(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if is_deleting(claim) {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let owner = controller_of(claim).map(|owner| text(owner, "/uid"));
        (is_ephemeral && owner != Some(&pod.key.uid)).then(|| {
            let (namespace, pod) = (pod.namespace(), &pod.key.name);
            format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)")
        })
    }

    /// Returns why the volumes of a pod can't be used on a node.
    pub(super) fn conflicts(&self, pod: &Candidate<'_>, node: &Value) -> Vec<&'static str> {
        let conflict = self.bound_elsewhere(pod, node);
        let conflicts: Vec<_> = conflict.into_iter().chain(self.choose(pod, node).err()).collect();
        // Zones are another plugin's, which isn't asked then.
        let is_elsewhere = conflicts.is_empty() && !self.are_in_zone(pod, node);
        if is_elsewhere { vec![OTHER_ZONE] } else { conflicts }
    }

    /// Returns whether the labels of the volumes of a pod allow the zone of a node.
    fn are_in_zone(&self, pod: &Candidate<'_>, node: &Value) -> bool {
        let claims = pod.taken.claims.iter().filter_map(|name| self.claim(pod, name));
        let mut volumes = claims.filter_map(|claim| self.volume(text(claim, "/spec/volumeName")));
        volumes.all(|volume| is_in_zone(volume, node))
    }

    fn bound_elsewhere(&self, pod: &Candidate<'_>, node: &Value) -> Option<&'static str> {
        let claims = pod.taken.claims.iter().filter_map(|name| self.claim(pod, name));
        claims.filter(|claim| is_completed(claim)).find_map(|claim| {
            match self.volume(text(claim, "/spec/volumeName")) {
                None => Some(MISSING),
                Some(volume) => (!is_near(volume, node)).then_some(ELSEWHERE),
            }
        })
    }

    /// Returns the volumes of a node for the claims of a pod that aren't bound; `None` is a new volume.
    ///
    /// # Errors
    /// Returns Kubernetes' reason if the node has none.
    fn choose(&self, pod: &Candidate<'_>, node: &Value) -> Result<Vec<Choice<'_>>, &'static str> {
        let claims = pod.taken.claims.iter().filter_map(|name| self.claim(pod, name));
        let mut waiting: Vec<_> = claims.filter(|claim| !is_completed(claim) && self.is_delayed(claim)).collect();
        // The smallest volumes are for the smallest claims. A pod can name a claim twice.
        waiting.sort_by_key(|claim| (size(claim), Key::of_any_scope(claim)));
        waiting.dedup_by_key(|claim| Key::of_any_scope(claim));
        let mut choices: Vec<Choice<'_>> = Vec::new();
        for claim in waiting {
            let volume = match annotation(claim, SELECTED_NODE) {
                Some(selected) if selected != text(node, "/metadata/name") => return Err(NONE_TO_BIND),
                Some(_) => None,
                None => self.matching(claim, node, &choices),
            };
            if volume.is_none() {
                self.check_new(claim, node)?;
            }
            choices.push((claim, volume));
        }
        Ok(choices)
    }

    /// Returns the volume of a node that suits a claim best, if none of the others has it.
    fn matching(&self, claim: &Value, node: &Value, others: &[Choice<'_>]) -> Option<&Arc<Value>> {
        let is_taken = |name: &Key| {
            others.iter().any(|(_, volume)| volume.is_some_and(|volume| text(volume, "/metadata/name") == name.name))
        };
        let free = self.volumes.iter().filter(|(name, _)| !is_taken(name)).map(|(_, volume)| volume);
        let best = matching::best(free, claim, &Key::of_any_scope(claim), |volume| is_near(volume, node))?;
        // One that refers to the claim is the only choice.
        is_near(best, node).then_some(best)
    }

    /// Checks whether a volume can be created for a claim near a node.
    fn check_new(&self, claim: &Value, node: &Value) -> Result<(), &'static str> {
        let class = self.class(claim).ok_or(NONE_TO_BIND)?;
        if text(class, "/provisioner") == NO_PROVISIONER || !is_allowed(class, node) {
            return Err(NONE_TO_BIND);
        }
        if self.has_space(claim, class, node) { Ok(()) } else { Err(NO_SPACE) }
    }

    /// Returns whether there is space for a new volume, as far as its driver reports it.
    fn has_space(&self, claim: &Value, class: &Value, node: &Value) -> bool {
        let driver = Key { namespace: String::new(), name: text(class, "/provisioner").to_owned() };
        let Some(wanted) = size(claim) else { return true };
        if !self.drivers.get(&driver).is_some_and(|driver| driver["spec"]["storageCapacity"] == true) {
            return true;
        }
        let limit = |capacity: &Value| {
            // The size of a single volume is the more precise limit.
            let limit = ["maximumVolumeSize", "capacity"].iter().find_map(|field| capacity[*field].as_str());
            limit.and_then(quantity)
        };
        self.capacities.values().any(|capacity| {
            capacity["storageClassName"] == class["metadata"]["name"]
                && limit(capacity).is_some_and(|limit| limit >= wanted)
                && !capacity["nodeTopology"].is_null()
                && selects(&selector(capacity, "/nodeTopology"), node)
        })
    }

    /// Binds the claims of a pod for a node, as far as they aren't bound. What has to be written counts as written.
    pub(super) fn reserve(&mut self, pod: &Candidate<'_>, node: &Value) -> Vec<Reservation> {
        let choices = self.choose(pod, node).unwrap_or_default();
        let reservations: Vec<_> =
            choices.into_iter().filter_map(|(claim, volume)| reservation(claim, volume, node)).collect();
        for Reservation { after, .. } in &reservations {
            self.put(kind_of(after), after, false);
        }
        reservations
    }

    /// Forgets what couldn't be written.
    pub(super) fn withdraw(&mut self, reservations: &[Reservation]) {
        for Reservation { before, after } in reservations {
            let objects = if kind_of(after).kind == Kind::CLAIM.kind { &self.claims } else { &self.volumes };
            if objects.get(&Key::of_any_scope(after)).is_some_and(|current| Arc::ptr_eq(current, after)) {
                self.put(kind_of(after), before, false);
            }
        }
    }

    /// Returns how far the volumes of a pod are bound for a node.
    pub(super) fn progress(&self, pod: &Candidate<'_>, node: &Value) -> Progress {
        if let Some(problem) = pod.taken.claims.iter().find_map(|name| self.problem(pod, name)) {
            return Progress::Failed(problem);
        }
        let claims = pod.taken.claims.iter().filter_map(|name| self.claim(pod, name));
        let mut progress = Progress::Bound;
        for claim in claims {
            let volume = text(claim, "/spec/volumeName");
            match self.volume(volume) {
                Some(volume) if !is_near(volume, node) => {
                    let (volume, node) = (text(volume, "/metadata/name"), text(node, "/metadata/name"));
                    let why = format!(
                        "pv \"{volume}\" node affinity doesn't match node \"{node}\": no matching NodeSelectorTerms"
                    );
                    return Progress::Failed(why);
                }
                Some(_) if is_completed(claim) => {}
                None if volume.is_empty() && !self.is_reserved(claim, node) => {
                    return Progress::Failed(format!(
                        "provisioning failed for PVC \"{}\"",
                        text(claim, "/metadata/name")
                    ));
                }
                _ => progress = Progress::Pending,
            }
        }
        progress
    }

    /// Returns whether a claim that isn't bound is marked with a node, or referred to by a volume.
    fn is_reserved(&self, claim: &Value, node: &Value) -> bool {
        let key = Key::of_any_scope(claim);
        annotation(claim, SELECTED_NODE) == Some(text(node, "/metadata/name"))
            || self.volumes.values().any(|volume| matching::is_for(volume, claim, &key))
    }
}

/// A claim and the volume for it; `None` is a new one.
type Choice<'a> = (&'a Arc<Value>, Option<&'a Arc<Value>>);

/// Returns the change by which a claim gets a volume, unless it is made already.
fn reservation(claim: &Arc<Value>, volume: Option<&Arc<Value>>, node: &Value) -> Option<Reservation> {
    let before = volume.unwrap_or(claim).clone();
    let mut after = Value::clone(&before);
    match volume {
        None => after["metadata"]["annotations"][SELECTED_NODE] = node["metadata"]["name"].clone(),
        Some(volume) => {
            if claim_of(volume).is_none() {
                after["metadata"]["annotations"][CHOSEN] = "yes".into();
            }
            if volume["spec"]["claimRef"]["uid"] != claim["metadata"]["uid"] {
                after["spec"]["claimRef"] = reference(claim);
            }
        }
    }
    (after != *before).then(|| Reservation { before, after: Arc::new(after) })
}

/// Returns the kind of a claim or volume.
fn kind_of(object: &Value) -> &'static Kind {
    if text(object, "/metadata/namespace").is_empty() { &Kind::VOLUME } else { &Kind::CLAIM }
}

fn size(claim: &Value) -> Option<i128> {
    quantity(claim.pointer("/spec/resources/requests/storage")?.as_str()?)
}

/// Returns whether the claim of this name is that of an ephemeral volume of a pod.
fn is_ephemeral(pod: &Value, claim: &str) -> bool {
    let is_named = |volume: &Value| text(volume, "/persistentVolumeClaim/claimName") == claim;
    !list(pod, "/spec/volumes").iter().any(is_named)
}

/// Returns whether a volume can be used on a node.
fn is_near(volume: &Value, node: &Value) -> bool {
    filter::satisfies(node, &volume["spec"]["nodeAffinity"]["required"])
}

/// Returns whether a class allows volumes near a node.
fn is_allowed(class: &Value, node: &Value) -> bool {
    let holds = |one: &Value| list(one, "/values").contains(&node["metadata"]["labels"][text(one, "/key")]);
    let is_met = |term: &Value| {
        let expressions = list(term, "/matchLabelExpressions");
        !expressions.is_empty() && expressions.iter().all(holds)
    };
    let terms = list(class, "/allowedTopologies");
    terms.is_empty() || terms.iter().any(is_met)
}

/// Returns whether a node is in a zone and region that the labels of a volume name. A node without such labels is
/// everywhere.
fn is_in_zone(volume: &Value, node: &Value) -> bool {
    let (wanted, labels) = (&volume["metadata"]["labels"], &node["metadata"]["labels"]);
    let is_met = |(label, current): &(&str, &str)| {
        let Some(values) = wanted[*label].as_str() else { return true };
        let value = labels[*label].as_str().or_else(|| labels[*current].as_str());
        value.is_some_and(|value| values.split("__").any(|one| one.trim() == value))
    };
    ZONES.iter().all(|(label, _)| labels[*label].is_null()) || ZONES.iter().all(is_met)
}
