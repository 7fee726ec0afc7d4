//! From a controller's wiring to a controller that can run.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::{sync::watch, task::JoinSet};
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
    cache::{AnyKind, Cache},
    client::ApiClient,
    context::Services,
    event::Broadcaster,
    metrics::Metrics,
    object::Object,
    queue::{SharedQueue, When},
};

/// After this long without a first list, say loudly which kinds are missing. The controller goes on waiting.
const SYNC_PATIENCE: Duration = Duration::from_secs(120);

/// What a manager gives its controllers.
pub(crate) struct Environment<'a> {
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) barrier_metrics: BarrierFamilies,
    pub(crate) events: &'a Broadcaster,
}

/// A controller that listens to the cache already, and can be run when that is started.
pub(crate) struct Prepared {
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>,
}

impl Prepared {
    /// Runs until the token is cancelled, and the workers are drained.
    pub(crate) fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (self.run)(stop)
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
        let kinds = wire(&environment.cache, &queue, [Source::reconciled::<K>(predicate)].into_iter().chain(sources));
        let services = Arc::new(Services {
            api: ApiClient::new(environment.client.clone(), &field_manager),
            cache: environment.cache.clone(),
            kinds: kinds.iter().map(|(id, _)| *id).collect(),
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
            metrics,
        };
        let kinds = kinds.into_iter().map(|(_, kind)| kind).collect();
        Prepared { run: Box::new(|stop| run(dispatcher, kinds, stop).boxed()) }
    }
}

type Kinds = Vec<(std::any::TypeId, Arc<dyn AnyKind>)>;

/// Connects the sources with the cache and the queue; returns the kinds, each once.
fn wire(cache: &Cache, queue: &Arc<SharedQueue>, sources: impl Iterator<Item = Source>) -> Kinds {
    let waking = queue.clone();
    let wake: Wake = Arc::new(move |key, priority| waking.add(key, priority, When::Now));
    let mut ids = BTreeSet::new();
    for source in sources {
        (source.wire)(cache, wake.clone());
        ids.insert(source.id);
    }
    let kinds = ids.into_iter().filter_map(|id| cache.any_kind(id).map(|kind| (id, kind))).collect::<Kinds>();
    for (_, kind) in &kinds {
        let queue = queue.clone();
        // The barrier may be waiting for what has just been seen.
        kind.on_advance(Arc::new(move || queue.ring()));
    }
    kinds
}

/// Waits for the first lists, then works.
async fn run(dispatcher: Dispatcher, kinds: Vec<Arc<dyn AnyKind>>, stop: CancellationToken) {
    let controller = dispatcher.services.controller.clone();
    let synced = kinds.iter().map(|kind| kind.synced()).collect::<Vec<_>>();
    let complain = async {
        loop {
            tokio::time::sleep(SYNC_PATIENCE).await;
            for kind in kinds.iter().filter(|kind| !kind.is_synced()) {
                let reason = kind.failure().unwrap_or_default();
                error!(controller, kind = %kind.name(), reason, "still waiting for the first list of a kind");
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => return,
        () = all_synced(synced) => {}
        () = complain => {}
    }
    info!(controller, workers = dispatcher.concurrency, "working");
    dispatcher.run(stop).await;
}

async fn all_synced(kinds: Vec<watch::Receiver<bool>>) {
    for mut kind in kinds {
        // The sender lives as long as the cache.
        let _ = kind.wait_for(|synced| *synced).await;
    }
}
