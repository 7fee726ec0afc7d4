//! From a controller's wiring to a controller that can run.

use std::{any::TypeId, collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::core::Selector;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{
    Controller,
    barrier::Barrier,
    dispatch::{Dispatcher, Metrics as LoopMetrics},
    metrics::BarrierFamilies,
    source::{Source, Wake},
};
use crate::{
    cache::{Cache, Reader},
    client::Client,
    context::Services,
    event::Broadcaster,
    metrics::Metrics,
    object::{Object, ObjectKey},
    queue::{LOW_PRIORITY, Now, SharedQueue, Standing, When},
    shard::Share,
    trace::{self, Phase, Tracer, Traces, Trigger},
};

/// After this long without a first list, say loudly which kinds are missing. The controller goes on waiting.
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
}

/// A controller that listens to the cache already, and can be run when that is started.
pub(crate) struct Prepared {
    run: Box<Run>,
}

type Run = dyn FnOnce(CancellationToken, CancellationToken) -> BoxFuture<'static, ()> + Send;

impl Prepared {
    /// Runs until `stop`, and until the workers have ended by themselves, or were aborted after their time or on `abort`.
    pub(crate) fn run(self, stop: CancellationToken, abort: CancellationToken) -> BoxFuture<'static, ()> {
        (self.run)(stop, abort)
    }
}

impl<K: Object> Controller<K> {
    /// Makes the cache keep the controller's kinds, and their changes wake its keys.
    pub(crate) fn prepare(self, environment: &Environment<'_>) -> Prepared {
        let Self { name, field_manager, concurrency, timeout, predicate, sources, work, .. } = self;
        let field_manager = field_manager.unwrap_or_else(|| format!("{name}-controller"));
        let metrics = LoopMetrics {
            controller: environment.metrics.controller(&name, concurrency),
            queue: environment.metrics.queue(&name),
            barrier: environment.barrier_metrics.controller(&name),
        };
        let queue = Arc::new(SharedQueue::new(environment.clock.clone(), metrics.queue.clone()));
        let sources = [Source::reconciled::<K>(predicate)].into_iter().chain(sources).collect::<Vec<_>>();
        let surroundings = Surroundings {
            queue: queue.clone(),
            cache: environment.cache.clone(),
            kinds: sources.iter().map(|source| source.id).collect(),
            reconciled: Reader::new(environment.cache.kind::<K>()),
        };
        let tracer = environment.traces.controller(&name, K::kind(&()), concurrency, surroundings);
        let kinds = wire(&environment.cache, &queue, tracer.as_ref(), sources);
        let (wanted, keys) = (queue.clone(), Reader::new(environment.cache.kind::<K>()));
        environment.share.on_gain(move |is_gained| {
            let objects = keys.list(None, &Selector::default()).into_iter();
            let gained = objects.map(|object| ObjectKey::of(object.as_ref())).filter(is_gained);
            gained.for_each(|key| wanted.add(key, LOW_PRIORITY, When::Now));
        });
        let services = Arc::new(Services {
            api: Client::new(environment.client.clone()).field_owner(&field_manager),
            cache: environment.cache.clone(),
            kinds,
            clock: environment.clock.clone(),
            random: environment.random.clone(),
            recorder: environment.events.recorder(&field_manager),
            controller: name,
        });
        let dispatcher = Dispatcher {
            services,
            work,
            queue,
            barrier: Barrier::default(),
            concurrency,
            timeout,
            workers: JoinSet::new(),
            share: environment.share.clone(),
            metrics,
            tracer,
        };
        Prepared { run: Box::new(|stop, abort| run(dispatcher, stop, abort).boxed()) }
    }
}

/// What a controller's traces ask for.
struct Surroundings<K> {
    queue: Arc<SharedQueue>,
    cache: Cache,
    kinds: BTreeSet<TypeId>,
    reconciled: Reader<K>,
}

impl<K: Object> trace::Surroundings for Surroundings<K> {
    fn now(&self) -> Now {
        self.queue.now()
    }

    fn exists(&self, key: &ObjectKey) -> bool {
        self.reconciled.get(key).is_some()
    }

    fn standing(&self, key: &ObjectKey) -> Standing {
        self.queue.with(|queue, now| queue.standing(key, now))
    }

    fn ready(&self) -> usize {
        self.queue.with(|queue, _| queue.depths().values().sum())
    }

    fn missing(&self) -> Vec<String> {
        self.cache.unsynced_of(&self.kinds).iter().map(ToString::to_string).collect()
    }
}

/// Connects the sources with the cache and the queue; returns the kinds.
fn wire(
    cache: &Cache,
    queue: &Arc<SharedQueue>,
    tracer: Option<&Arc<Tracer>>,
    sources: Vec<Source>,
) -> BTreeSet<TypeId> {
    let (waking, tracer) = (queue.clone(), tracer.cloned());
    let wake: Wake = Arc::new(move |key, priority, cause| {
        // Comparing takes its time, so the queue isn't kept from others meanwhile.
        let trigger = tracer.as_ref().map(|_| Trigger::of(cause));
        waking.add_noting(key, priority, When::Now, |key, now| {
            if let (Some(tracer), Some(trigger)) = (&tracer, trigger) {
                tracer.wanted(key, trigger.at(now.wall));
            }
        });
    });
    let mut kinds = BTreeSet::new();
    for source in sources {
        (source.wire)(cache, wake.clone());
        kinds.insert(source.id);
    }
    for kind in kinds.iter().filter_map(|id| cache.any_kind(*id)) {
        let queue = queue.clone();
        // The barrier may be waiting for what has just been seen.
        kind.on_advance(Arc::new(move || queue.ring()));
    }
    kinds
}

/// Waits for the first lists, then works.
async fn run(dispatcher: Dispatcher, stop: CancellationToken, abort: CancellationToken) {
    let Services { controller, cache, kinds, .. } = dispatcher.services.as_ref();
    dispatcher.enter(Phase::Syncing);
    let synced = async {
        while let Err(error) = cache.wait_for_sync(kinds, SYNC_PATIENCE).await {
            error!(controller, %error, "still waiting");
        }
    };
    tokio::select! {
        () = stop.cancelled() => return,
        () = synced => {}
    }
    info!(controller, workers = dispatcher.concurrency, "working");
    dispatcher.enter(Phase::Working);
    dispatcher.run(stop, abort).await;
}
