//! Connects a controller with the parts of a manager, and makes it a task that can run.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use kube::core::Selector;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{
    Controller, ControllerError,
    barrier::Barrier,
    channel::{RunSource, Waker},
    concurrency_limit::Permits,
    dispatch::{Dispatcher, EnqueueAcquired, Metrics as LoopMetrics},
    metrics::BarrierFamilies,
    outcome::Outcomes,
    source::{Source, priority},
    takeover::{Handoff, Takeover},
    wiring::{Backlog, Wiring},
};
use crate::{
    cache::{Cache, CacheFamilies, Delta, Kind, Reader},
    client::Client,
    context::{DynamicWatches, Enqueue, Notify, Services, UndeclaredReads},
    event::{LateQueue, Recorder},
    leader::fence::Fence,
    limit::Bucket,
    metrics::Metrics,
    object::{AnyObject, KindName, ObjectKey},
    queue::{KeyState, LOW_PRIORITY, NORMAL_PRIORITY, Now, Queue, SharedQueue, When},
    shard::Share,
    trace::{self, Phase, Tracer, Traces, Trigger},
};

/// The interval at which a controller that waits for first lists logs which kinds are missing.
const SYNC_LOG_INTERVAL: Duration = Duration::from_secs(120);

/// The parts of a manager that its controllers need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) client: kube::Client,
    pub(crate) cache: Cache,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) barrier_metrics: BarrierFamilies,
    pub(crate) cache_metrics: CacheFamilies,
    pub(crate) events: LateQueue,
    pub(crate) traces: Traces,
    /// The keys that this replica reconciles.
    pub(crate) share: Share,
    /// Whether a leader is elected, so that another replica may have reconciled the keys before.
    pub(crate) is_elected: bool,
    /// The default number of workers by `Kind.group`.
    pub(crate) concurrency: BTreeMap<String, usize>,
    /// The end of the lease under which controllers work, if they need one.
    pub(crate) fence: Fence,
    /// The client for controllers that work under the lease.
    pub(crate) fenced: kube::Client,
    /// Whether there is a lease.
    pub(crate) is_fenced: bool,
    /// The name of the cluster, unless it is the manager's own.
    pub(crate) cluster: Option<Arc<str>>,
    /// The `User-Agent` of the manager.
    pub(crate) agent: String,
    pub(crate) undeclared: UndeclaredReads,
}

impl Environment {
    /// Makes controllers work under a lease.
    pub(crate) fn raise_fence(&mut self) {
        self.fenced = self.fence.guard(&self.client, self.clock.clone());
        self.is_fenced = true;
    }

    /// Returns the environment of another cluster, for which the lease counts too.
    pub(crate) fn of_cluster(&self, name: &str, client: kube::Client, cache: Cache, events: LateQueue) -> Self {
        let cluster = Some(name.into());
        let mut environment = Self { fenced: client.clone(), client, cache, events, cluster, ..self.clone() };
        if self.is_fenced {
            environment.raise_fence();
        }
        environment
    }

    fn loop_metrics(&self, controller: &str, workers: usize) -> LoopMetrics {
        LoopMetrics {
            controller: self.metrics.controller(controller, workers),
            queue: self.metrics.queue(controller),
            barrier: self.barrier_metrics.controller(controller),
        }
    }

    /// Returns the name under which a controller appears.
    fn label(&self, controller: &str) -> String {
        match &self.cluster {
            None => controller.into(),
            Some(cluster) => format!("{controller}@{cluster}"),
        }
    }
}

/// A controller that is connected to the cache, and can run once that is started.
pub(crate) struct Prepared {
    run: Box<Run>,
    kinds: Vec<Arc<Kind>>,
    detach: Detach,
}

pub(super) type Run =
    dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, Result<(), ControllerError>> + Send;

/// Removes everything of a controller from the manager. Called when it doesn't run any more.
pub(crate) type Detach = Box<dyn FnOnce() + Send>;

impl Prepared {
    pub(super) fn new(run: Box<Run>, kinds: Vec<Arc<Kind>>, detach: Detach) -> Self {
        Self { run, kinds, detach }
    }

    /// Runs until `stop`, then until the workers have ended, or were aborted on `abort`. On an error it cancels `stop`.
    pub(crate) fn run(
        self,
        stop: CancellationToken,
        abort: CancellationToken,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        (self.run)(stop, abort)
    }

