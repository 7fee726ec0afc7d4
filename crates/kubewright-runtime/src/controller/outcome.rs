//! What follows from the end of a run: metrics, a line in the log, and the time of the key's next run.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use tracing::{debug, error};

use super::{run::Failure, worker::End};
use crate::{
    action::{Action, RequeueTime, Retry},
    limit::Bucket,
    metrics::{ControllerMetrics, QueueMetrics, ReconcileResult},
    queue::{SharedQueue, When},
};

/// The longest accepted `Retry-After`: it may come from the maintenance page of a proxy.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Decides what follows from the end of a run.
pub(super) struct Outcomes<K> {
    pub(super) queue: Arc<SharedQueue<K>>,
    pub(super) random: Random,
    pub(super) metrics: ControllerMetrics,
    pub(super) queue_metrics: QueueMetrics,
    /// The rate limit of retries, over all keys.
    pub(super) limit: Option<Mutex<Bucket>>,
}

impl<K> fmt::Debug for Outcomes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Outcomes<K> {
    /// Counts and logs the end of a run. Returns when to run the key again.
    pub(super) fn judge(&self, key: &K, end: End) -> Option<When> {
        let metrics = &self.metrics;
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
                error!(?limit, retry_in = ?delay, "the reconcile exceeded its time limit");
                Some(When::After(delay))
            }
        }
    }

    fn judge_action(&self, action: Action) -> Option<When> {
        let (result, when) = match action.requeue.map(|requeue| (requeue.when, self.random_part(requeue.jitter))) {
            None => (ReconcileResult::Success, None),
            Some((RequeueTime::After(delay), jitter)) => match delay.saturating_add(jitter) {
                Duration::ZERO => (ReconcileResult::Requeue, Some(When::Now)),
                delay => (ReconcileResult::RequeueAfter, Some(When::After(delay))),
            },
            Some((RequeueTime::At(time), jitter)) => {
                let time = time.saturating_add(jitter).unwrap_or(time);
                (ReconcileResult::RequeueAfter, Some(When::At(time)))
            }
        };
        debug!(?result, ?when, "reconciled");
        self.metrics.finished(result);
        if when.is_some() {
            self.queue_metrics.retried();
        }
        when
    }

    /// Returns a random part of this time.
    fn random_part(&self, longest: Duration) -> Duration {
        if longest.is_zero() { longest } else { longest.mul_f64(self.random.fraction()) }
    }

    fn judge_failure(&self, key: &K, failure: Failure) -> Option<When> {
        let Failure { message, retry, retry_after, is_conflict } = failure;
        let delay = match retry {
            Retry::Terminal => {
                self.metrics.terminal_error();
                self.queue.with(|queue, _| queue.forget(key));
                error!(
                    error = message,
                    "the reconcile failed with a terminal error: it is not retried until the object changes"
                );
                return None;
            }
            Retry::After(delay) => {
                self.queue_metrics.retried();
                delay
            }
            Retry::Backoff => self.back_off(key).max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)),
        };
        if is_conflict {
            debug!(error = message, retry_in = ?delay, "the reconcile had a conflict");
        } else {
            error!(error = message, retry_in = ?delay, "the reconcile failed");
        }
        Some(When::After(delay))
    }

    fn back_off(&self, key: &K) -> Duration {
        self.queue_metrics.retried();
        let fraction = self.random.fraction();
        self.queue.with(|queue, now| {
            let bound = self.limit.as_ref().map(|limit| limit.lock().reserve(now.monotonic));
            queue.back_off(key, fraction).max(bound.unwrap_or_default())
        })
    }
}
