//! The interface between the conformance tests and an operator.

use kubewright_cluster::faults::Verb;
use serde_json::Value;

use crate::{Object, TestEnv};

/// An operator's resource for the conformance tests. The tests have at most ten objects at a time, and observe the one
/// with the name [`NAME`](Self::NAME).
///
/// A resource has these phases: seen (its status is written, though it may not be due), settled (its children exist,
/// and its status shows that), finished (everything else that can happen to it has happened).
pub trait Subject: 'static {
    /// The kind of the resource.
    type Resource: Object;
    /// The kind of its main children.
    type Child: Object;

    /// The name of the observed object.
    const NAME: &'static str;
    /// The verbs that create a child.
    const CREATE_VERBS: &'static [Verb] = &[Verb::Create];
    /// The number of children created until it is settled.
    const CHILDREN: usize;
    /// The number of children created until it is finished.
    const CHILDREN_AT_END: usize = Self::CHILDREN;
    /// The number of events recorded until it is finished, none of them a Warning.
    const EVENTS: usize;
    /// The minimum number of writes until it is finished, without events.
    const WRITES: usize;
    /// The number of watch events of its children until it is settled.
    const CHILD_EVENTS: usize;
    /// The reason of the condition `Ready`, and of the Warning event, when the API server refuses a child.
    const REFUSED: &'static str;
    /// Whether the operator records its progress in the resource's metadata, with a finalizer on the child until it
    /// has.
    const HAS_RECORD: bool = false;
    /// Whether no child is created twice even if two operators believe to be the leader.
    const AT_MOST_ONCE: bool;

    /// Creates an environment with the operator's kinds.
    fn env() -> impl Future<Output = TestEnv>;

    /// Returns the sample object. Its children exist within two minutes.
    fn sample() -> Self::Resource;

    /// Returns the object that replaces the sample after the sample was settled and deleted.
    fn replacement() -> Self::Resource {
        Self::sample()
    }

    /// Returns the part of the status that must be the same in the same state: all but transition times.
    fn stable_status(resource: &Self::Resource) -> Value {
        let mut status = serde_json::to_value(resource).unwrap_or_default()["status"].take();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
        }
        status
    }

    /// Waits until the operator has written the sample's status, whether it is due or not.
    fn seen(env: &TestEnv) -> impl Future<Output = ()> {
        Self::settled(env)
    }

    /// Waits until the sample, or its replacement, is settled.
    fn settled(env: &TestEnv) -> impl Future<Output = ()>;

    /// Makes everything else happen to the settled sample, and waits until its status shows that.
    fn finish(env: &TestEnv) -> impl Future<Output = ()>;

    /// Deletes a child of the settled sample, waits for the operator's reaction, and returns the number of children
    /// that were created again.
    fn delete_child(env: &TestEnv) -> impl Future<Output = usize>;
}

/// A [`Subject`] whose spec can be invalid although the API server accepts it.
pub trait Invalid: Subject {
    /// The reason of the condition `Ready`.
    const REASON: &'static str;

    /// Returns an invalid sample.
    fn invalid() -> Self::Resource;

    /// Returns the patch that makes the sample valid.
    fn valid_patch() -> Value;
}