    /// Returns the kinds that it declares.
    pub(crate) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// Separates what removes the controller. It must be called after the run.
    pub(crate) fn detachable(self) -> (Self, Detach) {
        (Self { detach: Box::new(|| {}), ..self }, self.detach)
    }
}

impl<K: AnyObject> Controller<K> {
    /// Adds the controller's kinds to the cache, and makes their changes enqueue its keys. A late controller comes
    /// while the manager runs.
    pub(crate) fn prepare(self, environment: &Environment, is_late: bool) -> Prepared {
        let Self { name, field_manager, client, timeout, predicate, sources, outside, work, is_exclusive, .. } = self;
        let kind = KindName::named::<K>(&self.kind);
        let share = if is_exclusive { environment.share.clone() } else { Share::default() };
        let sender = if is_exclusive { &environment.fenced } else { &environment.client };
        let field_manager = field_manager.unwrap_or_else(|| format!("{name}-controller"));
        let (plain_name, name) = (name.clone(), environment.label(&name));
        let of_kind = || environment.concurrency.get(&kind.group_kind()).copied();
        let concurrency = self.concurrency.or_else(of_kind).unwrap_or(1).max(1);
        let agent = format!("{}/{name}", environment.agent);
        let api = Client::new(sender.clone()).field_owner(&field_manager).user_agent(&agent);
        let api = client.map_or(api.clone(), |wrap| wrap(api));
        let metrics = environment.loop_metrics(&name, concurrency);
        let queue = Queue::seeded(self.backoff, environment.random.u64());
        let queue = Arc::new(SharedQueue::of(queue, environment.clock.clone(), metrics.queue.clone()));
        let mut wiring = Wiring::new(environment.cache.clone(), is_late);
        let keys = Reader::<K>::new(wiring.kind::<K>(&self.kind), None);
        let sources = [Source::reconciled::<K>(self.kind, predicate)].into_iter().chain(sources).collect::<Vec<_>>();
        let state = ControllerState {
            queue: queue.clone(),
            cache: environment.cache.clone(),
            kinds: sources.iter().map(|source| Arc::new(source.kind.clone())).collect(),
            reconciled: keys.clone(),
            share: share.clone(),
        };
        let names = [kind.group.clone().into(), kind.kind.clone().into()];
        let tracer = environment.traces.controller(&name, names, concurrency, state);
        let rank = self.priority.map(|rank| ranked(rank, keys.clone()));
        let when = self.debounce.map_or(When::Now, When::Debounced);
        let enqueue = enqueue(&queue, tracer.as_ref(), rank.clone(), when);
        let notify = notify(&queue, tracer.as_ref(), rank.clone());
        let watches = DynamicWatches::new(environment.cache.clone(), enqueue.clone(), notify);
        connect(&mut wiring, &queue, &enqueue, sources);
        let enqueue_acquired = enqueue_acquired(&queue, keys.clone(), rank);
        let handoff = handoff(&queue, &share, &name, is_exclusive && environment.is_elected);
        let services = Arc::new(Services {
            api,
            cache: environment.cache.clone(),
            kinds: wiring.names(),
            types: wiring.types(),
            undeclared: environment.undeclared.clone(),
            blocks_deletion: self.blocks_deletion,
            watches,
            clock: environment.clock.clone(),
            random: environment.random.clone(),
            recorder: Recorder::new(environment.events.clone(), &field_manager),
            controller: name,
            plain_name,
            cluster: environment.cluster.clone(),
        });
        let dispatcher = Dispatcher {
            services: services.clone(),
            #[cfg(feature = "opentelemetry")]
            kind,
            work,
            queue: queue.clone(),
            barrier: Barrier::default(),
            concurrency,
            permits: Permits::new(self.concurrency_limit),
            timeout,
            workers: JoinSet::new(),
            share: share.clone(),
            takeover: Takeover::new(handoff),
            sync_checks: JoinSet::new(),
            enqueue_acquired,
            outcomes: Outcomes {
                queue,
                random: environment.random.clone(),
                metrics: metrics.controller.clone(),
                queue_metrics: metrics.queue.clone(),
                limit: self.rate_limit.map(|limit| Mutex::new(Bucket::new(limit))),
            },
            metrics,
            tracer,
            recovers: self.recovers,
        };
        let (timeout, backlog, kinds) = (self.cache_sync_timeout, wiring.backlog(), wiring.kinds());
        let run = Box::new(move |stop, abort| run(dispatcher, keys, outside, backlog, timeout, stop, abort).boxed());
        let detach = detach(environment.clone(), services, share, wiring);
        Prepared { run, kinds, detach }
    }
}

