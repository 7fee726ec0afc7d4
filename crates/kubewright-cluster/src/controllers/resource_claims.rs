//! The claims of devices: those that are made from templates for pods, and the reservations of pods that are gone
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).
//!
//! Devices are allocated by whoever schedules the pods. Claims that have some are reserved for pods that nobody
//! schedules.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    objects::Objects,
    pod::{has_ended, is_active},
    reconcile::{Controller, Key, Plan, Step, regarding},
    value::{controller_of, is_deleting, list, text},
};

/// Claims of devices.
pub(super) const CLAIM: Kind = Kind { group: "resource.k8s.io", kind: "ResourceClaim", plural: "resourceclaims" };
/// The devices that drivers offer, which have no namespace.
pub(super) const SLICE: Kind = Kind { group: "resource.k8s.io", kind: "ResourceSlice", plural: "resourceslices" };
const TEMPLATE: Kind =
    Kind { group: "resource.k8s.io", kind: "ResourceClaimTemplate", plural: "resourceclaimtemplates" };
/// The greatest number of pods that a claim is reserved for.
pub(super) const MAX_USERS: usize = 256;
/// The annotation of a claim with the name that its pod has for it.
const NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of a claim with allocated devices.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The field manager of the names of claims in the status of pods.
const MANAGER: &str = "ResourceClaimController";

/// The controller of claims. The key of a pod begins with a slash, which no name contains, so that it differs from that
/// of a claim.
#[derive(Debug)]
pub(crate) struct ResourceClaims {
    pods: Objects,
    /// The pods that have claims.
    users: BTreeSet<Key>,
    claims: BTreeMap<Key, Arc<Value>>,
    templates: BTreeMap<Key, Arc<Value>>,
}

