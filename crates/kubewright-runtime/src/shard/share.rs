//! The keys that this replica may reconcile, as controllers ask for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    protocol::Grant,
    view::{HashPosition, View},
    wakeups::{MAX_WAKEUPS, Wakeup},
};
use crate::object::ObjectKey;

/// Returns whether a key was acquired by this replica at some moment.
pub(crate) type Acquired = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

/// Enqueues a key that another member has forwarded.
type EnqueueKey = Box<dyn Fn(ObjectKey) + Send + Sync>;

type Listener = Box<dyn Fn(Acquired) + Send + Sync>;

/// The part of the keys that this replica reconciles: all of them, unless replicas divide the keys. Clones share the
/// state.
#[derive(Clone, Default)]
pub(crate) struct Share(Option<Arc<Shared>>);

struct Shared {
    clock: SharedClock,
    state: Mutex<State>,
    /// The functions that are called with the keys that are acquired, by controller.
    listeners: Mutex<BTreeMap<String, Listener>>,
    /// The functions that enqueue keys, by controller.
    wakers: Mutex<BTreeMap<String, EnqueueKey>>,
    /// Notified when a run ends whose key belongs to another member by now.
    drained: Notify,
}

#[derive(Default)]
struct State {
    grant: Grant,
    /// The fraction of all keys that the grant gives.
    fraction: f64,
    /// The number of current runs at each position: each controller has keys of its own.
    work: BTreeMap<HashPosition, usize>,
    /// The time until which the list of members counts as current; `None` before this replica has joined.
    informed: Option<Duration>,
    /// Wake-ups of keys of other members.
    wakeups: Vec<Wakeup>,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.0.as_ref().map(|shared| shared.state.lock().grant.clone())).finish()
    }
}

/// Keeps a key in this replica until it is dropped.
#[must_use = "another replica may acquire the key when the guard is dropped"]
pub(crate) struct KeyGuard(Option<(Arc<Shared>, HashPosition)>);

impl fmt::Debug for KeyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyGuard").field(&self.0.as_ref().map(|(_, position)| position)).finish()
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let Some((shared, position)) = self.0.take() else { return };
        let mut state = shared.state.lock();
        let State { grant, work, .. } = &mut *state;
        if let Some(count) = work.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                work.remove(&position);
                if !grant.gives(position) {
                    shared.drained.notify_one();
                }
            }
        }
    }
}

/// Calls a function with forwarded keys until it is dropped; see [`Share::on_wakeup`].
#[must_use = "no key is forwarded after the guard is dropped"]
#[derive(Debug)]
pub(crate) struct WakeupGuard {
    share: Share,
    controller: String,
}

impl Drop for WakeupGuard {
    fn drop(&mut self) {
        if let Some(shared) = &self.share.0 {
            shared.wakers.lock().remove(&self.controller);
        }
    }
}

impl Share {
    /// Returns the share of a member of a group: nothing until it is granted keys.
    pub(crate) fn of_a_group(clock: SharedClock) -> Self {
        let (state, listeners, wakers, drained) = Default::default();
        Self(Some(Arc::new(Shared { clock, state, listeners, wakers, drained })))
    }

    /// Begins a run of a key, if this replica may reconcile it.
    pub(crate) fn begin(&self, key: &ObjectKey) -> Option<KeyGuard> {
        let Some(shared) = &self.0 else { return Some(KeyGuard(None)) };
        let position = HashPosition::of(key);
        let mut state = shared.state.lock();
        // A process that was suspended must not continue after its lease has expired.
        let stands = state.grant.fence.is_some_and(|fence| shared.clock.monotonic() < fence);
        if !stands || !state.grant.gives(position) {
            return None;
        }
        *state.work.entry(position).or_default() += 1;
        Some(KeyGuard(Some((shared.clone(), position))))
    }

    /// Returns whether replicas divide the keys.
    pub(crate) fn is_of_a_group(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the readiness of this replica: it has joined the group and can list the members.
    ///
    /// # Errors
    /// The reason, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(shared) = &self.0 else { return Ok(()) };
        match shared.state.lock().informed {
            Some(until) if shared.clock.monotonic() < until => Ok(()),
            Some(_) => Err("the leases of the other replicas could not be listed for long: see the log".into()),
            None => {
                Err("this replica has not joined the others yet: if this lasts, see the log, and check that the role \
                         may list leases"
                    .into())
            }
        }
    }

    /// Records that this replica has joined, and that its list of members is current until `until`.
    pub(super) fn inform(&self, until: Duration) {
        if let Some(shared) = &self.0 {
            shared.state.lock().informed = Some(until);
        }
    }

