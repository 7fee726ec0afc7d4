//! What a replica may work on, as controllers ask for it.

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
    calls::{Call, MOST_CALLS},
    member::Grant,
    view::{Place, View},
};
use crate::object::ObjectKey;

/// Says which keys have become ours at some moment.
pub(crate) type Gained = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

/// Wants a key that another member has called for.
type WakeCalled = Box<dyn Fn(ObjectKey) + Send + Sync>;

type Listener = Box<dyn Fn(Gained) + Send + Sync>;

/// The part of all keys that this replica works on: all of them, unless it shares them with others. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Share(Option<Arc<Shared>>);

struct Shared {
    clock: SharedClock,
    state: Mutex<State>,
    listeners: Mutex<Vec<Listener>>,
    /// Who wants the keys of a controller.
    wakers: Mutex<BTreeMap<String, WakeCalled>>,
    /// Rings when work has ended that isn't ours any more.
    drained: Notify,
}

#[derive(Default)]
struct State {
    grant: Grant,
    /// What is worked on, and how many times: each controller has keys of its own.
    work: BTreeMap<Place, usize>,
    /// Until when we may say that we know who the others are; none before we have joined them.
    informed: Option<Duration>,
    /// Wakes for keys that aren't ours.
    calls: Vec<Call>,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.0.as_ref().map(|shared| shared.state.lock().grant.clone())).finish()
    }
}

/// Work on a key. Until it is dropped no other replica gets the key.
#[must_use = "the key is given away when the ticket is dropped"]
pub(crate) struct Ticket(Option<(Arc<Shared>, Place)>);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.0.as_ref().map(|(_, place)| place)).finish()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some((shared, place)) = self.0.take() else { return };
        let mut state = shared.state.lock();
        let State { grant, work, .. } = &mut *state;
        if let Some(count) = work.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                work.remove(&place);
                if !grant.gives(place) {
                    shared.drained.notify_one();
                }
            }
        }
    }
}

impl Share {
    /// Nothing yet, and then what it is granted.
    pub(crate) fn of_a_group(clock: SharedClock) -> Self {
        let (state, listeners, wakers, drained) = Default::default();
        Self(Some(Arc::new(Shared { clock, state, listeners, wakers, drained })))
    }

    /// Begins work on a key, if it is ours.
    pub(crate) fn begin(&self, key: &ObjectKey) -> Option<Ticket> {
        let Some(shared) = &self.0 else { return Some(Ticket(None)) };
        let place = Place::of(key);
        let mut state = shared.state.lock();
        // A process that stood still for long must not go on as if nothing were.
        let stands = state.grant.fence.is_some_and(|fence| shared.clock.monotonic() < fence);
        if !stands || !state.grant.gives(place) {
            return None;
        }
        *state.work.entry(place).or_default() += 1;
        Some(Ticket(Some((shared.clone(), place))))
    }

    /// Whether this replica shares the keys with others.
    pub(crate) fn is_of_a_group(&self) -> bool {
        self.0.is_some()
    }