impl ResourceClaims {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        Self { pods, users: BTreeSet::new(), claims: BTreeMap::new(), templates: BTreeMap::new() }
    }

    fn claims_in(&self, namespace: &str) -> impl Iterator<Item = (&Key, &Value)> {
        let claims = self.claims.range(Key::first_of(namespace)..);
        claims.take_while(move |(key, _)| key.namespace == namespace).map(|(key, claim)| (key, &**claim))
    }

    fn take_pod(&mut self, key: Key, pod: &Value, gone: bool) -> Vec<Key> {
        if list(pod, "/spec/resourceClaims").is_empty() {
            return Vec::new();
        }
        let uid = text(pod, "/metadata/uid");
        let concerns = |claim: &Value| is_of_pod(claim, uid) || reservations(claim).any(|one| one["uid"] == uid);
        let mut keys: Vec<_> = self
            .claims_in(&key.namespace)
            .filter(|(_, claim)| concerns(claim))
            .map(|(claim, _)| claim.clone())
            .collect();
        if gone {
            self.users.remove(&key);
        } else {
            self.users.insert(key.clone());
            keys.push(pod_key(&key));
        }
        keys
    }

    /// Returns the pods of a namespace that have claims.
    fn users_in(&self, namespace: &str) -> impl Iterator<Item = Key> {
        let users = self.users.range(Key::first_of(namespace)..);
        users.take_while(move |key| key.namespace == namespace).map(pod_key)
    }

    /// Returns whether a pod doesn't need its claims any more. One that isn't there doesn't, either.
    fn is_done(&self, namespace: &str, name: &str, uid: &str) -> bool {
        let pod = self.pods.get(&Key { namespace: namespace.into(), name: name.into() });
        pod.filter(|pod| text(pod, "/metadata/uid") == uid)
            .is_none_or(|pod| has_ended(&pod) || is_deleting(&pod) && text(&pod, "/spec/nodeName").is_empty())
    }

    /// Creates the claims of a pod that are missing, and notes their names.
    fn create(&self, key: &Key, pod: &Value) -> Plan {
        let mut plan = Plan::of(&Kind::POD, pod);
        if !is_active(pod) {
            return plan;
        }
        let uid = text(pod, "/metadata/uid");
        let mut names = Vec::new();
        let templated =
            list(pod, "/spec/resourceClaims").iter().filter(|one| one["resourceClaimTemplateName"].is_string());
        for wanted in templated {
            let name = text(wanted, "/name");
            let is_wanted = |claim: &Value| is_of_pod(claim, uid) && claim["metadata"]["annotations"][NAME] == name;
            if let Some((found, _)) = self.claims_in(&key.namespace).find(|(_, claim)| is_wanted(claim)) {
                names.push(json!({"name": name, "resourceClaimName": found.name}));
                continue;
            }
            let template = text(wanted, "/resourceClaimTemplateName");
            match self.templates.get(&Key { name: template.into(), ..key.clone() }) {
                Some(template) => plan.steps.push(new_claim(pod, name, template)),
                None => {
                    let message = format!(
                        "PodResourceClaim {name}: resource claim template \"{template}\": \
                         resourceclaimtemplate.resource.k8s.io \"{template}\" not found"
                    );
                    plan.event(true, "FailedResourceClaimCreation", message);
                }
            }
        }
        let noted = list(pod, "/status/resourceClaimStatuses");
        if !names.is_empty() && names.iter().any(|name| !noted.contains(name)) {
            let config = json!({
                "apiVersion": "v1", "kind": Kind::POD.kind,
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
                "status": {"resourceClaimStatuses": names},
            });
            plan.steps.push(Step::Apply(Kind::POD.address(&key.namespace, &key.name), "/status", MANAGER, config));
        }
        // The scheduler reserves the claims of the pods that it binds.
        if !text(pod, "/spec/nodeName").is_empty() {
            plan.steps.extend(self.reserve(key, pod));
        }
        plan
    }

    /// Returns the steps that reserve the claims with devices for a pod that has a node.
    fn reserve(&self, key: &Key, pod: &Value) -> Vec<Step> {
        let uid = text(pod, "/metadata/uid");
        let claim = |wanted: &Value| {
            let claim = self.claims.get(&Key { name: name_of(pod, wanted)?.into(), ..key.clone() })?;
            (wanted["resourceClaimName"].is_string() || is_of_pod(claim, uid)).then_some(claim)
        };
        let is_open = |claim: &&Arc<Value>| {
            is_allocated(claim) && !is_reserved(claim, uid) && reservations(claim).count() < MAX_USERS
        };
        let claims = list(pod, "/spec/resourceClaims").iter().filter_map(claim).filter(is_open);
        claims
            .filter_map(|claim| {
                let mut status = claim["status"].clone();
                let mut users: Vec<_> = reservations(claim).cloned().collect();
                users.push(user(&key.name, uid));
                status["reservedFor"] = users.into();
                Step::shared_status(&CLAIM, claim, status)
            })
            .collect()
    }

    /// Removes the reservations of a claim that have no pod any more, and what depends on them.
    fn release(&self, key: &Key, claim: &Value) -> Plan {
        let mut plan = Plan { regarding: regarding(&CLAIM, claim), ..Plan::default() };
        let needed = |one: &&Value| {
            let is_pod = text(one, "/resource") == Kind::POD.plural && text(one, "/apiGroup").is_empty();
            !is_pod || !self.is_done(&key.namespace, text(one, "/name"), text(one, "/uid"))
        };
        let kept: Vec<_> = reservations(claim).filter(needed).cloned().collect();
        let freed = kept.len() < reservations(claim).count();
        let finalizers = list(&claim["metadata"], "/finalizers");
        let is_protected = finalizers.iter().any(|name| name == FINALIZER);
        // Devices that were allocated with this finalizer are free when nothing has reserved them any more.
        let ends = is_protected && kept.is_empty() && (freed || is_deleting(claim));
        let mut status = claim["status"].clone();
        if let Some(status) = status.as_object_mut().filter(|_| freed || ends) {
            status.insert("reservedFor".into(), kept.clone().into());
            status.retain(|field, _| (field != "reservedFor" || !kept.is_empty()) && (field != "allocation" || !ends));
        }
        plan.steps.extend(Step::shared_status(&CLAIM, claim, status));
        if ends {
            let others: Vec<_> = finalizers.iter().filter(|name| *name != FINALIZER).collect();
            let patch = json!({"metadata": {"uid": claim["metadata"]["uid"], "finalizers": others}});
            plan.steps.push(Step::Merge(CLAIM.address(&key.namespace, &key.name), "", patch));
        }
        if !plan.steps.is_empty() {
            return plan;
        }
        // The garbage collector deletes the claims of pods that are gone.
        let owner = controller_of(claim).filter(|owner| owner["kind"] == Kind::POD.kind && owner["apiVersion"] == "v1");
        let ended = owner.is_some_and(|owner| {
            let pod = Key { namespace: key.namespace.clone(), name: text(owner, "/name").into() };
            self.pods.contains(&pod) && self.is_done(&key.namespace, &pod.name, text(owner, "/uid"))
        });
        if ended && kept.is_empty() && !is_deleting(claim) {
            plan.steps.push(Step::delete(&CLAIM, claim));
        }
        plan
    }
}

/// Returns the key for decisions about a pod.
fn pod_key(pod: &Key) -> Key {
    Key { name: format!("/{}", pod.name), ..pod.clone() }
}

/// Returns those for whom a claim is reserved.
pub(super) fn reservations(claim: &Value) -> impl Iterator<Item = &Value> {
    list(claim, "/status/reservedFor").iter()
}

