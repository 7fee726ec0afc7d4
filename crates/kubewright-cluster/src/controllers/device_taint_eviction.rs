//! The eviction of pods from devices with taints of the effect `NoExecute`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations>).
//!
//! A pod whose claim has such a device is deleted, unless the request for the device tolerates the taint. If it does so
//! for some seconds, the pod is deleted that long after the taint was added. DeviceTaintRules have no effect, as in
//! Kubernetes by default.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    objects::Objects,
    pod::with_condition,
    reconcile::{Controller, Key, Plan, Step, StepKind},
    resource_claims::{CLAIM, SLICE, is_allocated, is_reserved, name_of, reservations},
    value::{condition, controller_of, int, is_deleting, list, number, stamp, text, time},
};

/// The effect of taints that evict pods.
pub(super) const NO_EXECUTE: &str = "NoExecute";
/// The condition of pods that are to be evicted.
const TARGET: &str = "DisruptionTarget";
/// The reason of the events.
const EVICTION: &str = "DeviceTaintManagerEviction";

/// The driver and the name of a pool of devices.
type PoolId = (String, String);

/// The controller of evictions.
#[derive(Debug)]
pub(crate) struct DeviceTaintEvictions {
    pods: Objects,
    /// The claims that have devices.
    claims: BTreeMap<Key, Arc<Value>>,
    /// The slices of each pool, by name.
    pools: BTreeMap<PoolId, BTreeMap<String, Arc<Value>>>,
    /// The pods to evict, and those whose eviction is cancelled.
    targets: BTreeMap<Key, Target>,
}

/// A pod to evict, or whose eviction is cancelled.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    uid: String,
    /// When it is to be evicted; `None` if the eviction is cancelled, which an event reports.
    due: Option<Timestamp>,
}

impl DeviceTaintEvictions {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        Self { pods, claims: BTreeMap::new(), pools: BTreeMap::new(), targets: BTreeMap::new() }
    }

    fn take_pod(&self, key: Key, pod: &Value) -> Vec<Key> {
        let is_known = self.targets.contains_key(&key);
        if is_known || !list(pod, "/spec/resourceClaims").is_empty() { vec![key] } else { Vec::new() }
    }

    fn take_claim(&mut self, key: Key, claim: &Arc<Value>, gone: bool) -> Vec<Key> {
        let before = match gone || !is_allocated(claim) {
            true => self.claims.remove(&key),
            false => self.claims.insert(key, claim.clone()),
        };
        let mut users: Vec<_> = before.iter().chain([claim]).flat_map(|claim| users(claim)).collect();
        users.sort();
        users.dedup();
        users
    }

    fn take_slice(&mut self, slice: &Arc<Value>, gone: bool) -> Vec<Key> {
        let id = (text(slice, "/spec/driver").to_owned(), text(slice, "/spec/pool/name").to_owned());
        let before = self.taints_in(&id);
        let slices = self.pools.entry(id.clone()).or_default();
        let name = text(slice, "/metadata/name");
        if gone {
            slices.remove(name);
        } else {
            slices.insert(name.to_owned(), slice.clone());
        }
        if slices.is_empty() {
            self.pools.remove(&id);
        }
        let after = self.taints_in(&id);
        if before == after {
            return Vec::new();
        }
        let has_changed = |result: &Value| {
            let device = text(result, "/device");
            pool_of(result) == id && before.get(device) != after.get(device)
        };
        let concerned = self.claims.values().filter(|claim| devices_of(claim).iter().any(has_changed));
        let users: BTreeSet<_> = concerned.flat_map(|claim| users(claim)).collect();
        users.into_iter().collect()
    }

    /// Returns the current slices of a pool: those of the newest generation.
    fn slices_in<'s>(&'s self, id: &PoolId) -> impl Iterator<Item = &'s Arc<Value>> + use<'s> {
        let slices = self.pools.get(id).into_iter().flat_map(BTreeMap::values);
        let generation = |slice: &Value| int(slice, "/spec/pool/generation");
        let newest = slices.clone().map(|slice| generation(slice)).max();
        slices.filter(move |slice| Some(generation(slice)) == newest)
    }

    /// Returns the taints of each device of a pool that evict pods.
    fn taints_in(&self, id: &PoolId) -> BTreeMap<String, Vec<Value>> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for device in self.slices_in(id).flat_map(|slice| list(slice, "/spec/devices")) {
            let taints: Vec<_> = evicting(device).cloned().collect();
            if !taints.is_empty() {
                found.entry(text(device, "/name").to_owned()).or_default().extend(taints);
            }
        }
        found
    }

    /// Returns when the pods that use a claim are to be evicted; `None` if they may stay.
    fn due_of_claim(&self, claim: &Value) -> Option<Timestamp> {
        let due = |result: &Value| {
            let mut devices = self.slices_in(&pool_of(result)).flat_map(|slice| list(slice, "/spec/devices"));
            let device = devices.find(|device| device["name"] == result["device"])?;
            evicting(device).filter_map(|taint| deadline(taint, list(result, "/tolerations"))).min()
        };
        devices_of(claim).iter().filter_map(due).min()
    }

    /// Returns when a pod is to be evicted; `None` if it may stay.
    fn due(&self, key: &Key, pod: &Value) -> Option<Timestamp> {
        if text(pod, "/spec/nodeName").is_empty() {
            return None;
        }
        let uid = text(pod, "/metadata/uid");
        let due = |wanted: &Value| {
            let claim = self.claims.get(&Key { name: name_of(pod, wanted)?.to_owned(), ..key.clone() })?;
            let owner = controller_of(claim).map(|owner| text(owner, "/uid"));
            let is_own = wanted["resourceClaimName"].is_string() || owner == Some(uid);
            if is_own && is_reserved(claim, uid) { self.due_of_claim(claim) } else { None }
        };
        list(pod, "/spec/resourceClaims").iter().filter_map(due).min()
    }

    /// Updates when a pod is to be evicted.
    fn update_target(&mut self, key: &Key) {
        let before = self.targets.remove(key);
        let Some(pod) = self.pods.get(key).filter(|pod| !is_deleting(pod)) else { return };
        let uid = text(&pod, "/metadata/uid");
        let due = self.due(key, &pod);
        if due.is_some() || before.is_some_and(|target| target.uid == uid) {
            self.targets.insert(key.clone(), Target { uid: uid.to_owned(), due });
        }
    }
}

