//! The devices of ResourceClaims: which claims a pod waits for, and which devices they get on a node. The rules and
//! messages are those of kube-scheduler's plugin `DynamicResources`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>). Pure.
//!
//! [`pools`] finds the devices that a node can use, with the counters that they share ([`counters`]), [`demand`] is
//! what the claims of a pod ask for, and [`allocation`] chooses the devices, of which requests may consume a part
//! ([`capacity`]). A pod is bound when its devices meet their [`conditions`].

mod allocation;
mod capacity;
mod conditions;
mod counters;
mod demand;
mod pools;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::Value;

pub(super) use self::demand::Demand;
use self::{
    allocation::Failure,
    conditions::{Readiness, has_conditions, readiness},
    demand::{ClaimDemand, InUse, shown},
};
use super::{
    candidate::{Candidate, PodKey},
    filter,
    volumes::Progress,
};
use crate::{
    controllers::{
        kind::Kind,
        reconcile::{Key, keep},
        resource_claims::{CLAIM, MAX_USERS, SLICE, is_allocated, is_reserved, made, name_of, user},
        value::{controller_of, is_deleting, list, text},
    },
    object_client::ObjectPath,
};

/// Classes of devices, which have no namespace.
const CLASS: Kind = Kind { group: "resource.k8s.io", kind: "DeviceClass", plural: "deviceclasses" };
/// The greatest number of alternatives of a request.
const MAX_ALTERNATIVES: i64 = 8;
/// Why a node can't take a pod whose devices are elsewhere.
pub(super) const ELSEWHERE: &str = "resourceclaim not available on the node";

/// The claims of devices, and the devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    claims: BTreeMap<Key, Arc<Value>>,
    classes: BTreeMap<Key, Arc<Value>>,
    slices: BTreeMap<Key, Arc<Value>>,
    /// The claims whose allocation is being written.
    pending: BTreeMap<Key, Pending>,
    /// The present time, which tells how long devices have been given to meet their conditions.
    pub(super) now: Timestamp,
}

/// An allocation that is being written.
#[derive(Debug)]
struct Pending {
    /// The UID of the claim.
    claim: String,
    pod: PodKey,
    allocation: Value,
}

/// The pods that a change matters to.
#[derive(Debug)]
pub(super) enum Scope {
    /// Those that use a claim.
    Users(Key),
    /// Those that use any claim.
    All,
}

/// A change of a claim for a pod: its allocation, if it has none, and the reservation for the pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binding {
    pub(super) claim: Arc<Value>,
    pub(super) allocation: Option<Value>,
    pub(super) user: Value,
}

impl Binding {
    /// Returns the path of the claim.
    pub(super) fn path(&self) -> ObjectPath {
        path(&self.claim)
    }
}

/// Returns the path of a claim.
pub(super) fn path(claim: &Value) -> ObjectPath {
    CLAIM.address(text(claim, "/metadata/namespace"), text(claim, "/metadata/name"))
}

/// Why a node can't take a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Kubernetes' reason.
    Reason(&'static str),
    /// The error that ends the search for a node.
    Error(String),
}

impl Devices {
    /// Processes a change; returns `None` if it isn't about devices.
    pub(super) fn take(&mut self, change: &Change) -> Option<Scope> {
        let kind = [CLAIM, CLASS, SLICE].into_iter().find(|kind| kind.is_of(change))?;
        let gone = change.kind == ChangeKind::Deleted;
        Some(self.put(kind.kind, change.object(), gone))
    }

    /// Keeps a version of an object, or drops the object.
    pub(super) fn put(&mut self, kind: &str, object: &Arc<Value>, gone: bool) -> Scope {
        let objects = match kind {
            "ResourceClaim" => return self.put_claim(object, gone),
            "DeviceClass" => &mut self.classes,
            _ => &mut self.slices,
        };
        keep(objects, object, gone);
        Scope::All
    }

