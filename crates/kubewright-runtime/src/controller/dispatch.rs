//! The loop of a controller, which hands keys from the queue to a bounded number of workers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::random::Random;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, error, error_span, info, warn};

use super::{
    ControllerError,
    barrier::{Barrier, CacheView, Readiness, Scope, Stale},
    concurrency_limit::{Permit, Permits},
    metrics::BarrierMetrics,
    outcome::Outcomes,
    run::Work,
    takeover::{Step, Takeover},
    worker::{End, Job, Report},
};
use crate::{
    cache::SyncCheck,
    context::{Expectation, Services},
    metrics::{ActiveWorker, ControllerMetrics, QueueMetrics, WorkTimer},
    object::ObjectKey,
    queue::{Now, SharedQueue, Taken, When},
    shard::{Acquired, KeyGuard, Share},
    trace::{Begun, Next, Phase, Reason, RunRecorder, Tracer, Trigger, Triggers},
};

/// The state of the loop.
pub(super) struct Dispatcher {
    pub(super) services: Arc<Services>,
    #[cfg(feature = "opentelemetry")]
    pub(super) kind: crate::object::KindName,
    pub(super) work: Arc<dyn Work>,
    pub(super) queue: Arc<SharedQueue>,
    pub(super) barrier: Barrier,
    pub(super) concurrency: usize,
    /// The permits of a limit that is shared with other controllers.
    pub(super) permits: Permits,
    pub(super) timeout: Option<Duration>,
    pub(super) workers: JoinSet<Report>,
    pub(super) share: Share,
    pub(super) takeover: Takeover<SyncCheck>,
    /// The lists of a takeover.
    pub(super) sync_checks: JoinSet<Vec<SyncCheck>>,
    pub(super) enqueue_acquired: EnqueueAcquired,
    pub(super) metrics: Metrics,
    /// Absent if traces are off.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// Whether a panic counts as a failure, and doesn't end the manager.
    pub(super) recovers: bool,
    pub(super) outcomes: Outcomes<ObjectKey>,
}

/// Enqueues the acquired keys.
pub(super) type EnqueueAcquired = Box<dyn Fn(&Acquired) + Send + Sync>;

/// The metrics of the loop.
pub(super) struct Metrics {
    pub(super) controller: ControllerMetrics,
    pub(super) queue: QueueMetrics,
    pub(super) barrier: BarrierMetrics,
}

