//! A limit of concurrent reconciles that several controllers share.

use std::{future::pending, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of reconciles that may run at the same time, over all controllers that share it, such as those of [all
/// clusters](crate::manager::Manager::controller_by_cluster). For
/// [`Controller::concurrency_limit`](super::Controller::concurrency_limit). Cheap to clone.
///
/// Controllers that wait for their turn get it in the order in which they began to wait, one reconcile each time, so a
/// cluster with many changes doesn't displace the others. A reconcile must not wait for one of another controller that
/// shares the limit.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kubewright_runtime::{controller::{ConcurrencyLimit, Controller, Reconciler}, manager::Manager};
/// # fn example(manager: Manager, copier: impl Reconciler<ConfigMap> + Clone) -> Manager {
/// let limit = ConcurrencyLimit::new(16);
/// manager.controller_by_cluster(move |_| {
///     Controller::<ConfigMap>::new(copier.clone()).concurrency(8).concurrency_limit(&limit)
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    /// A limit of this number; 0 counts as 1.
    pub fn new(reconciles: usize) -> Self {
        Self(Arc::new(Semaphore::new(reconciles.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// A controller's part in a limit.
pub(super) struct Permits {
    limit: Option<ConcurrencyLimit>,
    /// The next permit. It is waited for only while there is a key for it.
    next: Option<BoxFuture<'static, Permit>>,
    free: Option<Permit>,
}

/// A permit, which is free again when it is dropped.
pub(super) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Permits {
    pub(super) fn new(limit: Option<ConcurrencyLimit>) -> Self {
        Self { limit, next: None, free: None }
    }

    /// Takes a permit if a key needs one, or begins to wait for it. A permit that no key needs is for other
    /// controllers.
    pub(super) fn take(&mut self, is_needed: impl FnOnce() -> bool) -> Option<Permit> {
        let Some(ConcurrencyLimit(limit)) = &self.limit else { return Some(Permit { _permit: None }) };
        if !is_needed() {
            (self.next, self.free) = (None, None);
            return None;
        }
        if self.next.is_some() {
            return None;
        }
        if let Some(permit) = self.free.take() {
            return Some(permit);
        }
        // Fails if others wait, too: they are first.
        match limit.clone().try_acquire_owned() {
            Ok(permit) => Some(Permit { _permit: Some(permit) }),
            Err(_) => {
                // The semaphore is never closed.
                self.next = Some(limit.clone().acquire_owned().map(|permit| Permit { _permit: permit.ok() }).boxed());
                None
            }
        }
    }

    /// Returns whether there is no permit at the moment.
    pub(super) fn is_waiting(&self) -> bool {
        self.next.is_some()
    }

    /// Completes when there is a permit that was waited for.
    pub(super) async fn freed(&mut self) {
        match &mut self.next {
            Some(next) => {
                self.free = Some(next.await);
                self.next = None;
            }
            None => pending().await,
        }
    }

    /// Gives up the permit that is waited for, or isn't taken.
    pub(super) fn give_up(&mut self) {
        (self.next, self.free) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_are_shared_in_turn() {
        let limit = ConcurrencyLimit::new(1);
        let [mut one, mut other, mut free] =
            [Some(&limit), Some(&limit), None].map(|limit| Permits::new(limit.cloned()));
        let needed = || true;
        let permit = one.take(needed).expect("the first permit");
        assert!(other.take(needed).is_none() && other.is_waiting() && one.take(needed).is_none());
        assert!(free.take(needed).is_some() && free.take(needed).is_some(), "there is no limit");
        drop(permit);
        other.freed().await;
        assert!(one.take(needed).is_none(), "it is the other one's turn");
        drop(other.take(needed).expect("its turn"));
        one.freed().await;
        assert!(one.take(|| false).is_none() && !one.is_waiting(), "no key needs it");
        assert!(other.take(needed).is_some(), "the permit was given up");
    }
}