/// Returns the entry of a pod among those for which a claim is reserved.
pub(super) fn user(name: &str, uid: &str) -> Value {
    json!({"resource": Kind::POD.plural, "name": name, "uid": uid})
}

/// Returns whether a claim is reserved for a pod.
pub(super) fn is_reserved(claim: &Value, uid: &str) -> bool {
    reservations(claim).any(|one| one["uid"] == uid)
}

/// Returns whether a claim has devices.
pub(super) fn is_allocated(claim: &Value) -> bool {
    claim["status"]["allocation"].is_object()
}

/// Returns the name of the claim that an entry of a pod's claims means; `None` if it doesn't exist yet.
pub(super) fn name_of<'a>(pod: &'a Value, wanted: &'a Value) -> Option<&'a str> {
    wanted["resourceClaimName"].as_str().or_else(|| made(pod, wanted)?["resourceClaimName"].as_str())
}

/// Returns what the status of a pod says about a claim that is made from a template.
pub(super) fn made<'a>(pod: &'a Value, wanted: &Value) -> Option<&'a Value> {
    list(pod, "/status/resourceClaimStatuses").iter().find(|one| one["name"] == wanted["name"])
}

fn is_of_pod(claim: &Value, uid: &str) -> bool {
    controller_of(claim).is_some_and(|owner| owner["uid"] == uid)
}

/// Returns the step that creates a claim of a pod from a template.
fn new_claim(pod: &Value, name: &str, template: &Value) -> Step {
    let of = &template["spec"];
    let metadata = &pod["metadata"];
    let mut claim = json!({
        "apiVersion": CLAIM.api_version(), "kind": CLAIM.kind,
        "metadata": {
            "generateName": format!("{}-{name}-", text(metadata, "/name")),
            "annotations": of["metadata"]["annotations"].as_object().cloned().unwrap_or_default(),
            "ownerReferences": [{
                "apiVersion": "v1", "kind": Kind::POD.kind, "name": metadata["name"], "uid": metadata["uid"], "controller": true,
            }],
        },
        "spec": of["spec"],
    });
    claim["metadata"]["annotations"][NAME] = name.into();
    if let Some(labels) = of["metadata"].get("labels").filter(|labels| labels.is_object()) {
        claim["metadata"]["labels"] = labels.clone();
    }
    Step::Create(CLAIM.address(text(metadata, "/namespace"), ""), claim)
}

impl Controller for ResourceClaims {
    fn reset(&mut self) {
        *self = Self::new(self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if ![Kind::POD, CLAIM, TEMPLATE].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let Some(key) = Key::of(object) else { return Vec::new() };
        if Kind::POD.is_of(change) {
            return self.take_pod(key, object, gone);
        }
        let objects = if CLAIM.is_of(change) { &mut self.claims } else { &mut self.templates };
        if gone {
            objects.remove(&key);
        } else {
            objects.insert(key.clone(), object.clone());
        }
        let mut keys: Vec<_> = self.users_in(&key.namespace).collect();
        keys.extend(Some(key).filter(|_| CLAIM.is_of(change)));
        keys
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        if let Some(name) = key.name.strip_prefix('/') {
            let key = Key { name: name.into(), ..key.clone() };
            return self.pods.get(&key).map(|pod| self.create(&key, &pod)).unwrap_or_default();
        }
        self.claims.get(key).map(|claim| self.release(key, claim)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "default".into(), name: name.into() }
    }

    fn pod(phase: &str) -> Value {
        json!({
            "metadata": {"name": "user", "namespace": "default", "uid": "p"},
            "spec": {"nodeName": "n", "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "own", "resourceClaimName": "own"},
            ]},
            "status": {"phase": phase},
        })
    }

    fn state(pod: Option<&Value>, claims: &[Value], templates: &[Value]) -> ResourceClaims {
        let mut state = ResourceClaims::new(Objects::default());
        pod.into_iter().for_each(|pod| state.pods.insert(pod, pod.clone().into()));
        let named = |objects: &[Value]| {
            objects.iter().filter_map(|object| Some((Key::of(object)?, Arc::new(object.clone())))).collect()
        };
        (state.claims, state.templates) = (named(claims), named(templates));
        state
    }

    fn template() -> Value {
        json!({
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {"metadata": {"labels": {"l": "1"}}, "spec": {"devices": {}}},
        })
    }

