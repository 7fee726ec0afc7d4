//! Scenarios for any operator that creates children: what its objects, whatever they are, have in common.
//!
//! A [`Subject`] describes a kind and its sample, and [`conformance_tests!`](crate::conformance_tests!) makes a test of
//! each function of this module:
//!
//! ```
//! # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use kubewright_runtime::manager::Manager;
//! use kubewright_simulation::{World, conformance::Subject};
//!
//! # type Queue = ConfigMap;
//! struct Three;
//!
//! impl Subject for Three {
//!     type Child = Pod;
//!     type Resource = Queue;
//!
//!     const CHILDREN: usize = 3;
//!     const NAME: &'static str = "mail";
//!     const REFUSED: &'static str = "PodRefused";
//!
//!     fn register(manager: Manager) -> Manager {
//!         manager // .controller(…)
//!     }
//!
//!     fn sample() -> Queue {
//!         serde_json::from_str(r#"{"metadata": {"name": "mail"}}"#).unwrap()
//!     }
//!
//!     fn is_settled(world: &World) -> bool {
//!         world.list::<Pod>().len() == 3
//!     }
//! }
//!
//! kubewright_simulation::conformance_tests!(Three);
//! ```
//!
//! A scenario that is searched tries faults for three seconds, unless the settings say otherwise. Crashes, lost
//! answers, conflicts, interrupted watches and the like are tried in each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicyBinding, events::v1::Event};
use kube::{Resource, ResourceExt, api::DeleteParams};
use kubewright_runtime::{manager::Manager, object::Object};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{Scenario, Sim, Span, World};

/// The real time in which a test searches, unless the settings say otherwise.
const TIME: Duration = Duration::from_secs(3);
/// The name of a policy that refuses requests.
const POLICY: &str = "refuse";
/// The message of the policy.
const MESSAGE: &str = "exceeded quota: small";
/// The name of a second object.
const OTHER: &str = "other";
/// A finalizer of another client.
const HOLD: &str = "example.com/hold";

/// An operator's resource, and the sample that the scenarios create. It is settled when its children exist and its
/// status shows that.
pub trait Subject: 'static {
    /// The kind of the resource.
    type Resource: Object;
    /// The kind of its main children.
    type Child: Object;

    /// The name of the sample.
    const NAME: &'static str;
    /// The number of children of the settled sample.
    const CHILDREN: usize;
    /// The reason of the condition `Ready` if the API server refuses a child.
    const REFUSED: &'static str;
    /// A manifest of what the sample needs, which the user applies first. Defaults to nothing.
    const PREREQUISITES: &'static str = "";
    /// Whether no more children than [`CHILDREN`](Self::CHILDREN) are ever created for the sample, also if two
    /// processes work at the same time. Defaults to false.
    const AT_MOST_ONCE: bool = false;

    /// Adds the operator to a manager.
    fn register(manager: Manager) -> Manager;

    /// Returns the sample.
    fn sample() -> Self::Resource;

    /// Returns the object that replaces the sample after it was deleted. Defaults to the sample.
    fn replacement() -> Self::Resource {
        Self::sample()
    }

    /// Returns whether the sample has been noticed: its status is written, though it may not be due. Defaults to
    /// [`is_settled`](Self::is_settled).
    fn is_seen(world: &World) -> bool {
        Self::is_settled(world)
    }

    /// Returns whether the sample, or its replacement, is settled.
    fn is_settled(world: &World) -> bool;
}

/// A [`Subject`] whose spec can be invalid although the API server accepts it.
pub trait Invalid: Subject {
    /// The reason of the condition `Ready`.
    const REASON: &'static str;

    /// Returns an invalid sample.
    fn invalid() -> Self::Resource;

    /// Returns the patch that makes it valid.
    fn valid_patch() -> Value;
}

/// Declares a test for each scenario of [`conformance`](crate::conformance) for a
/// [`Subject`](crate::conformance::Subject), in a module of the scenario's name. With `invalid`, the scenario of an
/// invalid spec is included, which requires [`Invalid`](crate::conformance::Invalid).
#[macro_export]
macro_rules! conformance_tests {
    ($subject:ty, invalid) => {
        $crate::conformance_tests!($subject);
        $crate::conformance_tests!($subject; invalid);
    };
    ($subject:ty) => {
        $crate::conformance_tests!($subject; steady refused held recreated foreground);
    };
    ($subject:ty; $($case:ident)+) => {$(
        #[cfg(test)]
        mod $case {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn simulation() {
                $crate::conformance::$case::<$subject>().test();
            }
        }
    )+};
}

