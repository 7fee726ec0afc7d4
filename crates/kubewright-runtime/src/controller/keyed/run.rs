//! The loop of a controller whose keys are no Kubernetes objects.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, error, error_span, info, warn};

use super::{Key, KeyContext, KeyController, KeyWaker};
use crate::{
    action::Action,
    cache::Delta,
    client::Client,
    controller::{
        dispatch::{exemplar_labels, reconcile_id},
        outcome::Outcomes,
        prepare::{Environment, Prepared, listen, synced},
        run::Failure,
        source::priority,
        wiring::Wiring,
        worker::{End, isolated},
    },
    limit::Bucket,
    object::Object,
    predicate::{Change, Predicate},
    queue::{Queue, SharedQueue, Taken, When},
};

/// A reconciler.
pub(super) type Work<Q> = dyn Fn(Q, KeyContext) -> BoxFuture<'static, Result<Action, Failure>> + Send + Sync;

/// A task that enqueues keys while the controller runs.
pub(super) type Source<Q> = Box<dyn FnOnce(KeyWaker<Q>) -> BoxFuture<'static, ()> + Send>;

/// Adds a kind to the cache, and makes its changes enqueue keys.
pub(super) type Connect<Q> = Box<dyn FnOnce(&mut Wiring, Arc<SharedQueue<Q>>) + Send>;

/// Returns what makes the changes of a kind that pass enqueue the keys of both states.
pub(super) fn changes<T: Object, Q: Key>(
    predicate: Predicate<T>,
    mapper: impl Fn(&T) -> Vec<Q> + Send + Sync + 'static,
) -> Connect<Q> {
    Box::new(move |wiring, queue| {
        let kind = wiring.kind::<T>(&());
        wiring.on_change(&kind, move |delta: &Delta<'_>| {
            let keys = delta.with(|change: Change<'_, T>| match predicate.passes(change) {
                true => change.old().into_iter().chain([change.object()]).flat_map(&mapper).collect(),
                false => BTreeSet::new(),
            });
            keys.into_iter().flatten().for_each(|key| queue.add(key, priority(delta), When::Now));
        });
    })
}

impl<Q: Key> KeyController<Q> {
    /// Adds the controller's kinds to the cache, and makes their changes enqueue its keys.
    pub(crate) fn prepare(self, environment: &Environment) -> Prepared {
        let Self { name, field_manager, concurrency, is_exclusive, connects, sources, work, timeout, .. } = self;
        let sender = if is_exclusive { &environment.fenced } else { &environment.client };
        let field_manager = field_manager.unwrap_or_else(|| format!("{name}-controller"));
        let agent = format!("{}/{name}", environment.agent);
        let client = Client::new(sender.clone()).field_owner(&field_manager).user_agent(&agent);
        let (metrics, queue_metrics) =
            (environment.metrics.controller(&name, concurrency), environment.metrics.queue(&name));
        let queue = Queue::seeded(self.backoff, environment.random.u64());
        let queue = Arc::new(SharedQueue::of(queue, environment.clock.clone(), queue_metrics.clone()));
        let mut wiring = Wiring::new(environment.cache.clone(), false);
        connects.into_iter().for_each(|connect| connect(&mut wiring, queue.clone()));
        let cancel = CancellationToken::new();
        let context =
            KeyContext { client, clock: environment.clock.clone(), random: environment.random.clone(), cancel };
        let limit = self.rate_limit.map(|limit| Mutex::new(Bucket::new(limit)));
        let random = environment.random.clone();
        let outcomes = Outcomes { queue: queue.clone(), random, metrics, queue_metrics, limit };
        let workers = JoinSet::new();
        let runner = Runner { name: name.clone(), queue, outcomes, concurrency, timeout, context, work, workers };
        let (cache, names, kinds) = (environment.cache.clone(), wiring.names(), wiring.kinds());
        let run = Box::new(move |stop: CancellationToken, abort| {
            async move {
                match stop.run_until_cancelled(synced(&cache, &names, &runner.name, None)).await {
                    Some(Ok(())) => runner.run(sources, stop, abort).await,
                    Some(Err(error)) => return Err(error),
                    None => {}
                }
                Ok(())
            }
            .boxed()
        });
        let environment = environment.clone();
        let detach = Box::new(move || {
            wiring.undo();
            environment.metrics.forget(&name);
        });
        Prepared::new(run, kinds, detach)
    }
}

