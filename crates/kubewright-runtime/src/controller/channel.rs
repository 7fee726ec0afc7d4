//! Sources that are not watches: channels, timers and other tasks that enqueue keys.

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::mpsc;

use crate::{
    object::ObjectKey,
    queue::{NORMAL_PRIORITY, SharedQueue, When},
    shard::Share,
    trace::{Tracer, Trigger},
};

/// Enqueues keys of one controller from outside of its watches; see [`Controller::watches_raw_source`](super::Controller::watches_raw_source). Cheap to clone.
///
/// It never waits, and its memory is bounded: a key that is enqueued several times waits once.
#[derive(Clone)]
pub struct Waker {
    queue: Arc<SharedQueue>,
    /// Absent if traces are off.
    tracer: Option<Arc<Tracer>>,
    /// The name of the source in traces.
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

    /// Returns a waker with this name as the source in traces, as in `because the channel orders named it`.
    pub fn named(&self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self.clone() }
    }

    /// Reconciles a key now, as if its object had changed.
    pub fn wake(&self, key: ObjectKey) {
        self.wake_with(key, NORMAL_PRIORITY);
    }

    /// Reconciles a key now, with a priority: higher ones come first, and [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY) is behind all
    /// keys whose objects have changed.
    ///
    /// Where replicas [divide the keys](crate::shard), the owner of the key reconciles it, with the normal priority.
    pub fn wake_with(&self, key: ObjectKey, priority: i32) {
        self.share.forward_wakeup(&self.controller, &key);
        self.enqueue(key, priority);
    }

    /// Enqueues a key in this replica.
    pub(super) fn enqueue(&self, key: ObjectKey, priority: i32) {
        self.queue.add_noting(key, priority, When::Now, |key, now| {
            if let Some(tracer) = &self.tracer {
                tracer.wanted(key, Trigger::channel(self.name.as_deref()), now.wall);
            }
        });
    }

    /// Reconciles a key after this delay, unless it runs earlier. Where replicas divide the keys, this has an effect only if this
    /// replica owns the key by then.
    pub fn wake_after(&self, key: ObjectKey, delay: Duration) {
        self.queue.add(key, NORMAL_PRIORITY, When::After(delay));
    }
}

/// A task that enqueues keys while the controller runs.
pub(super) type RunSource = Box<dyn FnOnce(Waker) -> BoxFuture<'static, ()> + Send>;

/// Returns a source that runs an `async` closure.
pub(super) fn source<F>(run: impl FnOnce(Waker) -> F + Send + 'static) -> RunSource
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::new(move |waker| run(waker).boxed())
}

/// Returns a source that enqueues the keys from a channel.
pub(super) fn channel(mut keys: mpsc::Receiver<ObjectKey>) -> RunSource {
    source(|waker| async move {
        while let Some(key) = keys.recv().await {
            waker.wake(key);
        }
    })
}