/// Returns whether a toleration matches a taint of a device. Unlike that of a node, one without a key matches every
/// key, whatever its operator.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is = |field: &str| text(toleration, field) == text(taint, field);
    let (effect, key) = (text(toleration, "/effect"), text(toleration, "/key"));
    let has_value = match text(toleration, "/operator") {
        "" | "Equal" => is("/value"),
        "Exists" => true,
        _ => false,
    };
    (effect.is_empty() || is("/effect")) && (key.is_empty() || is("/key")) && has_value
}

/// Returns when the pods that use a device with a taint are to be evicted; `None` if they may stay.
fn deadline(taint: &Value, tolerations: &[Value]) -> Option<Timestamp> {
    let since = time(taint, "/timeAdded")?;
    let of_effect = tolerations.iter().filter(|toleration| toleration["effect"] == NO_EXECUTE);
    let mut least = None;
    for toleration in of_effect.filter(|toleration| tolerates(toleration, taint)) {
        let seconds = number(toleration, "/tolerationSeconds")?.max(0);
        least = Some(least.map_or(seconds, |least: i64| least.min(seconds)));
    }
    let grace = SignedDuration::from_secs(least.unwrap_or_default());
    Some(since.checked_add(grace).unwrap_or(Timestamp::MAX))
}

fn evicting(device: &Value) -> impl Iterator<Item = &Value> {
    list(device, "/taints").iter().filter(|taint| taint["effect"] == NO_EXECUTE)
}

fn devices_of(claim: &Value) -> &[Value] {
    list(claim, "/status/allocation/devices/results")
}

fn pool_of(result: &Value) -> PoolId {
    (text(result, "/driver").to_owned(), text(result, "/pool").to_owned())
}

/// Returns the pods that a claim is reserved for.
fn users(claim: &Value) -> impl Iterator<Item = Key> {
    let namespace = text(claim, "/metadata/namespace");
    let pods = reservations(claim).filter(|one| one["resource"] == Kind::POD.plural && one["apiGroup"].is_null());
    pods.map(move |one| Key { namespace: namespace.to_owned(), name: text(one, "/name").to_owned() })
}

