//! From a controller's wiring to a controller that can run.

use std::{
    any::TypeId,
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
    dispatch::{Dispatcher, Metrics as LoopMetrics, WakeGained},
    limit::Bucket,
    metrics::BarrierFamilies,
    source::{Source, Wake, priority},
    takeover::{Gains, Takeover},
    watching::{Bell, Watching},
};
use crate::{
    cache::{Cache, Delta, Reader},
    client::Client,
    context::Services,
    event::Broadcaster,
    leader::fence::Fence,
    metrics::Metrics,
    object::{KindName, Object, ObjectKey},
    queue::{LOW_PRIORITY, NORMAL_PRIORITY, Now, Queue, SharedQueue, Standing, When},
    shard::Share,
    trace::{self, Phase, Tracer, Traces, Trigger},
};

/// After this long without a first list, a controller that goes on waiting says loudly which kinds are missing.
const SYNC_PATIENCE: Duration = Duration::from_secs(120);

/// What a manager gives its controllers.
pub(crate) struct Environment<'a> {
    pub(crate) client: kube::Client,
    pub(crate) cache: Cache,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) barrier_metrics: BarrierFamilies,
    pub(crate) events: &'a Broadcaster,
    pub(crate) traces: &'a Traces,
    /// Which keys are worked on here.
    pub(crate) share: Share,
    /// Whether one replica works for all, and another may have worked before.
    pub(crate) is_elected: bool,
    /// How many workers controllers of a kind have that don't say it themselves, by `Kind.group`.
    pub(crate) concurrency: BTreeMap<String, usize>,
    /// Until when the lease is held that work needs, if it needs one.
    pub(crate) fence: Fence,
    /// The client for such work.
    pub(crate) fenced: kube::Client,
}

impl Environment<'_> {
    /// From here on, work needs a lease.
    pub(crate) fn raise_fence(&mut self) {
        self.fenced = self.fence.guard(&self.client, self.clock.clone());
    }
}

/// A controller that listens to the cache already, and can be run when that is started.
pub(crate) struct Prepared {
    run: Box<Run>,
}

type Run = dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, Result<(), ControllerError>> + Send;

impl Prepared {
    /// Runs until `stop`, and until the workers have ended by themselves, or were aborted after their time or on `abort`. When it
    /// can't go on it cancels `stop` itself.
    pub(crate) fn run(
        self,
        stop: CancellationToken,
        abort: CancellationToken,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        (self.run)(stop, abort)
    }
}

