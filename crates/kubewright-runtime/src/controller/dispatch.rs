//! The loop of a controller: from the queue to a bounded number of workers, and back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, error_span, info, warn};

use super::{
    ControllerError,
    barrier::{Barrier, Scope, Shown, Stale, Verdict},
    limit::Bucket,
    metrics::BarrierMetrics,
    run::{Failure, Work},
    takeover::{Step, Takeover},
    worker::{End, Job, Report},
};
use crate::{
    action::{Action, RequeueTime, Retry},
    cache::Proof,
    context::{Services, Write},
    metrics::{ActiveWorker, ControllerMetrics, QueueMetrics, ReconcileResult, WorkTimer},
    object::ObjectKey,
    queue::{Now, SharedQueue, Taken, When},
    shard::{Gained, Share, Ticket},
    trace::{Begun, Next, Phase, Reason, RunRecorder, Tracer, Trigger, Triggers},
};

/// What the loop works with.
pub(super) struct Dispatcher {
    pub(super) services: Arc<Services>,
    #[cfg(feature = "opentelemetry")]
    pub(super) kind: crate::object::KindName,
    pub(super) work: Arc<dyn Work>,
    pub(super) queue: Arc<SharedQueue>,
    pub(super) barrier: Barrier,
    pub(super) concurrency: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) workers: JoinSet<Report>,
    pub(super) share: Share,
    pub(super) takeover: Takeover<Proof>,
    /// The lists of what the cache must show before keys that others worked on are worked on here.
    pub(super) proofs: JoinSet<Vec<Proof>>,
    pub(super) wake: WakeGained,
    pub(super) metrics: Metrics,
    /// Unless traces are off.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// Whether a panic is a failure like others.
    pub(super) recovers: bool,
    /// What bounds how fast failed keys come back, all together.
    pub(super) limit: Option<Mutex<Bucket>>,
}

/// A `Retry-After` counts up to this: it may come from a page that tells people to come back next week.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// Wants the keys that were gained.
pub(super) type WakeGained = Box<dyn Fn(&Gained) + Send + Sync>;

/// Where the loop counts.
pub(super) struct Metrics {
    pub(super) controller: ControllerMetrics,
    pub(super) queue: QueueMetrics,
    pub(super) barrier: BarrierMetrics,
}