/// Returns the plan that evicts a pod.
fn evict(pod: &Value, now: Timestamp) -> Plan {
    let mut plan = Plan::of(&Kind::POD, pod);
    plan.event(false, EVICTION, "Marking for deletion".into());
    let before = condition(pod, TARGET).filter(|before| before["status"] == "True");
    let since = before.map_or_else(|| stamp(now), |before| before["lastTransitionTime"].clone());
    let target = json!({
        "type": TARGET, "status": "True", "reason": "DeletionByDeviceTaintManager", "lastTransitionTime": since,
        "message": "Device Taint manager: deleting due to NoExecute taint",
    });
    let patch = json!({"status": {"conditions": with_condition(pod, target)}});
    plan.steps.push(Step::change_through(&Kind::POD, pod, "/status", patch));
    plan.steps.push(Step::delete(&Kind::POD, pod));
    plan
}

impl Controller for DeviceTaintEvictions {
    fn reset(&mut self) {
        *self = Self::new(self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if ![Kind::POD, CLAIM, SLICE].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let key = Key::of_any_scope(object);
        let keys = if Kind::POD.is_of(change) {
            self.take_pod(key, object)
        } else if CLAIM.is_of(change) {
            self.take_claim(key, object, gone)
        } else {
            self.take_slice(object, gone)
        };
        keys.iter().for_each(|key| self.update_target(key));
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let (Some(pod), Some(target)) = (self.pods.get(key), self.targets.get(key)) else { return Plan::default() };
        if text(&pod, "/metadata/uid") != target.uid || is_deleting(&pod) {
            return Plan::default();
        }
        let mut plan = Plan::of(&Kind::POD, &pod);
        match target.due.map(|due| (due, due.duration_since(now).try_into())) {
            None => plan.event(false, EVICTION, "Cancelling deletion".into()),
            Some((due, Ok(left))) if due > now => plan.requeue_after(left),
            Some(_) => return evict(&pod, now),
        }
        plan
    }

    fn finished(&mut self, key: &Key, failure: Option<(StepKind, String)>) {
        // A pod that was evicted stays until its change arrives.
        if failure.is_none() && self.targets.get(key).is_some_and(|target| target.due.is_none()) {
            self.targets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { namespace: "default".into(), name: "user".into() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// A taint that was added after some seconds.
    fn taint(key: &str, effect: &str, seconds: i64) -> Value {
        json!({"key": key, "effect": effect, "timeAdded": stamp(at(seconds))})
    }

    fn slice(name: &str, generation: i64, taints: Value) -> Arc<Value> {
        let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 1});
        let devices = json!([{"name": "x", "taints": taints}, {"name": "y"}]);
        let spec = json!({"driver": "d.io", "pool": pool, "devices": devices});
        json!({"metadata": {"name": name}, "spec": spec}).into()
    }

    /// A claim with a device that is reserved for the pod.
    fn claim(device: &str, tolerations: Value) -> Arc<Value> {
        let result = json!({"driver": "d.io", "pool": "p", "device": device, "tolerations": tolerations});
        json!({
            "metadata": {"name": "c", "namespace": "default", "uid": "c"},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": "user", "uid": "p"}],
            },
        })
        .into()
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "user", "namespace": "default", "uid": "p"},
            "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
        })
    }

    /// A controller that knows a pod with a claim.
    fn controller(claim: &Arc<Value>) -> DeviceTaintEvictions {
        let mut controller = DeviceTaintEvictions::new(Objects::default());
        controller.pods.insert(&pod(), pod().into());
        let claim_key = Key { name: "c".into(), ..key() };
        assert_eq!(controller.take_claim(claim_key, claim, false), [key()]);
        controller
    }

    /// Takes a slice, and returns the pods whose evictions it can change.
    fn take(controller: &mut DeviceTaintEvictions, slice: &Arc<Value>) -> Vec<Key> {
        let keys = controller.take_slice(slice, false);
        keys.iter().for_each(|key| controller.update_target(key));
        keys
    }

    /// Returns the messages of the events of a plan.
    fn told(plan: &Plan) -> Vec<&str> {
        let events = plan.steps.iter().filter_map(|step| match step {
            Step::Event { message, .. } => Some(&**message),
            _ => None,
        });
        events.collect()
    }

    #[test]
    fn pods_are_evicted_unless_requests_tolerate_the_taints_of_devices() {
        let check = |device: &str, tolerations: Value, expect: Option<i64>| {
            let mut controller = controller(&claim(device, tolerations.clone()));
            let taints =
                json!([taint("a", "NoExecute", 100), taint("b", "NoSchedule", 50), taint("c", "NoExecute", 200)]);
            take(&mut controller, &slice("s", 1, taints));
            assert_eq!(controller.due(&key(), &pod()), expect.map(at), "{device} {tolerations}");
        };
        let tolerate = |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        check("x", json!([]), Some(100));
        check("y", json!([]), None);
        check("x", json!([tolerate("a", Value::Null)]), Some(200));
        check("x", json!([tolerate("a", json!(30))]), Some(130));
        check("x", json!([tolerate("a", json!(130))]), Some(200));
        check("x", json!([tolerate("a", json!(-5))]), Some(100));
        check("x", json!([tolerate("a", json!(30)), tolerate("", json!(20))]), Some(120));
        check("x", json!([tolerate("", Value::Null)]), None);
        // A toleration of every effect keeps the scheduler from refusing the device, but doesn't keep pods.
        check("x", json!([{"operator": "Exists"}]), Some(100));
    }

    #[test]
    fn tolerations_match_taints_of_devices() {
        let check = |toleration: Value, expect: bool| {
            let taint = json!({"key": "a", "value": "v", "effect": "NoExecute"});
            assert_eq!(tolerates(&toleration, &taint), expect, "{toleration}");
        };
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "a", "operator": "Exists"}), true);
        check(json!({"key": "b", "operator": "Exists"}), false);
        check(json!({"key": "a", "value": "v"}), true);
        check(json!({"key": "a", "operator": "Equal"}), false);
        check(json!({"value": "v", "effect": "NoExecute"}), true);
        check(json!({"value": "v", "effect": "NoSchedule"}), false);
        check(json!({"key": "a", "operator": "Other", "value": "v"}), false);
    }

    #[test]
    fn a_pod_is_evicted_once_and_when_it_is_due() {
        let mut controller = controller(&claim("x", json!([])));
        assert_eq!(take(&mut controller, &slice("s", 1, json!([]))), []);
        let tainted = slice("s", 1, json!([taint("a", "NoExecute", 100)]));
        assert_eq!(take(&mut controller, &tainted), [key()]);
        assert_eq!(take(&mut controller, &tainted), [], "nothing has changed");
        let early = controller.decide(&key(), at(90));
        assert_eq!((&*early.steps, early.requeue_after), (&[][..], Some(std::time::Duration::from_secs(10))));
        let plan = controller.decide(&key(), at(100));
        assert_eq!(told(&plan), ["Marking for deletion"]);
        let [_, Step::Merge(_, "/status", patch), Step::Delete(_, uid, _)] = &*plan.steps else { panic!("{plan:?}") };
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint", "lastTransitionTime": stamp(at(100)),
        });
        assert_eq!((&patch["status"]["conditions"], &**uid), (&json!([condition]), "p"));
        controller.finished(&key(), Some((StepKind::Other, "failed".into())));
        assert_eq!(controller.decide(&key(), at(101)).steps.len(), 3, "it is tried again");
        controller.finished(&key(), None);
        // A pod that is being deleted is left alone, also when the taint is removed.
        let mut going = pod();
        going["metadata"]["deletionTimestamp"] = stamp(at(101));
        controller.pods.insert(&going, going.clone().into());
        assert_eq!(controller.take_pod(key(), &going), [key()]);
        controller.update_target(&key());
        take(&mut controller, &slice("s", 1, json!([])));
        assert_eq!(controller.decide(&key(), at(102)), Plan::default());
    }

    #[test]
    fn an_eviction_is_cancelled_when_the_taint_is_removed_first() {
        let mut controller = controller(&claim("x", json!([])));
        take(&mut controller, &slice("s", 1, json!([taint("a", "NoExecute", 100)])));
        // The next generation of the pool has no taints.
        take(&mut controller, &slice("t", 2, json!([])));
        let plan = controller.decide(&key(), at(200));
        assert_eq!((told(&plan), plan.steps.len()), (vec!["Cancelling deletion"], 1));
        controller.finished(&key(), None);
        assert_eq!(controller.decide(&key(), at(200)), Plan::default());
    }

    #[test]
    fn only_pods_on_nodes_that_use_the_claim_are_evicted() {
        let mut controller = controller(&claim("x", json!([])));
        take(&mut controller, &slice("s", 1, json!([taint("a", "NoExecute", 100)])));
        let mut other = pod();
        other["spec"]["nodeName"] = Value::Null;
        assert_eq!(controller.due(&key(), &other), None);
        other = pod();
        other["metadata"]["uid"] = "q".into();
        assert_eq!(controller.due(&key(), &other), None, "the claim isn't reserved for it");
        other = pod();
        other["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        other["status"]["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
        assert_eq!(controller.due(&key(), &other), None, "the claim isn't its own");
        assert_eq!(controller.due(&key(), &pod()), Some(at(100)));
    }
}
