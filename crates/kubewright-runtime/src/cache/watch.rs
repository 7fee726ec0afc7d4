//! The thin shell of a feed: its list and watch, their errors and the pauses after them.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kube::{Api, Client};
use kubewright_apimachinery::random::Random;
use kubewright_packed::RawObject;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{debug, warn};

use super::{
    kind::{Kind, Undecodable},
    list_watch::{Event, WatchError, list_watch},
    metrics::CacheMetrics,
};
use crate::client;

/// The first pause after an error; it doubles up to [`LONGEST_PAUSE`], with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a role that is granted is noticed within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause while the kind isn't there: its CRD may be installed right after the operator. To watch for that would take a
/// right to CRDs that few operators have; a list that finds nothing costs the API server next to nothing.
const MISSING_PAUSE: Duration = Duration::from_secs(1);

/// How long a page of a list may take: as long as an API server takes for one by default (`--request-timeout`). It doubles with
/// each list that is given up, up to [`LONGEST_LIST_TIMEOUT`].
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// [`LIST_TIMEOUT`] while keys wait for the list: the connection may be dead, and another one is not.
const URGENT_LIST_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// A watch that has held for this long was well: the error that ends it is the first of its kind, however many came before.
const STEADY: Duration = Duration::from_secs(10);

/// How many objects a resync tells before it looks for events.
const AT_A_TIME: usize = 100;

/// How often an API server may say that it is behind what we have seen before that is doubted.
const PATIENT_TRIES: u32 = 2;

/// Feeds one kind from one scope until it is dropped. It never ends by itself: whatever the error, it tries again.
pub(super) async fn watch(kind: Arc<Kind>, feed: usize, client: Client, random: Random, metrics: CacheMetrics) {
    let scope = kind.scopes().nth(feed).flatten();
    let mut resync = Resync::every(kind.resync_period()).await;
    // What is yet to be told of a resync.
    let mut untold = Vec::new().into_iter();
    // The errors since the watch was last well, and the lists that were given up since the last complete one.
    let (mut failures, mut timeouts) = (0, 0);
    // Whether somebody waits for the next complete list.
    let mut is_urgent = false;
    loop {
        let mut events = events(&kind, scope, &client);
        // Whether a list is under way, and whether somebody wants another: it takes its turn, for a list that takes long would
        // never end if it began anew each time.
        let (mut is_listing, mut is_wanted) = (true, false);
        loop {
            let limit = is_listing.then(|| list_timeout(is_urgent, timeouts));
            let event = tokio::select! {
                event = next(&mut events, limit) => event,
                () = resync.tick(), if untold.as_slice().is_empty() => {
                    untold = kind.all_of(feed).into_iter();
                    continue;
                }
                // In parts, between which there is time for events and for other tasks.
                () = tokio::task::yield_now(), if !untold.as_slice().is_empty() => {
                    kind.resync(&untold.by_ref().take(AT_A_TIME).collect::<Vec<_>>());
                    continue;
                }
                // Whom an event has woken goes first.
                () = tokio::task::yield_now(), if kind.holds_more() => {
                    kind.let_go();
                    continue;
                }
                () = kind.relist_wanted(feed), if !is_wanted => {
                    (is_wanted, is_urgent) = (true, true);
                    if is_listing {
                        continue;
                    }
                    break;
                }
                () = tokio::time::sleep(STEADY), if failures > 0 && !is_listing => {
                    failures = 0;
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(Stalled(limit)) => {
                    metrics.interrupted();
                    warn!(kind = %kind.name(), "a list has made no progress for {limit:?}: it is requested again");
                    kind.fail(feed, format!("a list has made no progress for {limit:?}"));
                    tokio::time::sleep(pause(failures, random.fraction())).await;
                    (failures, timeouts) = (failures + 1, timeouts + 1);
                    break;
                }
            };
            match &event {
                // It is asked for after this, and so is what was wanted.
                Ok(Event::Init) => (is_listing, is_wanted) = (true, false),
                Ok(Event::InitDone) => (is_listing, is_urgent, timeouts) = (false, is_wanted, 0),
                _ => {}
            }
            match event {
                // `Init` comes before the list is asked for, and the next page may fail as before: neither shows that the server
                // is well.
                Ok(event @ (Event::Init | Event::InitApply(_))) => take(&kind, feed, event, &metrics),
                Ok(event) => {
                    failures = 0;
                    take(&kind, feed, event, &metrics);
                }
                Err(error) => {
                    metrics.interrupted();
                    let expired = has_code(&error, 410);
                    // A replica of the API server that lags behind another catches up soon. If not, etcd was restored.
                    let is_lost = is_ahead(&error) && failures >= PATIENT_TRIES;
                    let pause = if has_code(&error, 404) { MISSING_PAUSE } else { pause(failures, random.fraction()) };
                    report(&kind, feed, failures, error);
                    tokio::time::sleep(pause).await;
                    failures += 1;
                    if is_lost {
                        kind.forget(feed);
                    }
                    // The stream would ask for the same lost version for ever: only a new one begins with a list.
                    if expired || is_lost {
                        break;
                    }
                }
            }
            if is_wanted && !is_listing {
                break;
            }
        }
    }
}

/// A list that has made no progress for this long.
struct Stalled(Duration);

/// Returns the next event; within the limit, if there is one.
async fn next<T>(events: &mut BoxStream<'static, T>, limit: Option<Duration>) -> Result<Option<T>, Stalled> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, events.next()).await.map_err(|_| Stalled(limit)),
        None => Ok(events.next().await),
    }
}

