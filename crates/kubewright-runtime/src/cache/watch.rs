//! The task of one watch: its list and watch with their errors, deadlines and backoff.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kube::{Api, Client};
use kubewright_apimachinery::random::Random;
use kubewright_packed::RawObject;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{debug, warn};

use super::{
    codec::Undecodable,
    kind::Kind,
    list_watch::{Event, WatchError, list_watch},
    metrics::CacheMetrics,
};
use crate::client;

/// The backoff after a first error; it doubles up to [`MAX_BACKOFF`], with jitter.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The longest backoff, within which a newly granted role is noticed.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The backoff while the kind doesn't exist: its CRD may be installed right after the operator. Few operators have the right to
/// watch CRDs, and a list that answers 404 costs the API server next to nothing.
const MISSING_BACKOFF: Duration = Duration::from_secs(1);

/// The deadline of a page of a list: the default of the API server's own (`--request-timeout`). It doubles with each list that
/// exceeds it, up to [`MAX_LIST_TIMEOUT`].
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The deadline while keys wait for the list: the connection may be dead, and a new one works.
const URGENT_LIST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// The age from which a watch counts as healthy: the next error gets the initial backoff.
const HEALTHY_AGE: Duration = Duration::from_secs(10);

/// The number of objects that a resync handles between two checks for events.
const RESYNC_BATCH: usize = 100;

/// The number of times that an API server may answer that it is behind the version of the watch before that version is given up.
const MAX_TOO_LARGE: u32 = 2;

/// Watches one scope of a kind until it is dropped. It retries after every error.
pub(super) async fn watch(kind: Arc<Kind>, number: usize, client: Client, random: Random, metrics: CacheMetrics) {
    let scope = kind.scopes().nth(number).flatten();
    let mut resync = Resync::every(kind.resync_period()).await;
    // The keys that the current resync has yet to handle.
    let mut pending = Vec::new().into_iter();
    // The errors since the watch was last healthy, and the lists that timed out since the last complete one.
    let (mut failures, mut timeouts) = (0, 0);
    // Whether keys wait for the next complete list.
    let mut is_urgent = false;
    loop {
        let mut events = events(&kind, scope, &client);
        // Whether a list is under way, and whether another one is requested. The second one follows the first: a slow list would
        // never complete if each request restarted it.
        let (mut is_listing, mut is_requested) = (true, false);
        loop {
            let limit = is_listing.then(|| list_timeout(is_urgent, timeouts));
            let event = tokio::select! {
                event = next(&mut events, limit) => event,
                () = resync.tick(), if pending.as_slice().is_empty() => {
                    pending = kind.keys_of(number).into_iter();
                    continue;
                }
                // In batches, between which events and other tasks get their turn.
                () = tokio::task::yield_now(), if !pending.as_slice().is_empty() => {
                    kind.resync(&pending.by_ref().take(RESYNC_BATCH).collect::<Vec<_>>());
                    continue;
                }
                // Tasks that an event has woken run first.
                () = tokio::task::yield_now(), if kind.is_over_capacity() => {
                    kind.evict();
                    continue;
                }
                () = kind.relist_requested(number), if !is_requested => {
                    (is_requested, is_urgent) = (true, true);
                    if is_listing {
                        continue;
                    }
                    break;
                }
                () = tokio::time::sleep(HEALTHY_AGE), if failures > 0 && !is_listing => {
                    failures = 0;
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(Stalled(limit)) => {
                    metrics.interrupted();
                    let reason = format!("no answer to a list for {limit:?}");
                    warn!(kind = %kind.name(), "failed to list {}: {reason}", kind.name());
                    kind.fail(number, reason);
                    tokio::time::sleep(backoff(failures, random.fraction())).await;
                    (failures, timeouts) = (failures + 1, timeouts + 1);
                    break;
                }
            };
            match &event {
                // The list is sent after this event, so it is also the requested one.
                Ok(Event::Init) => (is_listing, is_requested) = (true, false),
                Ok(Event::InitDone) => (is_listing, is_urgent, timeouts) = (false, is_requested, 0),
                _ => {}
            }
            match event {
                // `Init` comes before the list is sent, and the next page may fail again: neither shows a healthy server.
                Ok(event @ (Event::Init | Event::InitApply(_))) => take(&kind, number, event, &metrics),
                Ok(event) => {
                    failures = 0;
                    take(&kind, number, event, &metrics);
                }
                Err(error) => {
                    metrics.interrupted();
                    let expired = has_code(&error, 410);
                    // A replica of the API server that is behind another one catches up soon. If not, etcd was restored.
                    let is_lost = is_ahead(&error) && failures >= MAX_TOO_LARGE;
                    let wait =
                        if has_code(&error, 404) { MISSING_BACKOFF } else { backoff(failures, random.fraction()) };
                    report(&kind, number, failures, error);
                    tokio::time::sleep(wait).await;
                    failures += 1;
                    if is_lost {
                        kind.forget_versions(number);
                    }
                    // The stream would request the same version for ever; only a new stream begins with a list.
                    if expired || is_lost {
                        break;
                    }
                }
            }
            if is_requested && !is_listing {
                break;
            }
        }
    }
}

/// A list that was not answered for this long.
struct Stalled(Duration);

/// Returns the next event, within the limit if there is one.
async fn next<T>(events: &mut BoxStream<'static, T>, limit: Option<Duration>) -> Result<Option<T>, Stalled> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, events.next()).await.map_err(|_| Stalled(limit)),
        None => Ok(events.next().await),
    }
}