    fn put_claim(&mut self, claim: &Arc<Value>, gone: bool) -> Scope {
        let key = Key::of_any_scope(claim);
        let had_devices = self.claims.get(&key).is_some_and(|before| is_allocated(before));
        let is_over = |pending: &Pending| gone || is_allocated(claim) || pending.claim != text(claim, "/metadata/uid");
        if self.pending.get(&key).is_some_and(is_over) {
            self.pending.remove(&key);
        }
        keep(&mut self.claims, claim, gone);
        let has_devices = !gone && is_allocated(claim);
        if had_devices && !has_devices { Scope::All } else { Scope::Users(key) }
    }

    /// Returns whether a change matters to a pod.
    pub(super) fn matters(&self, change: &Scope, pod: &Value) -> bool {
        let mut wanted = list(pod, "/spec/resourceClaims").iter();
        let namespace = text(pod, "/metadata/namespace");
        match change {
            Scope::All => wanted.next().is_some(),
            Scope::Users(claim) => {
                claim.namespace == namespace && wanted.any(|one| name_of(pod, one) == Some(&*claim.name))
            }
        }
    }

    /// Returns the claims of a pod; `None` if one is missing, is being deleted, or is another pod's. Such a pod isn't
    /// tried at all, and nothing is said about it, as in Kubernetes.
    fn claims_of(&self, pod: &Value) -> Option<Vec<(Key, &Arc<Value>)>> {
        let mut claims: Vec<(Key, &Arc<Value>)> = Vec::new();
        for wanted in list(pod, "/spec/resourceClaims") {
            if is_unnecessary(pod, wanted) {
                continue;
            }
            let namespace = text(pod, "/metadata/namespace").to_owned();
            let key = Key { namespace, name: name_of(pod, wanted)?.to_owned() };
            let claim = self.claims.get(&key)?;
            let owner = controller_of(claim).map(|owner| text(owner, "/uid"));
            let is_foreign = wanted["resourceClaimName"].is_null() && owner != Some(text(pod, "/metadata/uid"));
            if is_deleting(claim) || is_foreign {
                return None;
            }
            if claims.iter().all(|(known, _)| *known != key) {
                claims.push((key, claim));
            }
        }
        Some(claims)
    }

    /// Returns whether a pod has to wait for its claims.
    pub(super) fn is_gated(&self, pod: &Value) -> bool {
        self.claims_of(pod).is_none()
    }

    /// Returns whether a pod uses claims.
    pub(super) fn has_claims(&self, pod: &Value) -> bool {
        self.claims_of(pod).is_some_and(|claims| !claims.is_empty())
    }

    #[cfg(test)]
    pub(super) fn claim(&self, key: &Key) -> Option<&Arc<Value>> {
        self.claims.get(key)
    }

    fn class(&self, name: &str) -> Option<&Value> {
        self.classes.get(&Key { namespace: String::new(), name: name.to_owned() }).map(|class| &**class)
    }

    /// Returns why a pod has to wait for its claims, whatever the node.
    pub(super) fn obstacle(&self, pod: &Candidate<'_>) -> Option<String> {
        let claims = self.claims_of(pod.object)?;
        claims.iter().find_map(|(key, claim)| {
            let is_full = list(claim, "/status/reservedFor").len() >= MAX_USERS && !is_reserved(claim, &pod.key.uid);
            match (is_allocated(claim), self.pending.contains_key(key)) {
                (true, _) => is_full.then(|| "resourceclaim in use".to_owned()),
                (false, true) => Some(format!("resource claim {} is in the process of being allocated", shown(claim))),
                (false, false) => self.missing_class(claim),
            }
        })
    }

    fn missing_class(&self, claim: &Value) -> Option<String> {
        let demand = ClaimDemand::new(claim, |name| self.class(name));
        let mut alternatives = demand.requests.iter().flat_map(|request| &request.alternatives);
        let missing = alternatives.find(|alternative| alternative.class.is_none())?;
        let class = text(missing.of, "/deviceClassName");
        Some(format!("request {}: device class {class} does not exist", missing.name))
    }