/// Returns how long a list may take to make progress, given how many were given up before it.
pub(super) fn list_timeout(is_urgent: bool, timeouts: u32) -> Duration {
    let first = if is_urgent { URGENT_LIST_TIMEOUT } else { LIST_TIMEOUT };
    first.saturating_mul(1 << timeouts.min(16)).min(LONGEST_LIST_TIMEOUT)
}

/// When everything is told again, if ever.
struct Resync(Option<Interval>);

impl Resync {
    async fn every(period: Option<Duration>) -> Self {
        let mut interval = period.map(tokio::time::interval);
        if let Some(interval) = &mut interval {
            // Should one be late, the others don't follow in haste.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first is at once.
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

/// The events of a scope, of the metadata alone if no one reads more.
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

fn take(kind: &Kind, feed: usize, event: Event<RawObject>, metrics: &CacheMetrics) {
    if let Err(Undecodable { key, why }) = kind.take(feed, event) {
        metrics.undecodable();
        warn!(kind = %kind.name(), object = %key, error = why, "an object is not as its type says; it is left out");
    }
}

/// Says what is wrong, again each time that it has lasted twice as long.
fn report(kind: &Kind, feed: usize, failures: u32, error: WatchError) {
    let name = kind.name();
    let (why, is_refusal) = explain(&error);
    let is_news = failures == 0 || failures.is_power_of_two() || kind.failure().as_deref() != Some(&why);
    // That a watch breaks off is the day's work; that the next doesn't begin isn't.
    if is_news && (is_refusal || failures > 0 || !kind.is_synced()) {
        warn!(kind = %name, "can't watch {name}: {why}");
    } else {
        debug!(kind = %name, "the watch of {name} was interrupted: {why}");
    }
    kind.fail(feed, why);
}

/// What to tell the person who must mend it, and whether it is for a person to mend.
fn explain(error: &WatchError) -> (String, bool) {
    let (WatchError::List(source) | WatchError::Start(source) | WatchError::Interrupted(source)) = error else {
        return (error.to_string(), false);
    };
    let (why, hint) = (client::explain(source), client::hint(source, "list and watch"));
    let is_refusal = matches!(source, kube::Error::Api(_)) && hint.is_some();
    (hint.map_or(why.clone(), |hint| format!("{why}: {hint}")), is_refusal)
}

/// Whether the API server refused to begin with this code.
fn has_code(error: &WatchError, code: u16) -> bool {
    let (WatchError::List(source) | WatchError::Start(source)) = error else { return false };
    matches!(source, kube::Error::Api(status) if status.code == code)
}

/// Whether the version that the watch is to begin with is one that the API server doesn't have yet.
fn is_ahead(error: &WatchError) -> bool {
    let status = match error {
        WatchError::Start(kube::Error::Api(status)) | WatchError::Ended(status) => status,
        _ => return false,
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // As client-go: older API servers say it in words only.
    causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status.message.contains("Too large resource version")
}

/// Between half and all of the exponential pause.
pub(super) fn pause(failures: u32, fraction: f64) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
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
    fn pauses_double_and_are_bounded() {
        assert_eq!(pause(0, 0.0), FIRST_PAUSE / 2);
        assert_eq!(pause(1, 0.5), FIRST_PAUSE.mul_f64(1.5));
        assert_eq!(pause(u32::MAX, 1.0), LONGEST_PAUSE);
    }
}