/// Returns what removes a controller: its handlers and kinds, its place among the replicas, its metrics and its traces.
fn detach(environment: Environment, services: Arc<Services>, share: Share, wiring: Wiring) -> Detach {
    Box::new(move || {
        let Services { controller, watches, .. } = services.as_ref();
        wiring.undo();
        watches.end_all();
        share.forget(controller);
        environment.traces.forget(controller);
        environment.metrics.forget(controller);
        environment.barrier_metrics.forget(controller);
    })
}

/// The state of a controller that its traces show.
struct ControllerState<K> {
    queue: Arc<SharedQueue>,
    cache: Cache,
    kinds: BTreeSet<Arc<KindName>>,
    reconciled: Reader<K>,
    share: Share,
}

impl<K: AnyObject> trace::ControllerInfo for ControllerState<K> {
    fn now(&self) -> Now {
        self.queue.now()
    }

    fn exists(&self, key: &ObjectKey) -> bool {
        self.reconciled.contains(key)
    }

    fn key_state(&self, key: &ObjectKey) -> KeyState {
        self.queue.with(|queue, now| queue.key_state(key, now))
    }

    fn is_ours(&self, key: &ObjectKey) -> bool {
        self.share.is_ours(key)
    }

    fn ready(&self) -> usize {
        self.queue.with(|queue, _| queue.depths().map(|(_, depth)| depth).sum())
    }

    fn missing(&self) -> Vec<String> {
        self.cache.unsynced_of(&self.kinds).iter().map(ToString::to_string).collect()
    }
}

/// The function that is added to the priority of a key.
type Rank = Arc<dyn Fn(&ObjectKey) -> i32 + Send + Sync>;

/// Returns the rank of the key's object, or 0 without an object. The function belongs to the operator.
fn ranked<K: AnyObject>(rank: impl Fn(&K) -> i32 + Send + Sync + 'static, objects: Reader<K>) -> Rank {
    Arc::new(move |key| {
        let Some(object) = objects.get(key) else { return 0 };
        catch_unwind(AssertUnwindSafe(|| rank(&object))).unwrap_or_else(|_| {
            error!(object = %key, "the priority function of a controller panicked: the key has its normal priority");
            0
        })
    })
}

fn ranked_priority(priority: i32, rank: Option<&Rank>, key: &ObjectKey) -> i32 {
    rank.map_or(priority, |rank| priority.saturating_add(rank(key)))
}

/// Returns the function that enqueues keys and records the trigger.
fn enqueue(queue: &Arc<SharedQueue>, tracer: Option<&Arc<Tracer>>, rank: Option<Rank>, when: When) -> Enqueue {
    let (queue, tracer) = (queue.clone(), tracer.cloned());
    Arc::new(move |key, given: Option<i32>, delta: &Delta<'_>| {
        // Outside of the queue's lock, since it may compare objects.
        let trigger = tracer.as_ref().map(|tracer| tracer.trigger(delta));
        let priority = given.unwrap_or_else(|| ranked_priority(priority(delta), rank.as_ref(), &key));
        queue.add_noting(key, priority, when, |key, now| {
            if let (Some(tracer), Some(trigger)) = (&tracer, trigger) {
                tracer.wanted(key, trigger, now.wall);
            }
        });
    })
}

/// Returns the function that enqueues keys after the list of a kind.
fn notify(queue: &Arc<SharedQueue>, tracer: Option<&Arc<Tracer>>, rank: Option<Rank>) -> Notify {
    let (queue, tracer) = (queue.clone(), tracer.cloned());
    Arc::new(move |key, kind| {
        let Some(key) = key else { return queue.notify() };
        let priority = ranked_priority(NORMAL_PRIORITY, rank.as_ref(), key);
        queue.add_noting(key.clone(), priority, When::Now, |key, now| {
            if let Some(tracer) = &tracer {
                tracer.wanted(key, Trigger::listed(kind.kind.clone()), now.wall);
            }
        });
    })
}