    /// Returns what the claims of a pod ask for that have no devices; `None` if all have them.
    pub(super) fn demand(&self, pod: &Candidate<'_>) -> Option<Demand<'_>> {
        let claims = self.claims_of(pod.object)?.into_iter().filter(|(_, claim)| !is_allocated(claim));
        let demand = |claim| ClaimDemand::new(claim, |name| self.class(name));
        let claims: Vec<_> = claims.map(|(_, claim)| demand(&**claim)).collect();
        let written = self.claims.values().map(|claim| &claim["status"]["allocation"]);
        let allocations = written.chain(self.pending.values().map(|pending| &pending.allocation));
        (!claims.is_empty()).then(|| Demand { claims, in_use: InUse::of(allocations) })
    }

    fn allocate(&self, demand: &Demand<'_>, node: &Value) -> Result<Vec<Value>, Failure> {
        allocation::allocate(demand, self.slices.values().map(|slice| &**slice), node)
    }

    /// Returns why the claims of a pod can't be used on a node. `demand` is that of the pod.
    pub(super) fn conflict(&self, pod: &Candidate<'_>, demand: Option<&Demand<'_>>, node: &Value) -> Option<Conflict> {
        match demand.map(|demand| self.allocate(demand, node)) {
            Some(Err(Failure::Unavailable(reason))) => return Some(Conflict::Reason(reason)),
            Some(Err(Failure::Broken(why))) => {
                return Some(Conflict::Error(format!("running \"DynamicResources\" filter plugin: {why}")));
            }
            Some(Ok(_)) | None => {}
        }
        let claims = self.claims_of(pod.object).unwrap_or_default();
        claims.iter().any(|(_, claim)| self.is_unusable(claim, node)).then_some(Conflict::Reason(ELSEWHERE))
    }

    /// Returns how far the devices for a pod on a node are those that its claims prefer.
    pub(super) fn score(&self, pod: &Candidate<'_>, demand: Option<&Demand<'_>>, node: &Value) -> i64 {
        let claims = self.claims_of(pod.object).unwrap_or_default();
        let has_choice = |claim: &Value| {
            list(claim, "/spec/devices/requests").iter().any(|one| !list(one, "/firstAvailable").is_empty())
        };
        if !claims.iter().any(|(_, claim)| has_choice(claim)) {
            return 0;
        }
        let allocated = demand.and_then(|demand| self.allocate(demand, node).ok()).unwrap_or_default();
        let mut allocated = allocated.iter();
        let score = |(_, claim): &(Key, &Arc<Value>)| {
            let allocation = if is_allocated(claim) { &claim["status"]["allocation"] } else { allocated.next()? };
            Some(preference(claim, allocation))
        };
        claims.iter().filter_map(score).sum()
    }

    /// Returns what has to be written so that a pod can use its claims on a node. The devices that are allocated to
    /// them count as allocated.
    pub(super) fn reserve(&mut self, pod: &Candidate<'_>, node: &Value) -> Vec<Binding> {
        let demand = self.demand(pod);
        let allocated = demand.and_then(|demand| self.allocate(&demand, node).ok()).unwrap_or_default();
        let mut allocated = allocated.into_iter();
        let PodKey { name, uid, .. } = pod.key;
        let user = user(name, uid);
        let mut bindings = Vec::new();
        let mut pending = Vec::new();
        for (key, claim) in self.claims_of(pod.object).unwrap_or_default() {
            let allocation = if is_allocated(claim) { None } else { allocated.next() };
            if let Some(allocation) = allocation.clone() {
                let claim = text(claim, "/metadata/uid").to_owned();
                pending.push((key, Pending { claim, pod: pod.key.clone(), allocation }));
            }
            if !is_reserved(claim, uid) {
                bindings.push(Binding { claim: claim.clone(), allocation, user: user.clone() });
            }
        }
        self.pending.extend(pending);
        bindings
    }

    /// Forgets what couldn't be written for a pod.
    pub(super) fn withdraw(&mut self, pod: &PodKey) {
        self.pending.retain(|_, pending| pending.pod != *pod);
    }

    /// Returns how far the claims of a pod are reserved for it, and their devices meet their conditions.
    pub(super) fn progress(&self, pod: &Candidate<'_>, node: &Value) -> Progress {
        let Some(claims) = self.claims_of(pod.object) else {
            let mut names = list(pod.object, "/spec/resourceClaims").iter().filter_map(|one| name_of(pod.object, one));
            let key = |name: &str| Key { namespace: pod.namespace().to_owned(), name: name.to_owned() };
            let lost = names.find(|name| self.claims.get(&key(name)).is_none_or(|claim| is_deleting(claim)));
            let claim = format!("{}/{}", pod.namespace(), lost.unwrap_or_default());
            return Progress::Failed(format!("claim {claim} got deleted in the meantime"));
        };
        if let Some((_, claim)) = claims.iter().find(|(_, claim)| is_elsewhere(claim, node)) {
            return Progress::Failed(format!("claim {} got allocated elsewhere in the meantime", shown(claim)));
        }
        let is_written = |claim: &Value| is_allocated(claim) && is_reserved(claim, &pod.key.uid);
        if !claims.iter().all(|(_, claim)| is_written(claim)) {
            return Progress::Pending;
        }
        let mut of_claims = claims.iter().map(|(_, claim)| (claim, readiness(claim, self.now)));
        match of_claims.find(|(_, readiness)| *readiness != Readiness::Ready) {
            None => Progress::Bound,
            Some((_, Readiness::Failed(why))) => Progress::Failed(why),
            Some((claim, Readiness::Late)) => {
                Progress::Failed(format!("device binding timeout: claim={}", text(claim, "/metadata/name")))
            }
            Some(_) => Progress::Pending,
        }
    }

    /// Returns whether a pod has devices with conditions, once these changes of its claims are written.
    pub(super) fn has_conditions(&self, pod: &Candidate<'_>, changes: &[Binding]) -> bool {
        let claims = self.claims_of(pod.object).unwrap_or_default();
        let mut written = claims.iter().map(|(_, claim)| &claim["status"]["allocation"]);
        let mut changed = changes.iter().filter_map(|change| change.allocation.as_ref());
        written.any(has_conditions) || changed.any(has_conditions)
    }

    /// Returns whether a node can't use the devices of a claim, or no node can because they failed to meet their
    /// conditions.
    fn is_unusable(&self, claim: &Value, node: &Value) -> bool {
        is_elsewhere(claim, node) || matches!(readiness(claim, self.now), Readiness::Late | Readiness::Failed(_))
    }

    /// Returns a claim of a pod that no other pod uses, and whose devices are on other nodes than `nodes`, or don't
    /// meet their conditions. Without devices, it could get others.
    pub(super) fn idle<'n>(
        &self,
        pod: &Candidate<'_>,
        nodes: impl Iterator<Item = &'n Value> + Clone,
    ) -> Option<Arc<Value>> {
        let is_unused = |claim: &Value| match list(claim, "/status/reservedFor") {
            [] => true,
            [one] => one["uid"] == pod.key.uid,
            _ => false,
        };
        let is_idle = |claim: &Value| is_unused(claim) && nodes.clone().any(|node| self.is_unusable(claim, node));
        let claims = self.claims_of(pod.object)?;
        claims.into_iter().find(|(_, claim)| is_idle(claim)).map(|(_, claim)| claim.clone())
    }
}

/// Returns whether a claim that would be made from a template isn't necessary.
fn is_unnecessary(pod: &Value, wanted: &Value) -> bool {
    let is_without_name = |made: &Value| made["resourceClaimName"].is_null();
    wanted["resourceClaimName"].is_null() && made(pod, wanted).is_some_and(is_without_name)
}

/// Returns whether a node can't use the devices of a claim.
fn is_elsewhere(claim: &Value, node: &Value) -> bool {
    !filter::satisfies(node, &claim["status"]["allocation"]["nodeSelector"])
}

/// Returns the sum over the requests of a claim with alternatives: the more, the earlier the one that was allocated.
fn preference(claim: &Value, allocation: &Value) -> i64 {
    let results = list(allocation, "/devices/results");
    let mut sum = 0;
    for request in list(claim, "/spec/devices/requests") {
        let alternatives = list(request, "/firstAvailable").iter();
        for (alternative, value) in alternatives.zip((1..=MAX_ALTERNATIVES).rev()) {
            let name = format!("{}/{}", text(request, "/name"), text(alternative, "/name"));
            sum += if results.iter().any(|result| result["request"] == *name) { value } else { 0 };
        }
    }
    sum
}