impl Dispatcher {
    /// Runs until `stop`, then takes no more keys and waits for the workers, which are aborted on `abort`. No worker is
    /// left when it returns.
    ///
    /// # Errors
    /// When a reconciler panicked and panics are not recovered. It has cancelled `stop` then.
    pub(super) async fn run(
        mut self,
        stop: CancellationToken,
        abort: CancellationToken,
    ) -> Result<(), ControllerError> {
        let mut result = Ok(());
        while result.is_ok() {
            let now = self.queue.now().monotonic;
            self.take_over();
            self.unpark(now);
            self.start_workers(&stop);
            self.catch_up(now);
            let pause = self.next_wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(report) = self.workers.join_next() => result = self.finish(report),
                Some(checks) = self.sync_checks.join_next() => self.listed(checks),
                () = self.permits.freed() => {}
                () = self.queue.changed(pause) => {}
            }
        }
        if result.is_err() {
            stop.cancel();
        }
        self.permits.give_up();
        self.drain(abort).await;
        result
    }

    /// Records the controller's phase for the traces.
    pub(super) fn enter(&self, phase: Phase) {
        if let Some(tracer) = &self.tracer {
            tracer.enter(phase);
        }
    }

    /// Starts runs of the next keys while there are free workers.
    fn start_workers(&mut self, stop: &CancellationToken) {
        while self.workers.len() < self.concurrency {
            let is_due = || self.queue.with(|queue, now| queue.next_wake(now)) == Some(Duration::ZERO);
            let Some(permit) = self.permits.take(is_due) else { return };
            let Some((taken, triggers, now)) = self.take() else { return };
            let Some(guard) = self.share.begin(&taken.key) else {
                // The key's owner sees the same events. If this replica acquires the key, it is enqueued again.
                self.services.watches.end_run(&taken.key, true);
                self.queue.with(|queue, _| {
                    queue.forget(&taken.key);
                    queue.done(&taken.key);
                });
                continue;
            };
            if self.takeover.park(&taken.key) {
                self.hold(&taken.key, triggers);
                continue;
            }
            match self.barrier.check(&taken.key, now.monotonic, CurrentCache(&self.services)) {
                Readiness::Ready { stale } => self.start(taken, (guard, permit), triggers, stale, now, stop),
                Readiness::Blocked => {
                    self.metrics.barrier.waited();
                    // If the cache has caught up since the check, its notification ends the loop's next wait.
                    self.hold(&taken.key, triggers);
                }
            }
        }
    }

    fn hold(&self, key: &ObjectKey, triggers: Triggers) {
        self.queue.with(|queue, now| {
            queue.park(key);
            if let Some(tracer) = &self.tracer {
                tracer.held(key, triggers, now);
            }
        });
    }

    /// Takes the next key with its triggers. Later triggers belong to its next run.
    fn take(&self) -> Option<(Taken<ObjectKey>, Triggers, Now)> {
        self.queue.with(|queue, now| {
            let taken = queue.take(now)?;
            let triggers = self.tracer.as_ref().map(|tracer| tracer.taken(&taken, now)).unwrap_or_default();
            Some((taken, triggers, now))
        })
    }

    fn start(
        &mut self,
        taken: Taken<ObjectKey>,
        holds: (KeyGuard, Permit),
        triggers: Triggers,
        stale: Stale,
        now: Now,
        stop: &CancellationToken,
    ) {
        let Taken { key, priority, waited, failures, .. } = taken;
        let id = reconcile_id(&self.services.random);
        // At the error level, so that the fields appear in lines of every level.
        let span = error_span!(
            "reconcile",
            controller = %self.services.controller,
            // Not `name`, which is the span's own field in JSON.
            object = %key,
            reconcile_id = id,
        );
        let attempt = failures.saturating_add(1);
        #[cfg(feature = "opentelemetry")]
        crate::telemetry::describe(&span, &self.kind, &key, attempt);
        let mut begun = Begun { key: key.clone(), id, attempt, triggers, queued: waited, held: None, started: now };
        let recorder = self.tracer.as_ref().map_or_else(RunRecorder::default, |tracer| {
            tracer.began(&mut begun);
            RunRecorder::new(self.services.clock.clone(), tracer.has_versions())
        });
        let labels = || exemplar_labels(&begun.id, &span);
        let timers: (WorkTimer, ActiveWorker) =
            (self.metrics.queue.taken(waited), self.metrics.controller.started_as(labels));
        let job = Job {
            services: self.services.clone(),
            work: self.work.clone(),
            key,
            priority,
            stale,
            timeout: self.timeout,
            cancel: stop.child_token(),
            span: span.clone(),
            begun,
            recorder,
        };
        let task = async move {
            let report = job.run().await;
            drop(timers);
            drop(holds);
            report
        };
        self.workers.spawn(task.instrument(span));
    }

    /// Unparks the keys whose expected states have arrived, or whose timeout has expired.
    fn unpark(&mut self, now: Duration) {
        for (key, missing) in self.barrier.released(now, CurrentCache(&self.services)) {
            if let Some(missing) = missing {
                let Services { controller, cache, .. } = self.services.as_ref();
                warn!(controller, object = %key, kind = %missing.kind, "the cache is behind: reading live");
                self.metrics.barrier.timed_out();
                let kind = cache.find(&missing.kind).filter(|_| self.barrier.should_relist(&missing, now));
                kind.into_iter().for_each(|kind| kind.catch_up(missing.namespace.as_deref()));
            }
            self.queue.with(|queue, _| queue.unpark(&key));
        }
    }

    /// Enqueues acquired keys, and unparks those for which the cache shows the writes of their former owners.
    fn take_over(&mut self) {
        let controller = &self.services.controller;
        self.takeover.take_acquired().iter().for_each(&self.enqueue_acquired);
        if let Some(parked) = self.takeover.released(SyncCheck::passes) {
            debug!(controller, keys = parked.len(), "the cache has caught up with the former owner of the keys");
            self.queue.with(|queue, _| parked.iter().for_each(|key| queue.unpark(key)));
        }
    }

    /// Makes the cache catch up with the writes of the keys' former owners.
    fn catch_up(&mut self, now: Duration) {
        let controller = &self.services.controller;
        match self.takeover.step(now) {
            Step::Wait => {}
            Step::List => drop(self.sync_checks.spawn(list(self.services.clone()))),
            Step::Relist => {
                let missing = self.takeover.missing();
                let kinds = missing.iter().map(|check| check.kind().to_string()).collect::<BTreeSet<_>>();
                warn!(controller, ?kinds, "the cache is behind the former owner of the keys: it lists again");
                missing.iter().for_each(SyncCheck::relist);
            }
        }
    }

    fn listed(&mut self, checks: Result<Vec<SyncCheck>, JoinError>) {
        match checks {
            Ok(checks) => self.takeover.listed(checks, self.queue.now().monotonic),
            Err(error) => {
                error!(%error, "the lists of a takeover panicked");
                self.takeover.failed();
            }
        }
    }

    fn next_wake(&self) -> Option<Duration> {
        // With all workers busy, only the end of a run or a parked key matters.
        let is_free = self.workers.len() < self.concurrency && !self.permits.is_waiting();
        let (queue, now) = self.queue.with(|queue, now| (queue.next_wake(now), now.monotonic));
        let queue = queue.filter(|_| is_free);
        let deadlines = self.barrier.next_deadline().into_iter().chain(self.takeover.next_deadline());
        queue.into_iter().chain(deadlines.map(|deadline| deadline.saturating_sub(now))).min()
    }

    /// Handles the end of a run.
    ///
    /// # Errors
    /// If it panicked and panics are not recovered.
    fn finish(&mut self, report: Result<Report, JoinError>) -> Result<(), ControllerError> {
        let Report { key, priority, end, expectations, read_live, span, begun, notes } = match report {
            Ok(report) => report,
            // A job catches panics, and is aborted only after the loop.
            Err(error) => {
                error!(%error, "a worker panicked");
                return Ok(());
            }
        };
        self.barrier.expect(&key, expectations, &read_live);
        self.services.watches.end_run(&key, matches!(end, End::Done(_)));
        let how = self.tracer.as_ref().map(|_| end.traced());
        let result = self.survives(&key, &end);
        let asked =
            if let End::Done(action) = &end { action.requeue.and_then(|requeue| requeue.priority) } else { None };
        let priority = asked.unwrap_or(priority);
        let next = span.in_scope(|| self.outcomes.judge(&key, end));
        self.queue.with(|queue, now| {
            if let (Some(tracer), Some(how)) = (&self.tracer, how) {
                let next = traced(next, now);
                let again = next == Next::Now;
                tracer.ended(begun, now.monotonic, notes, how, next);
                if again {
                    tracer.wanted(&key, Trigger::new(Reason::Requeue), now.wall);
                }
            }
            queue.done(&key);
            if let Some(when) = next {
                queue.add(key, priority, when, now);
            }
        });
        result
    }

    fn survives(&self, key: &ObjectKey, end: &End) -> Result<(), ControllerError> {
        let End::Panicked(message) = end else { return Ok(()) };
        if self.recovers {
            return Ok(());
        }
        let (controller, object) = (self.services.controller.clone(), key.clone());
        Err(ControllerError::Panicked { controller, object, message: message.clone() })
    }

    async fn drain(mut self, abort: CancellationToken) {
        self.enter(Phase::Stopping);
        self.queue.with(|queue, _| queue.close());
        self.sync_checks.shutdown().await;
        let controller = &self.services.controller;
        if !self.workers.is_empty() {
            info!(controller, working = self.workers.len(), "waiting for reconciles to end");
        }
        loop {
            tokio::select! {
                biased;
                report = self.workers.join_next() => match report {
                    // The first panic is returned.
                    Some(report) => drop(self.finish(report)),
                    None => return,
                },
                () = abort.cancelled() => break,
            }
        }
        let controller = &self.services.controller;
        warn!(controller, working = self.workers.len(), "aborting reconciles");
        self.workers.shutdown().await;
    }
}