/// The sample is settled at the end, whatever has happened, also with two processes at the same time. If children are
/// created [at most once](Subject::AT_MOST_ONCE), they are.
pub fn steady<S: Subject>() -> Scenario {
    let user = async |sim: &Sim| {
        if S::AT_MOST_ONCE {
            let created: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::default();
            sim.always("no child is created twice", move |world| {
                let mut created = created.lock();
                let owners: BTreeSet<_> = world.list::<S::Resource>().iter().filter_map(ResourceExt::uid).collect();
                for child in children::<S>(world) {
                    // If an object is deleted while a process applies its child, the child is collected, and nobody
                    // creates another for it.
                    for owner in child.owner_references().iter().filter(|owner| owners.contains(&owner.uid)) {
                        created.entry(owner.uid.clone()).or_default().extend(child.uid());
                    }
                }
                created.values().all(|children| children.len() <= S::CHILDREN)
            });
        }
        prepare::<S>(sim).await;
        sim.create(&S::sample()).await;
        sim.until("it is settled", S::is_settled).await;
        sim.finally("it is settled", S::is_settled);
    };
    Scenario::new("steady", S::register, user).unconditional().time(TIME)
}

/// The API server refuses the children: that is reported with its message, for each object and by one event, and tried
/// again without haste until they are accepted.
pub fn refused<S: Subject>() -> Scenario {
    let user = async |sim: &Sim| {
        prepare::<S>(sim).await;
        sim.apply(&policy::<S::Child>("CREATE", "false")).await;
        sim.create(&S::sample()).await;
        sim.create(&named(S::sample(), OTHER)).await;
        for name in [S::NAME, OTHER] {
            sim.until(&format!("{name} is reported to be refused"), |world| {
                let ready = ready::<S>(world, name);
                ready["reason"] == S::REFUSED && text(&ready["message"]).contains(MESSAGE)
            })
            .await;
        }
        sim.advance(1.hours()).await;
        let is_one = |world: &World| warnings(world, S::NAME, S::REFUSED) <= 1;
        sim.finally("the refusal is one event", is_one);
        sim.delete::<ValidatingAdmissionPolicyBinding>(POLICY).await;
        sim.until("its children are there", S::is_settled).await;
    };
    Scenario::new("refused", S::register, user).time(TIME)
}

/// An invalid spec is reported, until an edit makes it valid.
pub fn invalid<S: Invalid>() -> Scenario {
    let user = async |sim: &Sim| {
        prepare::<S>(sim).await;
        sim.create(&S::invalid()).await;
        sim.until("it is reported", |world| {
            let ready = ready::<S>(world, S::NAME);
            ready["reason"] == S::REASON && ready["observedGeneration"] == 1
        })
        .await;
        sim.advance(1.hours()).await;
        sim.edit::<S::Resource>(S::NAME, S::valid_patch()).await;
        sim.until("it is settled", S::is_settled).await;
    };
    Scenario::new("invalid", S::register, user).time(TIME)
}

/// No child is created for an object that is being deleted, when it is due or its children disappear. Without faults,
/// since a process that is paused can't know.
pub fn held<S: Subject>() -> Scenario {
    let user = async |sim: &Sim| {
        prepare::<S>(sim).await;
        sim.create(&hold(S::sample())).await;
        sim.until("it is seen", S::is_seen).await;
        sim.delete::<S::Resource>(S::NAME).await;
        let before = sim.read(uids::<S>);
        sim.always("it gets no child while it is deleted", move |world| uids::<S>(world).is_subset(&before));
        for child in sim.read(children::<S>) {
            sim.delete::<S::Child>(&child.name_any()).await;
        }
        sim.advance(1.hours()).await;
        sim.edit::<S::Resource>(S::NAME, json!({"metadata": {"finalizers": null}})).await;
        sim.finally("it is gone", |world| world.get::<S::Resource>(S::NAME).is_none());
    };
    Scenario::new("held", S::register, user).without_faults()
}