/// The state of the loop.
struct Runner<Q> {
    name: String,
    queue: Arc<SharedQueue<Q>>,
    outcomes: Outcomes<Q>,
    concurrency: usize,
    timeout: Option<Duration>,
    /// The context of all runs, but for the token.
    context: KeyContext,
    work: Arc<Work<Q>>,
    workers: JoinSet<Report<Q>>,
}

/// The result of a run.
struct Report<Q> {
    key: Q,
    priority: i32,
    end: End,
    span: Span,
}

impl<Q: Key> Runner<Q> {
    /// Runs until `stop`, then takes no more keys and waits for the workers, which are aborted on `abort`.
    async fn run(mut self, sources: Vec<Source<Q>>, stop: CancellationToken, abort: CancellationToken) {
        let mut listening = JoinSet::new();
        for source in sources {
            let waker = KeyWaker(self.queue.clone());
            listening.spawn(listen(self.name.clone(), move || source(waker), stop.clone()));
        }
        info!(controller = self.name, workers = self.concurrency, "reconciling");
        loop {
            self.start_workers(&stop);
            let is_free = self.workers.len() < self.concurrency;
            let pause = self.queue.with(|queue, now| queue.next_wake(now)).filter(|_| is_free);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(report) = self.workers.join_next() => self.finish(report),
                () = self.queue.changed(pause) => {}
            }
        }
        listening.shutdown().await;
        self.drain(abort).await;
    }

    fn start_workers(&mut self, stop: &CancellationToken) {
        while self.workers.len() < self.concurrency {
            let Some(taken) = self.queue.with(|queue, now| queue.take(now)) else { return };
            self.start(taken, stop);
        }
    }

    fn start(&mut self, taken: Taken<Q>, stop: &CancellationToken) {
        let Taken { key, priority, waited, .. } = taken;
        let id = reconcile_id(&self.context.random);
        let span = error_span!("reconcile", controller = self.name, key = %key, reconcile_id = id);
        let labels = || exemplar_labels(&id, &span);
        let timers = (self.outcomes.queue_metrics.taken(waited), self.outcomes.metrics.started_as(labels));
        let (cancel, timeout) = (stop.child_token(), self.timeout);
        let run = (self.work)(key.clone(), KeyContext { cancel: cancel.clone(), ..self.context.clone() });
        let task = {
            let span = span.clone();
            async move {
                // Tasks that the run has spawned see the cancellation when it ends, in whatever way.
                let _over = cancel.clone().drop_guard();
                let run = async { run.await.map_or_else(End::Failed, End::Done) };
                let end = isolated(run, timeout, &cancel).await;
                drop(timers);
                Report { key, priority, end, span }
            }
        };
        self.workers.spawn(task.instrument(span));
    }

    /// Handles the end of a run.
    fn finish(&self, report: Result<Report<Q>, JoinError>) {
        let Report { key, priority, end, span } = match report {
            Ok(report) => report,
            // A run catches panics, and is aborted only after the loop.
            Err(error) => return error!(%error, "a worker panicked"),
        };
        let asked =
            if let End::Done(action) = &end { action.requeue.and_then(|requeue| requeue.priority) } else { None };
        let next = span.in_scope(|| self.outcomes.judge(&key, end));
        self.queue.with(|queue, now| {
            queue.done(&key);
            if let Some(when) = next {
                queue.add(key, asked.unwrap_or(priority), when, now);
            }
        });
    }

    async fn drain(mut self, abort: CancellationToken) {
        self.queue.with(|queue, _| queue.close());
        loop {
            tokio::select! {
                biased;
                report = self.workers.join_next() => match report {
                    Some(report) => self.finish(report),
                    None => return,
                },
                () = abort.cancelled() => break,
            }
        }
        warn!(controller = self.name, working = self.workers.len(), "aborting reconciles");
        self.workers.shutdown().await;
    }
}
