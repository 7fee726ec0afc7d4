//! Sources that are not watches: channels, timers, whatever knows which keys to wake.

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::mpsc;

use crate::{
    object::ObjectKey,
    queue::{NORMAL_PRIORITY, SharedQueue, When},
    shard::Share,
    trace::{Tracer, Trigger},
};

/// Wakes keys of one controller from outside its watches; see [`Controller::watches_raw_source`](super::Controller::watches_raw_source). Cheap to clone.
///
/// It never waits, and never grows: a key that is wanted already is wanted once.
#[derive(Clone)]
pub struct Waker {
    queue: Arc<SharedQueue>,
    /// Unless traces are off.
    tracer: Option<Arc<Tracer>>,
    /// What wakes, for the traces.
    name: Option<Arc<str>>,
    controller: Arc<str>,
    share: Share,
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl Waker {
    pub(super) fn new(queue: Arc<SharedQueue>, tracer: Option<Arc<Tracer>>, controller: &str, share: Share) -> Self {
        Self { queue, tracer, name: None, controller: controller.into(), share }
    }

    /// The same, by a name that the traces tell as the reason: `because the channel orders named it`.
    pub fn named(&self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self.clone() }
    }

    /// Wants a key now, as if its object had changed.
    pub fn wake(&self, key: ObjectKey) {
        self.wake_with(key, NORMAL_PRIORITY);
    }

    /// Wants a key now, with a priority: higher ones go first, and [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY) is behind
    /// everything that has just changed.
    ///
    /// Where replicas [divide the keys](crate::shard), the one that owns this key is told, and wants it with the normal priority.
    pub fn wake_with(&self, key: ObjectKey, priority: i32) {
        self.share.call(&self.controller, &key);
        self.want(key, priority);
    }

    /// Wants a key here.
    pub(super) fn want(&self, key: ObjectKey, priority: i32) {
        self.queue.add_noting(key, priority, When::Now, |key, now| {
            if let Some(tracer) = &self.tracer {
                tracer.wanted(key, Trigger::channel(self.name.as_deref()), now.wall);
            }
        });
    }

    /// Wants a key after this long, unless it runs earlier. Where replicas divide the keys nobody else is told: it counts if the key
    /// is this replica's by then.
    pub fn wake_after(&self, key: ObjectKey, delay: Duration) {
        self.queue.add(key, NORMAL_PRIORITY, When::After(delay));
    }
}

/// What wakes keys for as long as the controller works.
pub(super) type RunSource = Box<dyn FnOnce(Waker) -> BoxFuture<'static, ()> + Send>;

/// A source from an `async` closure.
pub(super) fn source<F>(run: impl FnOnce(Waker) -> F + Send + 'static) -> RunSource
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::new(move |waker| run(waker).boxed())
}

/// A source from a channel of keys.
pub(super) fn channel(mut keys: mpsc::Receiver<ObjectKey>) -> RunSource {
    source(|waker| async move {
        while let Some(key) = keys.recv().await {
            waker.wake(key);
        }
    })
}
