//! The thin shell of a feed: kube's watcher, its errors and its pauses.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use kubewright_apimachinery::random::Random;
use tracing::{debug, warn};

use super::{
    decode::Decoded,
    kind::{AnyKind, Kind, Undecodable},
    metrics::CacheMetrics,
};
use crate::{client, object::Object};

/// The first pause after an error; it doubles up to [`LONGEST_PAUSE`], with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a CRD that appears, or a role that is granted, is noticed within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Feeds one kind from one scope until it is dropped. It never ends by itself: whatever the error, it tries again.
pub(super) async fn watch<K: Object>(
    kind: Arc<Kind<K>>,
    feed: usize,
    client: Client,
    random: Random,
    metrics: CacheMetrics,
) {
    let scope = kind.scopes().get(feed).cloned().flatten();
    let mut failures = 0;
    loop {
        let api: Api<Decoded<K>> = match &scope {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &Default::default()),
            None => Api::all_with(client.clone(), &Default::default()),
        };
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            match event {
                // `Init` comes before the list is asked for, so it doesn't show that the server is well.
                Ok(Event::Init) => take(&kind, feed, Event::Init, &metrics),
                Ok(event) => {
                    failures = 0;
                    take(&kind, feed, event, &metrics);
                }
                Err(error) => {
                    metrics.interrupted();
                    let expired = is_expired(&error);
                    report(kind.as_ref(), feed, failures, error);
                    tokio::time::sleep(pause(failures, random.fraction())).await;
                    failures += 1;
                    // The watcher would ask for the same lost version for ever: only a new one begins with a list.
                    if expired {
                        break;
                    }
                }
            }
        }
    }
}

fn take<K: Object>(kind: &Kind<K>, feed: usize, event: Event<Decoded<K>>, metrics: &CacheMetrics) {
    if let Err(Undecodable { key, why }) = kind.take(feed, event) {
        metrics.undecodable();
        warn!(kind = %kind.name(), object = %key, error = why, "an object is not as its type says; it is left out");
    }
}

fn report<K: Object>(kind: &Kind<K>, feed: usize, failures: u32, error: watcher::Error) {
    let name = kind.name();
    let (why, is_refusal) = explain(&error);
    // That a watch breaks off is the day's work; that the next doesn't begin isn't.
    if is_refusal || failures > 0 || !kind.is_synced() {
        warn!(kind = %name, "can't watch {name}: {why}");
    } else {
        debug!(kind = %name, "the watch of {name} was interrupted: {why}");
    }
    kind.fail(feed, why);
}

/// What to tell the person who must mend it, and whether it is for a person to mend.
fn explain(error: &watcher::Error) -> (String, bool) {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(source) | WatchStartFailed(source) | WatchFailed(source)) = error else {
        return (error.to_string(), false);
    };
    let (why, advice) = (client::explain(source), client::advice(source, "list and watch"));
    let is_refusal = matches!(source, kube::Error::Api(_)) && advice.is_some();
    (advice.map_or(why.clone(), |advice| format!("{why}: {advice}")), is_refusal)
}

fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Between half and all of the exponential pause.
fn pause(failures: u32, fraction: f64) -> Duration {
    let full = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
    full.mul_f64(0.5 + fraction / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_bounded() {
        assert_eq!(pause(0, 0.0), FIRST_PAUSE / 2);
        assert_eq!(pause(1, 0.5), FIRST_PAUSE.mul_f64(1.5));
        assert_eq!(pause(u32::MAX, 1.0), LONGEST_PAUSE);
    }
}
