//! The scheduler, which binds pods to the single node. A pod that can't be bound waits, and its condition contains the
//! reason.
//!
//! It respects `cordon`, taints, node selectors and required node affinity ([`filter`]), the host ports of pods ([`ports`]),
//! what pods request of the node ([`fit`]), where their volumes are, topology spread constraints ([`spread`]), and the affinity
//! between pods ([`affinity`]). [`state`] combines these, and [`decision`] decides about each pod that waits; pods of higher
//! priority have others evicted ([`preemption`]).
//!
//! Other Node objects count for affinity and spread, but no pod is bound to them, since nothing would run it.

mod action;
mod affinity;
mod candidate;
mod decision;
pub(crate) mod filter;
pub(crate) mod fit;
pub(crate) mod ports;
mod preemption;
mod spread;
mod state;
mod terms;
#[cfg(test)]
mod tests;

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::ApiServer;

use self::{
    action::{PodAction, perform},
    candidate::PodKey,
    decision::Scheduler,
};
use super::retry::{Retries, until};
use crate::{
    events::{ObjectEvent, Recorder},
    object_client::{ObjectClient, is_conflict, is_gone},
};

/// The number of pods that are bound concurrently.
const CONCURRENCY: usize = 64;

type Completion = (PodKey, PodAction, Result<Vec<ObjectEvent>, kube::Error>);

/// Binds pods for as long as it is polled. Records no events if `events` is `None`.
pub(crate) async fn run(api: ApiServer, client: ObjectClient, clock: SharedClock, events: Option<Recorder>) {
    let mut feed = api.feed();
    let mut work: FuturesUnordered<BoxFuture<'_, Completion>> = FuturesUnordered::new();
    let mut retries = Retries::default();
    let mut scheduler = Scheduler::default();
    // Nothing is decided before the whole snapshot is known: any pod in it may be in the way of another one.
    let mut is_synced = false;
    loop {
        let now = clock.monotonic();
        let begin = |pod: PodKey, scheduler: &mut Scheduler| {
            let action = scheduler.decide(&pod)?;
            let (client, now) = (&client, clock.now());
            Some(Box::pin(async move {
                let result = perform(client, &pod, &action, now).await;
                (pod, action, result)
            }) as BoxFuture<'_, _>)
        };
        if !is_synced && feed.is_synced() {
            is_synced = true;
            work.extend(scheduler.all().into_iter().filter_map(|pod| begin(pod, &mut scheduler)));
        }
        work.extend(retries.due(now).into_iter().filter_map(|pod| begin(pod, &mut scheduler)));
        let timer = until(retries.next(), now);
        tokio::select! {
            biased;
            change = feed.next(), if work.len() < CONCURRENCY => match change {
                Ok(change) => {
                    let affected = scheduler.take(&change);
                    work.extend(affected.into_iter().filter(|_| is_synced).filter_map(|pod| begin(pod, &mut scheduler)));
                }
                Err(lagged) => {
                    tracing::info!(%lagged, "the scheduler restarts from a snapshot");
                    scheduler = Scheduler::default();
                    is_synced = false;
                }
            },
            Some((pod, action, result)) = work.next() => match result {
                Ok(found) => {
                    retries.forget(&pod);
                    if let Some(events) = &events {
                        found.into_iter().for_each(|event| events.record(event));
                    }
                    let affected = scheduler.end(&pod, &action, true);
                    work.extend(affected.into_iter().filter_map(|other| begin(other, &mut scheduler)));
                }
                Err(error) => {
                    if is_gone(&error) || is_conflict(&error) {
                        // The pod is gone, already bound, or changed. The feed delivers its new state.
                        retries.forget(&pod);
                    } else {
                        tracing::warn!(%error, pod = pod.name, namespace = pod.namespace, "failed to bind a pod");
                        retries.failed(pod.clone(), now);
                    }
                    let affected = scheduler.end(&pod, &action, false);
                    let affected = affected.into_iter().filter(|other| !retries.is_waiting(other));
                    work.extend(affected.filter_map(|other| begin(other, &mut scheduler)));
                }
            },
            () = timer => {}
        }
    }
}
