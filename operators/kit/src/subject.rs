//! What the rows that hold for every operator have to be told of one.

use kubewright_cluster::faults::Verb;
use serde_json::Value;

use crate::{Object, World};

/// An operator's resource and what becomes of it. The rows have at most ten of them at a time, and follow one, called
/// [`NAME`](Self::NAME).
///
/// Its life: it is seen (told, though perhaps its time hasn't come), then settled (its children are there and it is told so),
/// then finished (whatever else can happen to it has happened).
pub trait Subject: 'static {
    /// The kind of the resource.
    type Resource: Object;
    /// The kind of the children that matter most.
    type Child: Object;

    /// What the one that is followed is called.
    const NAME: &'static str;
    /// How a child is made.
    const MAKES: &'static [Verb] = &[Verb::Create];
    /// How many children are made until it is settled.
    const MADE: usize;
    /// How many children are made until it is finished.
    const MADE_AT_END: usize = Self::MADE;
    /// How many events are recorded about it until it is finished, none of them a Warning.
    const EVENTS: usize;
    /// How many writes there are at least until it is finished, without events.
    const WRITES: usize;
    /// How many events a watch of the children tells until it is settled.
    const WATCHED: usize;
    /// The reason of the condition `Ready` when the API server refuses a child, which is also that of a Warning event.
    const REFUSED: &'static str;
    /// Whether the operator records what it did on the resource's own metadata, and a child has a finalizer until then.
    const RECORDS: bool = false;
    /// Whether no child is made twice even when two operators believe that they lead.
    const ONCE: bool;

    /// A fresh world that knows the operator.
    fn world() -> impl Future<Output = World>;

    /// The sample. Its children are there within two minutes.
    fn sample() -> Self::Resource;

    /// What replaces the sample once that was settled and deleted: as the sample, where that has children again.
    fn again() -> Self::Resource {
        Self::sample()
    }

    /// What the status tells that must be the same when it is made anew: all but when conditions changed.
    fn told(resource: &Self::Resource) -> Value {
        let mut status = serde_json::to_value(resource).unwrap_or_default()["status"].take();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
        }
        status
    }

    /// A status that is wrong, to be merged into one.
    fn lie() -> Value;

    /// Waits until the operator has told what it makes of a sample, its time come or not.
    fn seen(world: &World) -> impl Future<Output = ()> {
        Self::settled(world)
    }

    /// Waits until the sample, or what replaces it, is settled.
    fn settled(world: &World) -> impl Future<Output = ()>;

    /// Does what else can happen to the settled sample, and waits until that is told.
    fn finish(world: &World) -> impl Future<Output = ()>;

    /// Deletes a child of the settled sample, and waits until the operator has answered; gives the number of children
    /// made anew.
    fn disturb(world: &World) -> impl Future<Output = usize>;
}

/// A [`Subject`] whose spec can be invalid though the API server takes it.
pub trait Invalid: Subject {
    /// The reason of the condition `Ready`.
    const REASON: &'static str;

    /// A sample that is invalid.
    fn invalid() -> Self::Resource;

    /// The patch that makes it valid.
    fn mend() -> Value;
}