impl<K: Object> Controller<K> {
    /// Makes the cache keep the controller's kinds, and their changes wake its keys.
    pub(crate) fn prepare(self, environment: &Environment<'_>) -> Prepared {
        let Self { name, field_manager, client, timeout, predicate, sources, outside, work, is_exclusive, .. } = self;
        let share = if is_exclusive { environment.share.clone() } else { Share::default() };
        let sender = if is_exclusive { &environment.fenced } else { &environment.client };
        let field_manager = field_manager.unwrap_or_else(|| format!("{name}-controller"));
        let of_kind = || environment.concurrency.get(&KindName::of::<K>().group_kind()).copied();
        let concurrency = self.concurrency.or_else(of_kind).unwrap_or(1).max(1);
        let api = Client::new(sender.clone()).field_owner(&field_manager);
        let api = client.map_or(api.clone(), |wrap| wrap(api));
        let metrics = LoopMetrics {
            controller: environment.metrics.controller(&name, concurrency),
            queue: environment.metrics.queue(&name),
            barrier: environment.barrier_metrics.controller(&name),
        };
        let queue = Queue::seeded(self.backoff, environment.random.u64());
        let queue = Arc::new(SharedQueue::of(queue, environment.clock.clone(), metrics.queue.clone()));
        let sources = [Source::reconciled::<K>(predicate)].into_iter().chain(sources).collect::<Vec<_>>();
        let surroundings = Surroundings {
            queue: queue.clone(),
            cache: environment.cache.clone(),
            kinds: sources.iter().map(|source| Arc::new(source.kind.clone())).collect(),
            reconciled: Reader::<K>::new(environment.cache.kind::<K>(), None),
            share: share.clone(),
        };
        let tracer = environment.traces.controller(&name, [K::group(&()), K::kind(&())], concurrency, surroundings);
        let keys = Reader::<K>::new(environment.cache.kind::<K>(), None);
        let rank = self.priority.map(|rank| ranked(rank, keys.clone()));
        let wake = waking(&queue, tracer.as_ref(), rank.clone());
        let bell = bell(&queue, tracer.as_ref(), rank.clone());
        let watching = Watching::new(environment.cache.clone(), wake.clone(), bell);
        let (kinds, types) = wire(&environment.cache, &queue, &wake, sources);
        let wanted = queue.clone();
        let wake: WakeGained = Box::new(move |gained| {
            let gained = keys.keys(None, &Selector::default()).into_iter().filter(|key| gained(key));
            gained.for_each(|key| {
                let priority = standing(LOW_PRIORITY, rank.as_ref(), &key);
                wanted.add(key, priority, When::Now);
            });
        });
        let gains = Gains::default();
        if is_exclusive && environment.is_elected {
            gains.all();
        }
        let (held, bell) = (gains.clone(), queue.clone());
        share.on_gain(move |gained| {
            held.some(gained);
            bell.ring();
        });
        let services = Arc::new(Services {
            api,
            cache: environment.cache.clone(),
            kinds,
            types,
            watching,
            clock: environment.clock.clone(),
            random: environment.random.clone(),
            recorder: environment.events.recorder(&field_manager),
            controller: name,
        });
        let dispatcher = Dispatcher {
            services,
            #[cfg(feature = "opentelemetry")]
            kind: KindName::of::<K>(),
            work,
            queue,
            barrier: Barrier::default(),
            concurrency,
            timeout,
            workers: JoinSet::new(),
            share,
            takeover: Takeover::new(gains),
            proofs: JoinSet::new(),
            wake,
            metrics,
            tracer,
            recovers: self.recovers,
            limit: self.rate_limit.map(|limit| Mutex::new(Bucket::new(limit))),
        };
        let patience = self.cache_sync_timeout;
        Prepared { run: Box::new(move |stop, abort| run(dispatcher, outside, patience, stop, abort).boxed()) }
    }
}

/// What a controller's traces ask for.
struct Surroundings<K> {
    queue: Arc<SharedQueue>,
    cache: Cache,
    kinds: BTreeSet<Arc<KindName>>,
    reconciled: Reader<K>,
    share: Share,
}

impl<K: Object> trace::Surroundings for Surroundings<K> {
    fn now(&self) -> Now {
        self.queue.now()
    }

    fn exists(&self, key: &ObjectKey) -> bool {
        self.reconciled.contains(key)
    }

