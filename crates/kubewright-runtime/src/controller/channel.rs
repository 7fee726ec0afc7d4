//! Sources that are not watches: channels, timers and other tasks that enqueue keys.

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::core::Selector;
use tokio::sync::mpsc;

use crate::{
    cache::Reader,
    object::{AnyObject, ObjectKey},
    queue::{LOW_PRIORITY, NORMAL_PRIORITY, SharedQueue, When},
    shard::Share,
    trace::{Tracer, Trigger},
};

/// Enqueues keys of one controller, which reconciles `K`, from outside of its watches; see
/// [`Controller::watches_raw_source`](super::Controller::watches_raw_source). Cheap to clone.
///
/// It never waits, and its memory is bounded: a key that is enqueued several times waits once.
pub struct Waker<K> {
    queue: Arc<SharedQueue>,
    /// Absent if traces are off.
    tracer: Option<Arc<Tracer>>,
    /// The name of the source in traces.
    name: Option<Arc<str>>,
    controller: Arc<str>,
    share: Share,
    objects: Reader<K>,
}

impl<K> Clone for Waker<K> {
    fn clone(&self) -> Self {
        let Self { queue, tracer, name, controller, share, objects } = self;
        Self {
            queue: queue.clone(),
            tracer: tracer.clone(),
            name: name.clone(),
            controller: controller.clone(),
            share: share.clone(),
            objects: objects.clone(),
        }
    }
}

impl<K> fmt::Debug for Waker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl<K: AnyObject> Waker<K> {
    pub(super) fn new(
        queue: Arc<SharedQueue>,
        tracer: Option<Arc<Tracer>>,
        controller: &str,
        share: Share,
        objects: Reader<K>,
    ) -> Self {
        Self { queue, tracer, name: None, controller: controller.into(), share, objects }
    }

    /// Returns a waker with this name as the source in traces, as in `because the channel orders named it`.
    pub fn named(&self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self.clone() }
    }

    /// Reconciles a key now, as if its object had changed.
    pub fn wake(&self, key: ObjectKey) {
        self.wake_with(key, NORMAL_PRIORITY);
    }

    /// Reconciles a key now, with a priority: higher ones come first, and [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY)
    /// is behind all keys whose objects have changed.
    ///
    /// Where replicas [divide the keys](crate::shard), the owner of the key reconciles it, with the normal priority.
    pub fn wake_with(&self, key: ObjectKey, priority: i32) {
        self.share.forward_wakeup(&self.controller, &key);
        self.enqueue(key, priority);
    }

    /// Reconciles all objects, for example because settings have changed (kube: `reconcile_all_on`). They come behind
    /// the keys whose own objects have changed. Where replicas [divide the keys](crate::shard), each wakes its own, so
    /// all of them have to call this.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::controller::Controller;
    /// # fn example(controller: Controller<Pod>, mut settings: tokio::sync::watch::Receiver<String>) -> Controller<Pod> {
    /// controller.watches_raw_source(|waker| async move {
    ///     while settings.changed().await.is_ok() {
    ///         waker.wake_all();
    ///     }
    /// })
    /// # }
    /// ```
    pub fn wake_all(&self) {
        for key in self.objects.keys(None, &Selector::default()) {
            self.enqueue(key, LOW_PRIORITY);
        }
    }

    /// [`Waker::wake_all`] for the objects in the cache that pass. It decodes all of them, so call it for rare events;
    /// an [index](super::Controller::index) finds few objects among many.
    pub fn wake_all_when(&self, passes: impl Fn(&K) -> bool) {
        for object in self.objects.list(None, &Selector::default()) {
            if passes(&object) {
                self.enqueue(ObjectKey::of(object.as_ref()), LOW_PRIORITY);
            }
        }
    }

    /// Enqueues a key in this replica.
    pub(super) fn enqueue(&self, key: ObjectKey, priority: i32) {
        self.queue.add_noting(key, priority, When::Now, |key, now| {
            if let Some(tracer) = &self.tracer {
                tracer.wanted(key, Trigger::channel(self.name.as_deref()), now.wall);
            }
        });
    }

    /// Reconciles a key after this delay, unless it runs earlier. Where replicas divide the keys, this has an effect
    /// only if this replica owns the key by then.
    pub fn wake_after(&self, key: ObjectKey, delay: Duration) {
        self.queue.add(key, NORMAL_PRIORITY, When::After(delay));
    }
}

/// A task that enqueues keys while the controller runs.
pub(super) type RunSource<K> = Box<dyn FnOnce(Waker<K>) -> BoxFuture<'static, ()> + Send>;

/// Returns a source that runs an `async` closure.
pub(super) fn source<K, F>(run: impl FnOnce(Waker<K>) -> F + Send + 'static) -> RunSource<K>
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::new(move |waker| run(waker).boxed())
}

/// Returns a source that enqueues the keys from a channel.
pub(super) fn channel<K: AnyObject>(mut keys: mpsc::Receiver<ObjectKey>) -> RunSource<K> {
    source(|waker: Waker<K>| async move {
        while let Some(key) = keys.recv().await {
            waker.wake(key);
        }
    })
}
