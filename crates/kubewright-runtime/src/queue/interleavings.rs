//! Tests of the shared queue under every interleaving of threads, explored by loom.
//!
//! `shared` is the source of the queue, compiled again with loom's lock and notification. The clock doesn't advance;
//! other tests cover delays.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::{Clock, SharedClock};
use loom::{
    future::block_on,
    model::Builder,
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
};

use self::shared::SharedQueue;
use super::{NORMAL_PRIORITY, When};
use crate::metrics::{Metrics, QueueMetrics};

#[allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the same source with another lock and notification"
)]
#[path = "shared.rs"]
mod shared;

/// Replaces `queue::sync`.
mod sync {
    use std::{
        future::poll_fn,
        task::{Poll, Waker},
        time::Duration,
    };

    use loom::sync::MutexGuard;

    #[derive(Debug)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics while it holds the lock")
        }
    }

    /// The guarantee of tokio's `Notify` to a single waiter: one notification is kept while there is no waiter.
    #[derive(Debug)]
    pub(super) struct Notify(Mutex<(bool, Option<Waker>)>);

    impl Notify {
        pub(super) fn new() -> Self {
            Self(Mutex::new((false, None)))
        }

        pub(super) fn notify_one(&self) {
            let waiting = {
                let (is_notified, waiting) = &mut *self.0.lock();
                *is_notified = true;
                waiting.take()
            };
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) async fn wait(notify: &Notify, _: Option<Duration>) {
        poll_fn(|context| {
            let (is_notified, waiting) = &mut *notify.0.lock();
            if std::mem::take(is_notified) {
                return Poll::Ready(());
            }
            *waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

type Key = usize;

#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// The state that the threads of one interleaving share.
struct Scene {
    queue: SharedQueue<Key>,
    /// For each key the number of its additions, the number that its latest run observed, and whether it is being
    /// processed.
    wanted: [AtomicUsize; 2],
    seen: [AtomicUsize; 2],
    busy: [AtomicBool; 2],
    stopping: AtomicBool,
}

impl Scene {
    fn new(metrics: QueueMetrics) -> Arc<Self> {
        let clock: SharedClock = Arc::new(StoppedClock);
        Arc::new(Self {
            queue: SharedQueue::new(clock, metrics),
            wanted: Default::default(),
            seen: Default::default(),
            busy: Default::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Starts a thread that adds these keys in order, as a watch does.
    fn adds(self: &Arc<Self>, keys: &'static [Key]) {
        let scene = self.clone();
        thread::spawn(move || {
            for &key in keys {
                // Relaxed, since the queue's lock must make it visible.
                scene.wanted[key].fetch_add(1, Relaxed);
                scene.queue.add(key, NORMAL_PRIORITY, When::Now);
            }
        });
    }

    fn take(&self) -> Option<Key> {
        self.queue.with(|queue, now| queue.take(now)).map(|taken| taken.key)
    }

    /// Processes a key that was taken.
    fn work(&self, key: Key) {
        assert!(!self.busy[key].swap(true, SeqCst), "two workers on one key");
        self.seen[key].store(self.wanted[key].load(Relaxed), Relaxed);
        self.busy[key].store(false, SeqCst);
        self.queue.with(|queue, _| queue.done(&key));
        self.queue.notify();
    }

    fn has_observed(&self, additions: [usize; 2]) -> bool {
        [0, 1].map(|key| self.seen[key].load(Relaxed)) == additions
    }

    /// Takes keys until the test is over, as the loop of a controller does. At most `workers` keys are processed at
    /// once, each in a thread of its own.
    fn dispatch(self: &Arc<Self>, workers: usize, is_over: impl Fn(&Self) -> bool) -> Vec<thread::JoinHandle<()>> {
        let mut started = Vec::new();
        while !is_over(self) {
            while self.queue.with(|queue, _| queue.working()) < workers
                && let Some(key) = self.take()
            {
                let scene = self.clone();
                started.push(thread::spawn(move || scene.work(key)));
            }
            if !is_over(self) {
                block_on(self.queue.changed(None));
            }
        }
        started
    }
}

/// Runs `scene` under every interleaving with at most two preemptions.
fn in_every_interleaving(scene: impl Fn(Arc<Scene>) + Send + Sync + 'static) {
    let metrics = Metrics::new(Arc::new(StoppedClock)).queue("loom");
    let mut model = Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || scene(Scene::new(metrics.clone())));
}

/// After a lost wakeup, the loop would wait forever, which loom reports as a deadlock.
#[test]
fn keys_added_by_two_watches_are_taken() {
    in_every_interleaving(|scene| {
        scene.adds(&[0, 1]);
        scene.adds(&[0]);
        while !scene.has_observed([2, 1]) {
            while let Some(key) = scene.take() {
                scene.work(key);
            }
            if !scene.has_observed([2, 1]) {
                block_on(scene.queue.changed(None));
            }
        }
    });
}

#[test]
fn no_key_is_processed_twice_at_once() {
    in_every_interleaving(|scene| {
        scene.adds(&[0, 0]);
        let started = scene.dispatch(2, |scene| scene.has_observed([2, 0]));
        assert!((1..=2).contains(&started.len()), "at most once for each addition");
        started.into_iter().for_each(|worker| worker.join().expect("the worker ends"));
        assert_eq!(scene.queue.with(|queue, _| queue.working()), 0);
    });
}

#[test]
fn a_shutdown_drains_runs_and_starts_none() {
    in_every_interleaving(|scene| {
        scene.queue.add(0, NORMAL_PRIORITY, When::Now);
        let stopper = scene.clone();
        thread::spawn(move || {
            stopper.queue.add(0, NORMAL_PRIORITY, When::Now);
            stopper.stopping.store(true, SeqCst);
            stopper.queue.notify();
        });
        let started = scene.dispatch(1, |scene| scene.stopping.load(SeqCst));
        scene.queue.with(|queue, _| queue.close());
        started.into_iter().for_each(|worker| worker.join().expect("the worker ends"));
        let (working, depths) = scene.queue.with(|queue, _| (queue.working(), queue.depths().collect::<Vec<_>>()));
        assert_eq!((working, scene.take(), depths), (0, None, vec![]));
    });
}
