//! Expiry of events: as with an API server, an event is kept for an hour after its last change.
//!
//! A sweep every 30 minutes is precise enough, and cheap for simulations of many hours.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use kubewright_apimachinery::clock::SharedClock;
use tokio::time::sleep;

use crate::object_client::{is_conflict, is_gone};

/// The time for which an event is kept: the default of the API server's `--event-ttl`.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// The interval between two sweeps.
const PERIOD: Duration = Duration::from_secs(30 * 60);
/// The number of events that are listed at a time.
const PAGE: u32 = 500;

/// Deletes expired events for as long as it is polled.
pub(crate) async fn run(client: Client, clock: SharedClock) {
    loop {
        sleep(PERIOD).await;
        if let Err(error) = sweep(&client, clock.now()).await {
            tracing::warn!(%error, "failed to delete expired events");
        }
    }
}

async fn sweep(client: &Client, now: Timestamp) -> Result<(), kube::Error> {
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let events = Api::<Event>::all(client.clone()).list(&page).await?;
        for event in events.items.iter().filter(|event| is_old(event, now)) {
            delete(client, event).await?;
        }
        match events.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn delete(client: &Client, event: &Event) -> Result<(), kube::Error> {
    let namespace = event.namespace().unwrap_or_default();
    let unchanged = Preconditions { resource_version: event.resource_version(), uid: event.uid() };
    let parameters = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::default() };
    match Api::<Event>::namespaced(client.clone(), &namespace).delete(&event.name_any(), &parameters).await {
        Err(error) if !is_gone(&error) && !is_conflict(&error) => Err(error),
        _ => Ok(()),
    }
}

fn is_old(event: &Event, now: Timestamp) -> bool {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [&event.metadata.creation_timestamp, &event.last_timestamp, &event.first_timestamp];
    let times = times.into_iter().flatten().map(|time| time.0);
    let last = times.chain(event.event_time.iter().chain(series).map(|time| time.0)).max();
    last.is_some_and(|last| Duration::try_from(now.duration_since(last)).is_ok_and(|age| age > KEPT))
}