    /// Returns whether a run of a key could begin here.
    pub(crate) fn is_ours(&self, key: &ObjectKey) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.state.lock().grant.gives(HashPosition::of(key)))
    }

    /// Calls the controller's `listener` whenever this replica acquires keys, right before their runs can
    /// [begin](Self::begin). It must be quick.
    pub(crate) fn on_acquire(&self, controller: &str, listener: impl Fn(Acquired) + Send + Sync + 'static) {
        if let Some(shared) = &self.0 {
            shared.listeners.lock().insert(controller.into(), Box::new(listener));
        }
    }

    /// Drops the function that a controller has passed to [`Share::on_acquire`].
    pub(crate) fn forget(&self, controller: &str) {
        if let Some(shared) = &self.0 {
            shared.listeners.lock().remove(controller);
        }
    }

    /// Forwards a wake-up to the key's owner, unless this replica owns it. A later owner enqueues it anyway.
    pub(crate) fn forward_wakeup(&self, controller: &str, key: &ObjectKey) {
        let Some(shared) = &self.0 else { return };
        let wakeup = Wakeup { controller: controller.into(), key: key.clone() };
        let mut state = shared.state.lock();
        // One more than is carried, so that an overflow is noticed.
        if !state.grant.gives(HashPosition::of(key))
            && state.wakeups.len() <= MAX_WAKEUPS
            && !state.wakeups.contains(&wakeup)
        {
            state.wakeups.push(wakeup);
        }
    }

    /// Calls `wake` with the keys of a controller that other members forward, until the result is dropped. The
    /// controller keeps that while it runs: what `wake` holds has this share in turn.
    pub(crate) fn on_wakeup(&self, controller: &str, wake: impl Fn(ObjectKey) + Send + Sync + 'static) -> WakeupGuard {
        if let Some(shared) = &self.0 {
            shared.wakers.lock().insert(controller.into(), Box::new(wake));
        }
        WakeupGuard { share: self.clone(), controller: controller.into() }
    }

    /// Returns the wake-ups for other members since the last call of this function.
    pub(super) fn take_wakeups(&self) -> Vec<Wakeup> {
        self.0.as_ref().map(|shared| std::mem::take(&mut shared.state.lock().wakeups)).unwrap_or_default()
    }

    /// Enqueues the keys that other members have forwarded. The dispatcher drops those of other members.
    pub(super) fn enqueue_received(&self, wakeups: Vec<Wakeup>) {
        let Some(shared) = &self.0 else { return };
        let wakers = shared.wakers.lock();
        for Wakeup { controller, key } in wakeups {
            if let Some(wake) = wakers.get(&controller) {
                wake(key);
            }
        }
    }

    pub(super) fn set(&self, grant: Grant) {
        let Some(shared) = &self.0 else { return };
        // No run begins between the listeners and the new grant.
        let mut state = shared.state.lock();
        let old = std::mem::replace(&mut state.grant, grant.clone());
        let is_like = old.is_like(&grant);
        if !is_like {
            state.fraction = grant.fraction();
        }
        // After the lease had expired, keys of this replica were dropped.
        let had_lapsed = old.fence.is_none_or(|fence| shared.clock.monotonic() >= fence);
        if is_like && !had_lapsed {
            return;
        }
        let acquired: Acquired = Arc::new(move |key| {
            let position = HashPosition::of(key);
            grant.gives(position) && (had_lapsed || !old.gives(position))
        });
        shared.listeners.lock().values().for_each(|listener| listener(acquired.clone()));
    }

    /// Returns the positions with current runs that don't belong to this member in this view.
    pub(super) fn beyond(&self, view: &View, member: &str) -> BTreeSet<HashPosition> {
        let Some(shared) = &self.0 else { return BTreeSet::new() };
        let state = shared.state.lock();
        state.work.keys().copied().filter(|position| !view.gives(*position, member)).collect()
    }

    /// Completes when a run has ended whose key belongs to another member, now or since the last call.
    pub(super) async fn drained(&self) {
        match &self.0 {
            Some(shared) => shared.drained.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the fraction of all keys that this replica owns, estimated from a sample.
    pub(super) fn fraction(&self) -> f64 {
        self.0.as_ref().map_or(1.0, |shared| shared.state.lock().fraction)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use jiff::Timestamp;
    use kubewright_apimachinery::clock::{Clock, VirtualClock};

    use super::*;

    /// Keys that are taken after the lease has expired are dropped. They are acquired again with the lease, although
    /// nothing else has changed.
    #[tokio::test(start_paused = true)]
    async fn keys_dropped_after_the_lease_expired_are_acquired_again() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let share = Share::of_a_group(clock.clone());
        let key = ObjectKey::namespaced("a", "b");
        let gains = Arc::new(AtomicUsize::new(0));
        let (counted, wanted) = (gains.clone(), key.clone());
        share.on_acquire("at", move |acquired| {
            counted.fetch_add(usize::from(acquired(&wanted)), Ordering::SeqCst);
        });
        let renew = || share.set(Grant::of_everything(clock.monotonic() + Duration::from_secs(10)));
        renew();
        assert!(share.begin(&key).is_some());
        tokio::time::sleep(Duration::from_secs(9)).await;
        renew();
        assert_eq!(gains.load(Ordering::SeqCst), 1, "the key was never lost");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(share.begin(&key).is_none());
        renew();
        assert_eq!(gains.load(Ordering::SeqCst), 2);
        assert!(share.begin(&key).is_some());
    }
}