/// While a finalizer holds the children of a former object, its successor neither changes nor counts them. Without
/// faults, since a conflict in its place changes them, too.
pub fn recreated<S: Subject>() -> Scenario {
    let user = async |sim: &Sim| {
        prepare::<S>(sim).await;
        sim.create(&S::sample()).await;
        sim.until("it is settled", S::is_settled).await;
        let former: Vec<_> = sim.read(children::<S>).iter().map(ResourceExt::name_any).collect();
        for name in &former {
            sim.edit::<S::Child>(name, json!({"metadata": {"finalizers": [HOLD]}})).await;
        }
        sim.delete::<S::Resource>(S::NAME).await;
        sim.until("its children are being deleted", |world| {
            children::<S>(world).iter().all(|child| child.meta().deletion_timestamp.is_some())
        })
        .await;
        let before = sim.read(|world| without_status::<S>(world, &former));
        let names = former.clone();
        let are_unchanged = move |world: &World| without_status::<S>(world, &names) == before;
        sim.create(&S::replacement()).await;
        sim.advance(5.minutes()).await;
        sim.until("the former children are as they were", are_unchanged).await;
        for name in &former {
            sim.edit::<S::Child>(name, json!({"metadata": {"finalizers": null}})).await;
        }
        let is_settled = |world: &World| {
            let (owner, children) = (world.get::<S::Resource>(S::NAME), children::<S>(world));
            let own = owner.map_or(0, |owner| world.children::<S::Child>(&owner).len());
            S::is_settled(world) && own == S::CHILDREN && children.len() == S::CHILDREN
        };
        sim.until("it has its own children", is_settled).await;
    };
    Scenario::new("recreated", S::register, user).without_faults()
}

/// With a deletion in the foreground, the children go first, also if the operator could never change the object.
pub fn foreground<S: Subject>() -> Scenario {
    let user = async |sim: &Sim| {
        prepare::<S>(sim).await;
        sim.apply(&policy::<S::Resource>("UPDATE", "has(object.metadata.deletionTimestamp)")).await;
        sim.create(&S::sample()).await;
        sim.until("it has a child", |world| !children::<S>(world).is_empty()).await;
        sim.delete_with::<S::Resource>(S::NAME, &DeleteParams::foreground()).await;
        sim.until("it is gone with its children", |world| {
            world.get::<S::Resource>(S::NAME).is_none() && children::<S>(world).is_empty()
        })
        .await;
    };
    Scenario::new("foreground", S::register, user).time(TIME)
}

/// Applies what the sample needs.
async fn prepare<S: Subject>(sim: &Sim) {
    if !S::PREREQUISITES.is_empty() {
        sim.apply(S::PREREQUISITES).await;
    }
}

/// Returns a policy that refuses an operation on a kind unless an expression is true, with its binding.
fn policy<K: Object>(operation: &str, expression: &str) -> String {
    let rule = json!({
        "apiGroups": [K::group(&())], "apiVersions": [K::version(&())], "resources": [K::plural(&())],
        "operations": [operation],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": MESSAGE}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    });
    format!("{policy}\n---\n{binding}\n")
}

fn named<K: Object>(mut object: K, name: &str) -> K {
    object.meta_mut().name = Some(name.into());
    object
}

fn hold<K: Object>(mut object: K) -> K {
    object.meta_mut().finalizers = Some(vec![HOLD.into()]);
    object
}

/// Returns the children of all objects of the resource's kind, also of those that are gone.
fn children<S: Subject>(world: &World) -> Vec<S::Child> {
    let mut children = world.list::<S::Child>();
    children.retain(|child| child.owner_references().iter().any(|owner| owner.kind == S::Resource::kind(&())));
    children
}

/// Returns the UIDs of the children.
fn uids<S: Subject>(world: &World) -> BTreeSet<String> {
    children::<S>(world).iter().filter_map(ResourceExt::uid).collect()
}

/// Returns the children of these names without their status, and what changes with it.
fn without_status<S: Subject>(world: &World, names: &[String]) -> Vec<Value> {
    let children = names.iter().filter_map(|name| world.value::<S::Child>(name));
    let stripped = children.map(|child| {
        let mut child = Value::clone(child);
        for (parent, field) in [("", "status"), ("metadata", "resourceVersion"), ("metadata", "managedFields")] {
            let parent = if parent.is_empty() { Some(&mut child) } else { child.get_mut(parent) };
            parent.and_then(Value::as_object_mut).and_then(|fields| fields.remove(field));
        }
        child
    });
    stripped.collect()
}

/// Returns the condition `Ready` of an object.
fn ready<S: Subject>(world: &World, name: &str) -> Value {
    let conditions = world.value::<S::Resource>(name).map_or(&Value::Null, |object| &object["status"]["conditions"]);
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the number of warnings about an object with a reason.
fn warnings(world: &World, name: &str, reason: &str) -> usize {
    let is_it = |event: &&Event| {
        let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
        event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some(reason) && about == Some(name)
    };
    world.list::<Event>().iter().filter(is_it).count()
}