/// Lists the kinds that the controller reads.
async fn list(services: Arc<Services>) -> Vec<SyncCheck> {
    let mut checks = Vec::new();
    let declared = services.kinds.iter().filter_map(|kind| services.cache.find(kind));
    // For a kind without a complete list, the first list will be new enough.
    let watched = services.watches.kinds().into_iter().filter(|kind| kind.is_synced());
    let mut kinds = declared.chain(watched).collect::<Vec<_>>();
    kinds.sort_by(|one, other| one.name().cmp(other.name()));
    kinds.dedup_by(|one, other| one.name() == other.name());
    for kind in kinds {
        checks.extend(SyncCheck::of(&kind, &services.api, &services.random).await);
    }
    checks
}

/// The cache as it is now.
struct CurrentCache<'a>(&'a Services);

impl CacheView for CurrentCache<'_> {
    fn shows(&self, expected: &Expectation) -> bool {
        match (self.0.cache.find(&expected.kind), &expected.state) {
            (Some(kind), Some(state)) => kind.shows(expected.namespace.as_deref(), state),
            _ => true,
        }
    }

    fn watch(&self, expected: &Expectation) -> Scope {
        let kind = self.0.cache.find(&expected.kind);
        let namespace = expected.namespace.as_deref();
        let scope = kind.as_ref().map_or(namespace, |kind| kind.scope_of(namespace));
        (expected.kind.clone(), scope.map(Into::into))
    }
}

/// Returns the time of the key's next run as it appears in the trace.
fn traced(when: Option<When>, now: Now) -> Next {
    match when {
        None => Next::Change,
        Some(When::After(delay)) if !delay.is_zero() => {
            let time = SignedDuration::try_from(delay).ok().and_then(|delay| now.wall.checked_add(delay).ok());
            Next::After { delay, time: time.unwrap_or(Timestamp::MAX) }
        }
        Some(When::At(time)) if time > now.wall => Next::At { time },
        Some(_) => Next::Now,
    }
}

/// Returns what names a reconcile in an exemplar.
pub(super) fn exemplar_labels(id: &str, span: &Span) -> Vec<(&'static str, String)> {
    let labels = [("reconcile_id", id.to_owned())].into_iter();
    #[cfg(feature = "opentelemetry")]
    let labels = labels.chain(crate::telemetry::trace_id(span).map(|id| ("trace_id", id)));
    #[cfg(not(feature = "opentelemetry"))]
    let _ = span;
    labels.collect()
}

pub(super) fn reconcile_id(random: &Random) -> String {
    format!("{:016x}", random.u64())
}
