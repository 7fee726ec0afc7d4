//! The scheduler, which binds pods to nodes. A pod that can't be bound waits, and its condition contains the reason.
//!
//! It respects `cordon`, taints, node selectors and required node affinity ([`filter`]), the host ports of pods
//! ([`ports`]), what pods request of a node ([`fit`]), where their volumes are or can be ([`volumes`]), and how many
//! a node can have ([`volume_limits`]), which devices their claims get ([`devices`]), topology spread constraints
//! ([`spread`]), and the affinity between pods ([`affinity`]). [`state`] combines these, [`placement`]
//! looks for a node, [`score`] compares those that would do, also by what is preferred only, and [`group`] selects
//! which pods are to be spread by default; [`decision`] decides about each pod that waits; pods of higher priority have
//! others evicted ([`preemption`]).
//!
//! Pods of other nodes than the cluster's own run if another program is the kubelet of these nodes. Without one they
//! have the taint of nodes that aren't ready.

mod action;
mod affinity;
mod candidate;
mod decision;
mod devices;
pub(crate) mod filter;
pub(crate) mod fit;
mod group;
mod images;
mod placement;
pub(crate) mod ports;
mod preemption;
mod score;
mod spread;
mod state;
mod terms;
#[cfg(test)]
mod tests;
mod volume_limits;
mod volumes;

use std::time::Duration;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use kubewright_apiserver::{ApiServer, Change, Feed, Lagged};

use self::{
    action::{PodAction, perform},
    candidate::PodKey,
    decision::Scheduler,
};
use super::retry::{Retries, until};
use crate::{
    events::{ObjectEvent, Recorder},
    object_client::{ObjectClient, is_conflict, is_gone},
    panics::restarting,
};

/// The number of pods that are bound concurrently.
const CONCURRENCY: usize = 64;
/// How long a pod whose volumes and claims couldn't be bound isn't tried again, as in kube-scheduler.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the volumes and claims of a pod may take to be bound, as in kube-scheduler.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

type Completion = (PodKey, PodAction, Result<Vec<ObjectEvent>, kube::Error>);

/// Binds pods for as long as it is polled. Records no events if `events` is `None`.
pub(crate) async fn run(
    api: ApiServer,
    client: ObjectClient,
    clock: SharedClock,
    random: Random,
    events: Option<Recorder>,
) {
    let start = || {
        let scheduling = Scheduling {
            feed: api.feed(),
            client: client.clone(),
            clock: clock.clone(),
            random: random.clone(),
            events: events.clone(),
            scheduler: Scheduler::default(),
            is_synced: false,
            retries: Retries::up_to(LONGEST_PAUSE),
            timers: Retries::default(),
            work: FuturesUnordered::new(),
        };
        scheduling.run()
    };
    restarting("kube-scheduler", clock.clone(), start).await;
}

struct Scheduling {
    feed: Feed,
    client: ObjectClient,
    clock: SharedClock,
    random: Random,
    events: Option<Recorder>,
    scheduler: Scheduler,
    /// Whether the whole snapshot is known. Nothing is decided before: any pod in it may be in the way of another one.
    is_synced: bool,
    retries: Retries<PodKey>,
    /// The pods that pause, or whose volumes and claims are being bound.
    timers: Retries<PodKey>,
    work: FuturesUnordered<BoxFuture<'static, Completion>>,
}

impl Scheduling {
    async fn run(mut self) {
        loop {
            let now = self.clock.monotonic();
            if !self.is_synced && self.feed.is_synced() {
                self.is_synced = true;
                let all = self.scheduler.all();
                self.begin(all);
            }
            let due = self.retries.due(now);
            self.begin(due);
            let due = self.timers.due(now);
            for pod in &due {
                self.timers.forget(pod);
                self.scheduler.wake(pod);
            }
            self.begin(due);
            let timer = until(self.retries.next().into_iter().chain(self.timers.next()).min(), now);
            tokio::select! {
                biased;
                change = self.feed.next(), if self.work.len() < CONCURRENCY => self.take(change),
                Some(ended) = self.work.next() => self.finish(ended, now),
                () = timer => {}
            }
            // Actions progress even if changes arrive without a pause.
            if let Some(Some(ended)) = self.work.next().now_or_never() {
                self.finish(ended, now);
            }
        }
    }

    fn take(&mut self, change: Result<Change, Lagged>) {
        match change {
            Ok(change) => {
                let affected = self.scheduler.take(&change);
                if self.is_synced {
                    self.begin(affected);
                }
            }
            Err(lagged) => {
                tracing::info!(%lagged, "the scheduler restarts from a snapshot");
                self.scheduler = Scheduler::default();
                self.is_synced = false;
            }
        }
    }

    /// Decides about pods, and begins the actions.
    fn begin(&mut self, pods: impl IntoIterator<Item = PodKey>) {
        self.scheduler.set_time(self.clock.now());
        for pod in pods {
            let Some(action) = self.scheduler.decide(&pod) else {
                if !self.scheduler.is_waiting(&pod) {
                    self.retries.forget(&pod);
                }
                continue;
            };
            let (client, now, random) = (self.client.clone(), self.clock.now(), self.random.clone());
            let version = self.scheduler.version(&pod).to_owned();
            self.work.push(Box::pin(async move {
                let result = perform(&client, &pod, &action, &version, now, &random).await;
                (pod, action, result)
            }));
        }
    }

    fn finish(&mut self, (pod, action, result): Completion, now: Duration) {
        let is_done = result.is_ok();
        // What is gone may also be a volume or a claim.
        let is_binding = matches!(action, PodAction::Bind(_) | PodAction::Prepare { .. });
        let is_about_pod = !matches!(action, PodAction::Prepare { .. } | PodAction::Deallocate { .. });
        let is_gone = is_about_pod && result.as_ref().is_err_and(is_gone);
        match result {
            Ok(found) => {
                self.retries.forget(&pod);
                if let Some(events) = &self.events {
                    found.into_iter().for_each(|event| events.record(event));
                }
            }
            // The pod is gone, or has changed since the condition was made. The feed delivers its new state.
            Err(_) if is_gone => self.retries.forget(&pod),
            Err(error) if is_conflict(&error) && !is_binding => self.retries.forget(&pod),
            // A binding conflicts if the pod is already bound, deleted or gated. What the feed has delivered may be
            // newer than that, and then nothing else would lead to another attempt.
            Err(error) => {
                match is_conflict(&error) {
                    true => tracing::debug!(%error, pod = pod.name, namespace = pod.namespace, "a pod can't be bound"),
                    false => tracing::warn!(%error, pod = pod.name, namespace = pod.namespace, "failed to bind a pod"),
                }
                self.retries.failed(pod.clone(), now);
            }
        }
        let pause = match action {
            PodAction::Prepare { .. } if is_done => Some(BIND_TIMEOUT),
            PodAction::Fail(..) => Some(PAUSE),
            _ => None,
        };
        if let Some(pause) = pause {
            self.timers.forget(&pod);
            self.timers.later(pod.clone(), now + pause);
        }
        // The feed is only read while there are few actions. If pods that are gone counted as waiting until it delivers
        // that, what each of them gives back could lead to actions for the others without an end.
        let mut affected =
            if is_gone { self.scheduler.remove_gone(&pod) } else { self.scheduler.end(&pod, &action, is_done) };
        if !is_done {
            affected.retain(|other| !self.retries.is_waiting(other));
        }
        self.begin(affected);
    }
}