/// Returns the function that enqueues the keys that this replica has taken over.
fn enqueue_acquired<K: AnyObject>(queue: &Arc<SharedQueue>, objects: Reader<K>, rank: Option<Rank>) -> EnqueueAcquired {
    let queue = queue.clone();
    Box::new(move |acquired| {
        for key in objects.keys(None, &Selector::default()).into_iter().filter(|key| acquired(key)) {
            let priority = ranked_priority(LOW_PRIORITY, rank.as_ref(), &key);
            queue.add(key, priority, When::Now);
        }
    })
}

/// Returns the keys that another replica may have reconciled before: those that this one takes over, and `all` of them
/// if it is going to lead.
fn handoff(queue: &Arc<SharedQueue>, share: &Share, controller: &str, all: bool) -> Handoff {
    let handoff = Handoff::default();
    if all {
        handoff.add_all();
    }
    let (held, queue) = (handoff.clone(), queue.clone());
    share.on_acquire(controller, move |acquired| {
        held.add(acquired);
        queue.notify();
    });
    handoff
}

/// Connects the sources with the cache and the queue.
fn connect(wiring: &mut Wiring, queue: &Arc<SharedQueue>, enqueue: &Enqueue, sources: Vec<Source>) {
    for source in sources {
        (source.connect)(wiring, enqueue.clone());
    }
    let queue = queue.clone();
    // The barrier may wait for the state that has just arrived.
    wiring.on_advance(move || queue.notify());
}

/// Starts the sources, waits for the first lists, then runs the loop.
async fn run<K: AnyObject>(
    dispatcher: Dispatcher,
    objects: Reader<K>,
    outside: Vec<RunSource<K>>,
    backlog: Option<Backlog>,
    timeout: Option<Duration>,
    stop: CancellationToken,
    abort: CancellationToken,
) -> Result<(), ControllerError> {
    let Services { controller, cache, kinds, .. } = dispatcher.services.as_ref();
    dispatcher.enter(Phase::Syncing);
    let controller = controller.clone();
    let mut sources = JoinSet::new();
    let share = &dispatcher.share;
    let waker = Waker::new(dispatcher.queue.clone(), dispatcher.tracer.clone(), &controller, share.clone(), objects);
    let called = waker.clone();
    let _forwarded = share.on_wakeup(&controller, move |key| called.enqueue(key, NORMAL_PRIORITY));
    for source in outside {
        let waker = waker.clone();
        sources.spawn(listen(controller.clone(), move || source(waker), stop.clone()));
    }
    let synced = synced(cache, kinds, &controller, timeout);
    let result = match stop.run_until_cancelled(synced).await {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(())) => {
            if let Some(backlog) = backlog {
                catch_up(&dispatcher.queue, backlog, &stop).await;
            }
            info!(controller, workers = dispatcher.concurrency, "reconciling");
            dispatcher.enter(Phase::Working);
            dispatcher.run(stop, abort).await
        }
    };
    sources.shutdown().await;
    result
}

/// Waits for the first lists of a controller's kinds.
///
/// # Errors
/// After `timeout`, if there is one.
pub(super) async fn synced(
    cache: &Cache,
    kinds: &BTreeSet<Arc<KindName>>,
    controller: &str,
    timeout: Option<Duration>,
) -> Result<(), ControllerError> {
    loop {
        match (cache.wait_for_sync(kinds, timeout.unwrap_or(SYNC_LOG_INTERVAL)).await, timeout) {
            (Ok(()), _) => return Ok(()),
            (Err(missing), Some(timeout)) => {
                let (controller, missing) = (controller.into(), missing.to_string());
                return Err(ControllerError::NotSynced { controller, timeout, missing });
            }
            (Err(error), None) => error!(controller, %error, "still waiting for the cache"),
        }
    }
}

/// Waits until the kinds of a late controller have everything that it reads, and passes their objects to its handlers.
async fn catch_up(queue: &SharedQueue, backlog: Backlog, stop: &CancellationToken) {
    while !backlog.is_complete() {
        // Each event of a kind notifies the queue.
        if stop.run_until_cancelled(queue.changed(None)).await.is_none() {
            return;
        }
    }
    backlog.replay();
}

/// Runs a source until it or the controller ends. The source belongs to the operator: a panic in it ends only the
/// source.
pub(super) async fn listen(
    controller: String,
    source: impl FnOnce() -> BoxFuture<'static, ()>,
    stop: CancellationToken,
) {
    let listening = AssertUnwindSafe(async { source().await }).catch_unwind();
    if let Some(Err(_)) = stop.run_until_cancelled(listening).await {
        error!(controller, "a source panicked: it enqueues no more keys");
    }
}