    /// Whether this replica takes part, as a check of its readiness: it has joined the others, and sees who they are.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(shared) = &self.0 else { return Ok(()) };
        match shared.state.lock().informed {
            Some(until) if shared.clock.monotonic() < until => Ok(()),
            Some(_) => {
                Err("it is long since the leases of the other replicas could be listed: the log says why".into())
            }
            None => {
                Err("this replica has not joined the others yet: if that lasts, the log says why; it takes the right \
                         to list leases"
                    .into())
            }
        }
    }

    /// Notes that we have joined, and that what we know of the others will do until then.
    pub(super) fn inform(&self, until: Duration) {
        if let Some(shared) = &self.0 {
            shared.state.lock().informed = Some(until);
        }
    }

    /// Whether work on a key could begin here.
    pub(crate) fn is_ours(&self, key: &ObjectKey) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.state.lock().grant.gives(Place::of(key)))
    }

    /// Calls `listener` whenever keys become ours, right before work on them can [begin](Self::begin): it must be quick.
    pub(crate) fn on_gain(&self, listener: impl Fn(Gained) + Send + Sync + 'static) {
        if let Some(shared) = &self.0 {
            shared.listeners.lock().push(Box::new(listener));
        }
    }

    /// Tells the key's owner that a controller wants it, unless that is us. Who comes to own it later wants it anyway.
    pub(crate) fn call(&self, controller: &str, key: &ObjectKey) {
        let Some(shared) = &self.0 else { return };
        let call = Call { controller: controller.into(), key: key.clone() };
        let mut state = shared.state.lock();
        // One more than is carried, so that it is seen that there were too many.
        if !state.grant.gives(Place::of(key)) && state.calls.len() <= MOST_CALLS && !state.calls.contains(&call) {
            state.calls.push(call);
        }
    }

    /// Calls `wake` with the keys of a controller that other members have called for.
    pub(crate) fn on_call(&self, controller: &str, wake: impl Fn(ObjectKey) + Send + Sync + 'static) {
        if let Some(shared) = &self.0 {
            shared.wakers.lock().insert(controller.into(), Box::new(wake));
        }
    }

    /// What is to be told to others, and wasn't given by this before.
    pub(super) fn take_calls(&self) -> Vec<Call> {
        self.0.as_ref().map(|shared| std::mem::take(&mut shared.state.lock().calls)).unwrap_or_default()
    }

    /// Others have called. What isn't ours is let go by whoever takes it from its queue.
    pub(super) fn called(&self, calls: Vec<Call>) {
        let Some(shared) = &self.0 else { return };
        let wakers = shared.wakers.lock();
        for Call { controller, key } in calls {
            if let Some(wake) = wakers.get(&controller) {
                wake(key);
            }
        }
    }

    pub(super) fn set(&self, grant: Grant) {
        let Some(shared) = &self.0 else { return };
        // No work begins between the listeners and the new grant.
        let mut state = shared.state.lock();
        let old = std::mem::replace(&mut state.grant, grant.clone());
        // Behind a fence that had fallen, keys were let go although they are ours.
        let had_lapsed = old.fence.is_none_or(|fence| shared.clock.monotonic() >= fence);
        if old.is_like(&grant) && !had_lapsed {
            return;
        }
        let gained: Gained = Arc::new(move |key| {
            let place = Place::of(key);
            grant.gives(place) && (had_lapsed || !old.gives(place))
        });
        shared.listeners.lock().iter().for_each(|listener| listener(gained.clone()));
    }

    /// What is worked on and doesn't belong to this member by this view.
    pub(super) fn beyond(&self, view: &View, member: &str) -> BTreeSet<Place> {
        let Some(shared) = &self.0 else { return BTreeSet::new() };
        let state = shared.state.lock();
        state.work.keys().copied().filter(|place| !view.gives(*place, member)).collect()
    }

    /// Returns when work has ended that wasn't ours any more, now or since the last call.
    pub(super) async fn drained(&self) {
        match &self.0 {
            Some(shared) => shared.drained.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Which part of all keys is ours now, as far as a sample tells.
    pub(super) fn fraction(&self) -> f64 {
        const SAMPLE: u64 = 1024;
        let Some(shared) = &self.0 else { return 1.0 };
        let grant = shared.state.lock().grant.clone();
        let ours = (0..SAMPLE).filter(|number| grant.gives(Place(super::view::hash(&number.to_le_bytes())))).count();
        ours as f64 / SAMPLE as f64
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

    /// Behind a fence that has fallen, keys are let go; they come back with it, though nothing else has changed.
    #[tokio::test(start_paused = true)]
    async fn what_is_let_go_behind_a_fallen_fence_is_gained_again() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let share = Share::of_a_group(clock.clone());
        let key = ObjectKey::namespaced("a", "b");
        let gains = Arc::new(AtomicUsize::new(0));
        let (counted, wanted) = (gains.clone(), key.clone());
        share.on_gain(move |gained| {
            counted.fetch_add(usize::from(gained(&wanted)), Ordering::SeqCst);
        });
        let renew = || share.set(Grant::of_everything(clock.monotonic() + Duration::from_secs(10)));
        renew();
        assert!(share.begin(&key).is_some());
        tokio::time::sleep(Duration::from_secs(9)).await;
        renew();
        assert_eq!(gains.load(Ordering::SeqCst), 1, "it was ours all the time");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(share.begin(&key).is_none());
        renew();
        assert_eq!(gains.load(Ordering::SeqCst), 2);
        assert!(share.begin(&key).is_some());
    }
}