impl Dispatcher {
    /// Works until `stop`, then takes no more keys and waits for the workers, which are aborted on `abort`. When it returns
    /// no worker is left.
    ///
    /// # Errors
    /// When a reconciler panicked, and that is not to be a failure like others. Then it has cancelled `stop` itself.
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
                Some(proofs) = self.proofs.join_next() => self.proven(proofs),
                () = self.queue.changed(pause) => {}
            }
        }
        if result.is_err() {
            stop.cancel();
        }
        self.drain(abort).await;
        result
    }

    /// Tells the traces whether the controller works.
    pub(super) fn enter(&self, phase: Phase) {
        if let Some(tracer) = &self.tracer {
            tracer.enter(phase);
        }
    }

    /// Gives the free workers the best keys.
    fn start_workers(&mut self, stop: &CancellationToken) {
        while self.workers.len() < self.concurrency {
            let Some((taken, triggers, now)) = self.take() else { return };
            let Some(ticket) = self.share.begin(&taken.key) else {
                // Its owner has heard of it too. Should it become ours, it is wanted anew.
                self.services.watching.ended(&taken.key, true);
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
            match self.barrier.check(&taken.key, now.monotonic, ByNow(&self.services)) {
                Verdict::Go { stale } => self.start(taken, ticket, triggers, stale, now, stop),
                Verdict::Wait => {
                    self.metrics.barrier.waited();
                    // Should the cache catch up before this, its bell is heard when the loop next waits.
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

    /// The best key, and why it is wanted: what comes after this moment is for its next run.
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
        ticket: Ticket,
        triggers: Triggers,
        stale: Stale,
        now: Now,
        stop: &CancellationToken,
    ) {
        let Taken { key, priority, waited, failures, .. } = taken;
        let id = reconcile_id(&self.services.random);
        // Whatever level is logged, its lines tell of which object they are.
        let span = error_span!(
            "reconcile",
            controller = %self.services.controller,
            // Not `name`: in JSON that is the span's own.
            object = %key,
            reconcile_id = id,
        );
        let attempt = failures.saturating_add(1);
        #[cfg(feature = "opentelemetry")]
        crate::telemetry::describe(&span, &self.kind, &key, attempt);
        let mut begun = Begun { key: key.clone(), id, attempt, triggers, queued: waited, held: None, started: now };
        let recorder = self.tracer.as_ref().map_or_else(RunRecorder::default, |tracer| {
            tracer.began(&mut begun);
            RunRecorder::new(self.services.clock.clone())
        });
        let timers: (WorkTimer, ActiveWorker) = (self.metrics.queue.taken(waited), self.metrics.controller.started());
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
            drop(ticket);
            report
        };
        self.workers.spawn(task.instrument(span));
    }

    /// Makes parked keys ready whose writes have arrived, or whose time has run out.
    fn unpark(&mut self, now: Duration) {
        for (key, overdue) in self.barrier.released(now, ByNow(&self.services)) {
            if let Some(write) = overdue {
                warn!(controller = self.services.controller, object = %key, "the cache is behind: reading live");
                self.metrics.barrier.timed_out();
                let kind = self.services.cache.find(&write.kind).filter(|_| self.barrier.forces(&write, now));
                kind.into_iter().for_each(|kind| kind.catch_up(write.namespace.as_deref()));
            }
            self.queue.with(|queue, _| queue.unpark(&key));
        }
    }

    /// Wants the keys that were gained, and makes those ready whose former owners' writes the cache shows.
    fn take_over(&mut self) {
        let controller = &self.services.controller;
        self.takeover.gained().iter().for_each(&self.wake);
        if let Some(parked) = self.takeover.released(Proof::is_shown) {
            debug!(controller, keys = parked.len(), "the cache shows what was written before this replica took over");
            self.queue.with(|queue, _| parked.iter().for_each(|key| queue.unpark(key)));
        }
    }

    /// Sees to it that the cache comes to show what the former owners of keys wrote.
    fn catch_up(&mut self, now: Duration) {
        let controller = &self.services.controller;
        match self.takeover.step(now) {
            Step::Wait => {}
            Step::List => drop(self.proofs.spawn(prove(self.services.clone()))),
            Step::Force => {
                let missing = self.takeover.missing();
                let kinds = missing.iter().map(|proof| proof.kind().to_string()).collect::<BTreeSet<_>>();
                warn!(
                    controller,
                    ?kinds,
                    "the cache is behind what was written before this replica took over: it is listed anew"
                );
                missing.iter().for_each(Proof::force);
            }
        }
    }

    fn proven(&mut self, proofs: Result<Vec<Proof>, JoinError>) {
        match proofs {
            Ok(proofs) => self.takeover.listed(proofs, self.queue.now().monotonic),
            Err(error) => {
                error!(%error, "the lists of what was written before ended badly");
                self.takeover.failed();
            }
        }
    }

    fn next_wake(&self) -> Option<Duration> {
        // With all workers busy, only their end or the barrier can change anything.
        let is_free = self.workers.len() < self.concurrency;
        let (queue, now) = self.queue.with(|queue, now| (queue.next_wake(now), now.monotonic));
        let queue = queue.filter(|_| is_free);
        let deadlines = self.barrier.next_deadline().into_iter().chain(self.takeover.next_deadline());
        queue.into_iter().chain(deadlines.map(|deadline| deadline.saturating_sub(now))).min()
    }

    /// Takes in a run that has ended. It is an error if it was the last one of all.
    fn finish(&mut self, report: Result<Report, JoinError>) -> Result<(), ControllerError> {
        let Report { key, priority, end, writes, read_live, span, begun, notes } = match report {
            Ok(report) => report,
            // A job catches its panics, and none is aborted before the loop has ended.
            Err(error) => {
                error!(%error, "a worker ended badly");
                return Ok(());
            }
        };
        self.barrier.owe(&key, writes, &read_live);
        self.services.watching.ended(&key, matches!(end, End::Done(_)));
        let how = self.tracer.as_ref().map(|_| end.told());
        let result = self.survives(&key, &end);
        let asked =
            if let End::Done(action) = &end { action.requeue.and_then(|requeue| requeue.priority) } else { None };
        let priority = asked.unwrap_or(priority);
        let next = span.in_scope(|| self.judge(&key, end));
        self.queue.with(|queue, now| {
            if let (Some(tracer), Some(how)) = (&self.tracer, how) {
                let next = told(next, now);
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

    /// Counts and logs the end of a run, and says when the key is wanted again.
    fn judge(&self, key: &ObjectKey, end: End) -> Option<When> {
        let metrics = &self.metrics.controller;
        match end {
            End::Done(action) => {
                self.queue.with(|queue, _| queue.forget(key));
                self.judge_action(action)
            }
            End::Failed(failure) => {
                metrics.finished(ReconcileResult::Error);
                self.judge_failure(key, failure)
            }
            End::Panicked(message) => {
                metrics.finished(ReconcileResult::Error);
                metrics.panicked();
                let delay = self.back_off(key);
                error!(error = message, retry_in = ?delay, "the reconciler panicked");
                Some(When::After(delay))
            }
            End::TimedOut(limit) => {
                metrics.finished(ReconcileResult::Error);
                metrics.timed_out();
                let delay = self.back_off(key);
                error!(?limit, retry_in = ?delay, "the reconcile took too long");
                Some(When::After(delay))
            }
        }
    }

    fn judge_action(&self, action: Action) -> Option<When> {
        let (result, when) = match action.requeue.map(|requeue| requeue.when) {
            None => (ReconcileResult::Success, None),
            Some(RequeueTime::After(delay)) if delay.is_zero() => (ReconcileResult::Requeue, Some(When::Now)),
            Some(RequeueTime::After(delay)) => (ReconcileResult::RequeueAfter, Some(When::After(delay))),
            Some(RequeueTime::At(time)) => (ReconcileResult::RequeueAfter, Some(When::At(time))),
        };
        debug!(?result, ?when, "reconciled");
        self.metrics.controller.finished(result);
        if when.is_some() {
            self.metrics.queue.retried();
        }
        when
    }

    fn judge_failure(&self, key: &ObjectKey, failure: Failure) -> Option<When> {
        let Failure { message, retry, retry_after, is_conflict } = failure;
        let delay = match retry {
            Retry::Terminal => {
                self.metrics.controller.terminal_error();
                self.queue.with(|queue, _| queue.forget(key));
                error!(error = message, "the reconcile failed for good: only a change of the object can help");
                return None;
            }
            Retry::After(delay) => {
                self.metrics.queue.retried();
                delay
            }
            Retry::Backoff => self.back_off(key).max(retry_after.unwrap_or_default().min(LONGEST_ASKED)),
        };
        if is_conflict {
            debug!(error = message, retry_in = ?delay, "something changed meanwhile");
        } else {
            error!(error = message, retry_in = ?delay, "the reconcile failed");
        }
        Some(When::After(delay))
    }

    fn back_off(&self, key: &ObjectKey) -> Duration {
        self.metrics.queue.retried();
        let fraction = self.services.random.fraction();
        self.queue.with(|queue, now| {
            let bound = self.limit.as_ref().map(|limit| limit.lock().reserve(now.monotonic));
            queue.back_off(key, fraction).max(bound.unwrap_or_default())
        })
    }

    async fn drain(mut self, abort: CancellationToken) {
        self.enter(Phase::Stopping);
        self.queue.with(|queue, _| queue.close());
        self.proofs.shutdown().await;
        let controller = &self.services.controller;
        if !self.workers.is_empty() {
            info!(controller, working = self.workers.len(), "waiting for reconciles to end");
        }
        loop {
            tokio::select! {
                biased;
                report = self.workers.join_next() => match report {
                    // The first that was the last is told.
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

/// Lists what the controller reads.
async fn prove(services: Arc<Services>) -> Vec<Proof> {
    let mut proofs = Vec::new();
    let declared = services.kinds.iter().filter_map(|kind| services.cache.find(kind));
    // Of those that aren't listed yet, the first list will have all.
    let watched = services.watching.kinds().into_iter().filter(|kind| kind.is_synced());
    let mut kinds = declared.chain(watched).collect::<Vec<_>>();
    kinds.sort_by(|one, other| one.name().cmp(other.name()));
    kinds.dedup_by(|one, other| one.name() == other.name());
    for kind in kinds {
        proofs.extend(Proof::of(&kind, &services.api, &services.random).await);
    }
    proofs
}

/// What the cache shows by now.
struct ByNow<'a>(&'a Services);

impl Shown for ByNow<'_> {
    fn has(&self, write: &Write) -> bool {
        match (self.0.cache.find(&write.kind), &write.arrival) {
            (Some(kind), Some(arrival)) => kind.has_arrived(write.namespace.as_deref(), arrival),
            _ => true,
        }
    }

    fn watch(&self, write: &Write) -> Scope {
        let kind = self.0.cache.find(&write.kind);
        let namespace = write.namespace.as_deref();
        let scope = kind.as_ref().map_or(namespace, |kind| kind.scope_of(namespace));
        (write.kind.clone(), scope.map(Into::into))
    }
}

/// When a key is wanted again, as its trace tells it.
fn told(when: Option<When>, now: Now) -> Next {
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

fn reconcile_id(random: &Random) -> String {
    format!("{:016x}", random.u64())
}
