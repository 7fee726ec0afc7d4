//! A value whose changes tasks wait for, with the interface of [`tokio::sync::watch`].
//!
//! Tokio's channel wakes its receivers in an order that it draws from a random source of its own, so two simulations
//! with the same seed would differ. This one wakes them in the order in which they began to wait. A change takes a lock
//! and costs a wake-up for each waiting receiver.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// The error of a receiver whose senders are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has no sender")]
pub struct Closed;

/// A reference to the value, which holds its lock: keep it for a moment only, and not across an `await`.
pub type Ref<'a, T> = RwLockReadGuard<'a, T>;

struct Shared<T> {
    value: RwLock<T>,
    /// The number of changes. It is only increased under the lock of the value.
    version: AtomicU64,
    is_closed: AtomicBool,
    changed: Notify,
}

/// The side of the senders, which is dropped with the last of them.
struct Senders<T>(Arc<Shared<T>>);

impl<T> Drop for Senders<T> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

/// The side that changes the value. Clones change the same value.
pub struct Sender<T>(Arc<Senders<T>>);

/// The side that waits for changes. A clone has seen what the original has seen.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// Returns both sides of a value. The receiver has seen the value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// Creates a value without receivers.
    pub fn new(value: T) -> Self {
        let (version, is_closed) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Shared { value: RwLock::new(value), version, is_closed, changed: Notify::new() };
        Self(Arc::new(Senders(Arc::new(shared))))
    }

    fn shared(&self) -> &Arc<Shared<T>> {
        &self.0.0
    }

    /// Returns a receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let shared = self.shared().clone();
        let seen = shared.version.load(Ordering::Acquire);
        Receiver { shared, seen }
    }

    /// Returns the value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared().value.read()
    }

    /// Replaces the value, wakes the receivers, and returns the old value.
    pub fn send_replace(&self, value: T) -> T {
        let mut old = value;
        self.send_if_modified(|value| {
            std::mem::swap(value, &mut old);
            true
        });
        old
    }

    /// Changes the value, and wakes the receivers.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and wakes the receivers if `change` returns true. Returns what `change` returns.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let shared = self.shared();
        let mut value = shared.value.write();
        if !change(&mut value) {
            return false;
        }
        shared.version.fetch_add(1, Ordering::Release);
        drop(value);
        shared.changed.notify_waiters();
        true
    }
}

impl<T> Receiver<T> {
    /// Returns the value, without marking it as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.value.read()
    }

    /// Returns the value and marks it as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.value.read();
        self.seen = self.shared.version.load(Ordering::Acquire);
        value
    }

    /// Marks the present value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version.load(Ordering::Acquire);
    }

    /// Returns whether the value has changed since it was seen.
    ///
    /// # Errors
    /// All senders are gone.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        if self.shared.is_closed.load(Ordering::Acquire) { Err(Closed) } else { Ok(self.is_newer()) }
    }

    fn is_newer(&self) -> bool {
        self.shared.version.load(Ordering::Acquire) != self.seen
    }

    /// Waits until the value has changed since it was seen, and marks it as seen. Nothing is lost if the future is
    /// dropped.
    ///
    /// # Errors
    /// All senders are gone, and the last change has been seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut notified = pin!(self.shared.changed.notified());
            notified.as_mut().enable();
            let version = self.shared.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.is_closed.load(Ordering::Acquire) {
                return Err(Closed);
            }
            notified.await;
        }
    }

    /// Waits until the value fulfils a condition, and returns a clone of it, marked as seen.
    ///
    /// # Errors
    /// All senders are gone, and the last value doesn't fulfil the condition.
    pub async fn wait_for(&mut self, condition: impl Fn(&T) -> bool) -> Result<T, Closed>
    where
        T: Clone,
    {
        loop {
            let is_closed = self.shared.is_closed.load(Ordering::Acquire);
            let fulfilling = {
                let value = self.borrow_and_update();
                condition(&value).then(|| value.clone())
            };
            if let Some(value) = fulfilling {
                return Ok(value);
            }
            if is_closed {
                return Err(Closed);
            }
            // The end of the senders ends the wait as a change does: the value is looked at once more.
            let _ = self.changed().await;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn receivers_wake_in_the_order_in_which_they_began_to_wait() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let started = Arc::new(AtomicU64::new(0));
        let waiting: Vec<_> = (0..100)
            .map(|number| {
                let (mut receiver, woken, started) = (sender.subscribe(), woken.clone(), started.clone());
                tokio::spawn(async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    receiver.changed().await.unwrap();
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        while started.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        sender.send_replace(1);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn changes_between_two_waits_are_seen_once() {
        let (sender, mut receiver) = channel(0);
        assert_eq!(receiver.has_changed(), Ok(false));
        sender.send_modify(|value| *value += 1);
        assert_eq!(sender.send_replace(5), 1);
        assert_eq!(receiver.has_changed(), Ok(true));
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow_and_update(), 5);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.has_changed(), Ok(false));
    }

    #[tokio::test]
    async fn the_last_value_is_seen_after_the_senders_are_gone() {
        let (sender, mut receiver) = channel(0);
        let other = sender.clone();
        sender.send_replace(1);
        drop(sender);
        assert_eq!(receiver.has_changed(), Ok(true));
        drop(other);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(receiver.changed().await, Err(Closed));
        assert_eq!(receiver.wait_for(|value| *value == 1).await, Ok(1));
        assert_eq!(receiver.wait_for(|value| *value == 2).await, Err(Closed));
    }

    #[tokio::test]
    async fn a_waiting_receiver_sees_the_end_of_the_senders() {
        let (sender, mut receiver) = channel(0);
        let waiting = tokio::spawn(async move { receiver.changed().await });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waiting.await.unwrap(), Err(Closed));
    }
}