    fn generated(status: Value) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "user", "uid": "p", "controller": true});
        json!({
            "metadata": {"name": "user-gpu-x", "namespace": "default", "uid": "c", "annotations": {NAME: "gpu"},
                "ownerReferences": [owner]},
            "status": status,
        })
    }

    #[test]
    fn claims_are_made_from_templates() {
        let pod = pod("Pending");
        let plan = state(Some(&pod), &[], &[template()]).decide(&key("/user"), Timestamp::UNIX_EPOCH);
        let [Step::Create(path, claim)] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!(path.to_string(), "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims");
        let metadata = &claim["metadata"];
        assert_eq!((&metadata["generateName"], &metadata["labels"]), (&json!("user-gpu-"), &json!({"l": "1"})));
        assert_eq!(metadata["annotations"], json!({NAME: "gpu"}));
        let made = [generated(json!({}))];
        let plan = state(Some(&pod), &made, &[]).decide(&key("/user"), Timestamp::UNIX_EPOCH);
        let [Step::Apply(_, "/status", MANAGER, config)] = &plan.steps[..] else { panic!("{plan:?}") };
        let names = json!([{"name": "gpu", "resourceClaimName": "user-gpu-x"}]);
        assert_eq!(config["status"]["resourceClaimStatuses"], names);
        let mut noted = pod.clone();
        noted["status"]["resourceClaimStatuses"] = names;
        assert_eq!(state(Some(&noted), &made, &[]).decide(&key("/user"), Timestamp::UNIX_EPOCH).steps, []);
    }

    #[test]
    fn a_template_that_is_missing_is_reported() {
        let plan = state(Some(&pod("Pending")), &[], &[]).decide(&key("/user"), Timestamp::UNIX_EPOCH);
        let [Step::Event { warning: true, reason: "FailedResourceClaimCreation", message }] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        assert!(message.starts_with("PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate"));
    }

    #[test]
    fn claims_with_devices_are_reserved_for_pods_that_have_a_node() {
        let own = |users: Value| {
            let status = json!({"allocation": {"devices": {}}, "reservedFor": users});
            json!({"metadata": {"name": "own", "namespace": "default", "uid": "o", "resourceVersion": "7"}, "status": status})
        };
        let mut pod = pod("Pending");
        pod["spec"]["resourceClaims"].as_array_mut().expect("a list").remove(0);
        let decided = |pod: &Value, claim: Value| {
            state(Some(pod), &[claim], &[]).decide(&key("/user"), Timestamp::UNIX_EPOCH).steps
        };
        let [other, user] =
            [("other", "x"), ("user", "p")].map(|(name, uid)| json!({"resource": "pods", "name": name, "uid": uid}));
        let steps = decided(&pod, own(json!([other])));
        let [Step::Merge(path, "/status", patch)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((&*path.name, &patch["status"]["reservedFor"]), ("own", &json!([other, user])));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(decided(&pod, own(json!([user]))), []);
        assert_eq!(decided(&pod, own(vec![other; MAX_USERS].into())), []);
        pod["spec"]["nodeName"] = Value::Null;
        assert_eq!(decided(&pod, own(json!([]))), [], "the scheduler does it");
    }

    #[test]
    fn reservations_end_with_their_pods() {
        let reserved = |uid: &str| {
            let users = json!([{"resource": "pods", "name": "user", "uid": uid}]);
            json!({"allocation": {"devices": {}}, "reservedFor": users})
        };
        let decided = |pod: Option<&Value>, claim: Value| {
            state(pod, &[claim], &[]).decide(&key("user-gpu-x"), Timestamp::UNIX_EPOCH).steps
        };
        let running = pod("Running");
        assert_eq!(decided(Some(&running), generated(reserved("p"))), []);
        for (pod, uid) in [(Some(pod("Succeeded")), "p"), (None, "p"), (Some(running.clone()), "another")] {
            let steps = decided(pod.as_ref(), generated(reserved(uid)));
            let [Step::Merge(_, "/status", patch)] = &steps[..] else { panic!("{steps:?}") };
            assert_eq!(patch["status"], json!({"allocation": {"devices": {}}, "reservedFor": null}));
        }
        let allocated = || json!({"allocation": {"devices": {}}});
        let steps = decided(Some(&pod("Failed")), generated(allocated()));
        assert!(matches!(&steps[..], [Step::Delete(..)]), "{steps:?}");
        assert_eq!(decided(Some(&running), generated(allocated())), []);
        let mut protected = generated(reserved("p"));
        protected["metadata"]["finalizers"] = json!([FINALIZER, "other"]);
        let steps = decided(None, protected.clone());
        let [Step::Merge(_, "/status", status), Step::Merge(_, "", patch)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(status["status"], json!({"allocation": null, "reservedFor": null}));
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        // Between the finalizer and the allocation, a scheduler isn't disturbed.
        protected["status"] = json!({});
        assert_eq!(decided(Some(&running), protected.clone()), []);
        protected["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
        let steps = decided(Some(&running), protected);
        assert!(matches!(&steps[..], [Step::Merge(_, "", _)]), "{steps:?}");
    }
}