/// Returns the deadline of a page of a list, after this many lists that exceeded theirs.
pub(super) fn list_timeout(is_urgent: bool, timeouts: u32) -> Duration {
    let first = if is_urgent { URGENT_LIST_TIMEOUT } else { LIST_TIMEOUT };
    first.saturating_mul(1 << timeouts.min(16)).min(MAX_LIST_TIMEOUT)
}

/// The timer of the resync period, if there is one.
struct Resync(Option<Interval>);

impl Resync {
    async fn every(period: Option<Duration>) -> Self {
        let mut interval = period.map(tokio::time::interval);
        if let Some(interval) = &mut interval {
            // A late tick doesn't make the next ones follow at once.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first tick completes at once.
            interval.tick().await;
        }
        Self(interval)
    }

    async fn tick(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// Returns the events of a scope, with metadata only if no type reads more.
fn events(
    kind: &Kind,
    scope: Option<&str>,
    client: &Client,
) -> BoxStream<'static, Result<Event<RawObject>, WatchError>> {
    let (resource, client) = (&kind.name().api_resource(), client.clone());
    let selection = kind.selection(scope);
    if kind.is_metadata_only() {
        let api = match scope {
            Some(namespace) => Api::<RawObject<true>>::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        return list_watch(api, selection).map_ok(|event| event.map(RawObject::into_object)).boxed();
    }
    let api = match scope {
        Some(namespace) => Api::<RawObject>::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    list_watch(api, selection).boxed()
}

fn take(kind: &Kind, number: usize, event: Event<RawObject>, metrics: &CacheMetrics) {
    if let Err(Undecodable { key, reason }) = kind.take(number, event) {
        metrics.undecodable();
        warn!(kind = %kind.name(), object = %key, error = reason, "failed to decode an object: the cache ignores its new state");
    }
}

/// Logs an error, and again each time the number of failures has doubled.
fn report(kind: &Kind, number: usize, failures: u32, error: WatchError) {
    let name = kind.name();
    let (reason, is_refusal) = explain(&error);
    let is_news = failures == 0 || failures.is_power_of_two() || kind.failure().as_deref() != Some(&reason);
    // An interrupted watch is normal; one that can't be established again isn't.
    if is_news && (is_refusal || failures > 0 || !kind.is_synced()) {
        warn!(kind = %name, "failed to watch {name}: {reason}");
    } else {
        debug!(kind = %name, "the watch of {name} was interrupted: {reason}");
    }
    kind.fail(number, reason);
}

/// Returns the message for an error, with a hint if there is one, and whether a person has to resolve it.
fn explain(error: &WatchError) -> (String, bool) {
    let (WatchError::List(source) | WatchError::Start(source) | WatchError::Interrupted(source)) = error else {
        return (error.to_string(), false);
    };
    let (why, hint) = (client::explain(source), client::hint(source, "list and watch"));
    let is_refusal = matches!(source, kube::Error::Api(_)) && hint.is_some();
    (hint.map_or(why.clone(), |hint| format!("{why}: {hint}")), is_refusal)
}

/// Returns whether the API server refused the request with this code.
fn has_code(error: &WatchError, code: u16) -> bool {
    let (WatchError::List(source) | WatchError::Start(source)) = error else { return false };
    matches!(source, kube::Error::Api(status) if status.code == code)
}

/// Returns whether the API server doesn't have the version yet at which the watch is to begin.
fn is_ahead(error: &WatchError) -> bool {
    let status = match error {
        WatchError::Start(kube::Error::Api(status)) | WatchError::Ended(status) => status,
        _ => return false,
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // Older API servers give no cause, only a message; client-go checks for both, too.
    causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status.message.contains("Too large resource version")
}

/// Returns the exponential backoff, of which up to half is taken off at random.
pub(super) fn backoff(failures: u32, fraction: f64) -> Duration {
    let full = INITIAL_BACKOFF.saturating_mul(1 << failures.min(16)).min(MAX_BACKOFF);
    full.mul_f64(0.5 + fraction / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_timeouts_double_and_are_bounded() {
        assert_eq!([0, 1, 2].map(|timeouts| list_timeout(true, timeouts).as_secs()), [10, 20, 40]);
        assert_eq!([0, 1, u32::MAX].map(|timeouts| list_timeout(false, timeouts).as_secs()), [60, 120, 300]);
    }

    #[test]
    fn backoffs_double_and_are_bounded() {
        assert_eq!(backoff(0, 0.0), INITIAL_BACKOFF / 2);
        assert_eq!(backoff(1, 0.5), INITIAL_BACKOFF.mul_f64(1.5));
        assert_eq!(backoff(u32::MAX, 1.0), MAX_BACKOFF);
    }
}