    fn standing(&self, key: &ObjectKey) -> Standing {
        self.queue.with(|queue, now| queue.standing(key, now))
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

/// The kinds, and the types that they are read as.
type Declared = (BTreeSet<Arc<KindName>>, BTreeSet<(Arc<KindName>, TypeId)>);

/// What is added to the priority of a key.
type Rank = Arc<dyn Fn(&ObjectKey) -> i32 + Send + Sync>;

/// By the object of the key: nothing, if there is none. It is an operator's code.
fn ranked<K: Object>(rank: impl Fn(&K) -> i32 + Send + Sync + 'static, objects: Reader<K>) -> Rank {
    Arc::new(move |key| {
        let Some(object) = objects.get(key) else { return 0 };
        catch_unwind(AssertUnwindSafe(|| rank(&object))).unwrap_or_else(|_| {
            error!(object = %key, "a controller's priority panicked: the key waits as if there were none");
            0
        })
    })
}

fn standing(priority: i32, rank: Option<&Rank>, key: &ObjectKey) -> i32 {
    rank.map_or(priority, |rank| priority.saturating_add(rank(key)))
}

/// Wakes keys, and notes why.
fn waking(queue: &Arc<SharedQueue>, tracer: Option<&Arc<Tracer>>, rank: Option<Rank>) -> Wake {
    let (waking, tracer) = (queue.clone(), tracer.cloned());
    Arc::new(move |key, given: Option<i32>, delta: &Delta<'_>| {
        // This may compare two states of the object, so no lock may be held.
        let trigger = tracer.as_ref().map(|tracer| tracer.trigger(delta));
        let priority = given.unwrap_or_else(|| standing(priority(delta), rank.as_ref(), &key));
        waking.add_noting(key, priority, When::Now, |key, now| {
            if let (Some(tracer), Some(trigger)) = (&tracer, trigger) {
                tracer.wanted(key, trigger, now.wall);
            }
        });
    })
}

/// Wakes keys that wait for the list of a kind.
fn bell(queue: &Arc<SharedQueue>, tracer: Option<&Arc<Tracer>>, rank: Option<Rank>) -> Bell {
    let (queue, tracer) = (queue.clone(), tracer.cloned());
    Arc::new(move |key, kind| {
        let Some(key) = key else { return queue.ring() };
        let priority = standing(NORMAL_PRIORITY, rank.as_ref(), key);
        queue.add_noting(key.clone(), priority, When::Now, |key, now| {
            if let Some(tracer) = &tracer {
                tracer.wanted(key, Trigger::listed(kind), now.wall);
            }
        });
    })
}

/// Connects the sources with the cache and the queue; returns what they declare.
fn wire(cache: &Cache, queue: &Arc<SharedQueue>, wake: &Wake, sources: Vec<Source>) -> Declared {
    let (mut kinds, mut types) = (BTreeSet::new(), BTreeSet::new());
    for source in sources {
        (source.wire)(cache, wake.clone());
        let kind = Arc::new(source.kind);
        types.insert((kind.clone(), source.of));
        kinds.insert(kind);
    }
    for kind in kinds.iter().filter_map(|kind| cache.find(kind)) {
        let queue = queue.clone();
        // The barrier may be waiting for what has just been seen.
        kind.on_advance(Arc::new(move || queue.ring()));
    }
    (kinds, types)
}

/// Starts what wakes keys from outside, waits for the first lists, then works.
async fn run(
    dispatcher: Dispatcher,
    outside: Vec<RunSource>,
    patience: Option<Duration>,
    stop: CancellationToken,
    abort: CancellationToken,
) -> Result<(), ControllerError> {
    let Services { controller, cache, kinds, .. } = dispatcher.services.as_ref();
    dispatcher.enter(Phase::Syncing);
    let controller = controller.clone();
    let mut sources = JoinSet::new();
    let share = &dispatcher.share;
    let waker = Waker::new(dispatcher.queue.clone(), dispatcher.tracer.clone(), &controller, share.clone());
    let called = waker.clone();
    share.on_call(&controller, move |key| called.want(key, NORMAL_PRIORITY));
    for source in outside {
        let waker = waker.clone();
        sources.spawn(listen(controller.clone(), source, waker, stop.clone()));
    }
    let synced = async {
        loop {
            match (cache.wait_for_sync(kinds, patience.unwrap_or(SYNC_PATIENCE)).await, patience) {
                (Ok(()), _) => return Ok(()),
                (Err(missing), Some(timeout)) => {
                    return Err(ControllerError::NotSynced {
                        controller: controller.clone(),
                        timeout,
                        missing: missing.to_string(),
                    });
                }
                (Err(error), None) => error!(controller, %error, "still waiting"),
            }
        }
    };
    let result = match stop.run_until_cancelled(synced).await {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(())) => {
            info!(controller, workers = dispatcher.concurrency, "working");
            dispatcher.enter(Phase::Working);
            dispatcher.run(stop, abort).await
        }
    };
    sources.shutdown().await;
    result
}

/// Runs a source until it ends, or the controller does. It is an operator's code: a panic in it ends nothing else.
async fn listen(controller: String, source: RunSource, waker: Waker, stop: CancellationToken) {
    let listening = AssertUnwindSafe(async { source(waker).await }).catch_unwind();
    if let Some(Err(_)) = stop.run_until_cancelled(listening).await {
        error!(controller, "a source panicked: it wakes no more keys");
    }
}
