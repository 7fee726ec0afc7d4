//! The task of one watch: its list and watch with their errors, deadlines and backoff.

use std::{sync::Arc, time::Duration, vec};

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
use crate::{client, object::ObjectKey};

/// The backoff after a first error; it doubles up to [`MAX_BACKOFF`], with jitter.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The longest backoff, within which a newly granted role is noticed.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The backoff while the kind doesn't exist: its CRD may be installed right after the operator. Few operators have the
/// right to watch CRDs, and a list that answers 404 costs the API server next to nothing.
pub(super) const MISSING_BACKOFF: Duration = Duration::from_secs(1);

/// The deadline of a page of a list: the default of the API server's own (`--request-timeout`). It doubles with each
/// list that exceeds it, up to [`MAX_LIST_TIMEOUT`].
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The deadline while keys wait for the list: the connection may be dead, and a new one works.
const URGENT_LIST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// The age from which a watch counts as healthy: the next error gets the initial backoff.
const HEALTHY_AGE: Duration = Duration::from_secs(10);

/// The number of objects that a resync handles between two checks for events.
const RESYNC_BATCH: usize = 100;

/// The number of times that an API server may answer that it is behind the version of the watch before that version is
/// given up.
const MAX_TOO_LARGE: u32 = 2;

/// Watches one scope of a kind until it is dropped. It retries after every error.
pub(super) async fn watch(kind: Arc<Kind>, number: usize, client: Client, random: Random, metrics: CacheMetrics) {
    let resync = Resync::every(kind.resync_period()).await;
    let scope = kind.scopes().nth(number).flatten().map(str::to_owned);
    let mut watch = Watch {
        kind,
        number,
        random,
        metrics,
        resync,
        pending: Vec::new().into_iter(),
        failures: 0,
        timeouts: 0,
        is_urgent: false,
        is_listing: true,
        is_requested: false,
        is_of_metadata: false,
    };
    loop {
        // Before the kind is asked what its types read: a type that comes later makes the watch list again.
        watch.kind.begin(number);
        watch.is_of_metadata = watch.kind.is_metadata_only();
        let events = events(&watch.kind, watch.is_of_metadata, scope.as_deref(), &client);
        watch.follow(events).await;
    }
}

type Events = BoxStream<'static, Result<Event<RawObject>, WatchError>>;

/// The state of one watch.
struct Watch {
    kind: Arc<Kind>,
    /// The number of the scope.
    number: usize,
    random: Random,
    metrics: CacheMetrics,
    resync: Resync,
    /// The keys that the current resync has yet to handle.
    pending: vec::IntoIter<ObjectKey>,
    /// The errors since the watch was last healthy.
    failures: u32,
    /// The lists that timed out since the last complete one.
    timeouts: u32,
    /// Whether keys wait for the next complete list.
    is_urgent: bool,
    /// Whether a list is under way.
    is_listing: bool,
    /// Whether another list is requested. It follows the one that is under way: a slow list would never complete if
    /// each request restarted it.
    is_requested: bool,
    /// Whether the current stream has metadata only.
    is_of_metadata: bool,
}

impl Watch {
    /// Handles the events of a stream until another one has to begin.
    async fn follow(&mut self, mut events: Events) {
        (self.is_listing, self.is_requested) = (true, false);
        loop {
            let limit = self.is_listing.then(|| list_timeout(self.is_urgent, self.timeouts));
            let event = tokio::select! {
                biased;
                // A busy watch has always a next event, so what is rare comes first.
                () = self.kind.relist_requested(self.number), if !self.is_requested => {
                    (self.is_requested, self.is_urgent) = (true, true);
                    // A list of metadata is of no use, and so are its repetitions, once a type reads more.
                    if self.is_listing && self.is_of_metadata == self.kind.is_metadata_only() {
                        continue;
                    }
                    return;
                }
                () = self.resync.tick(), if self.pending.as_slice().is_empty() => {
                    self.pending = self.kind.keys_of(self.number).into_iter();
                    continue;
                }
                event = next(&mut events, limit) => event,
                // In batches, between which events and other tasks get their turn.
                () = tokio::task::yield_now(), if !self.pending.as_slice().is_empty() => {
                    self.kind.resync(&self.pending.by_ref().take(RESYNC_BATCH).collect::<Vec<_>>());
                    continue;
                }
                // Tasks that an event has woken run first.
                () = tokio::task::yield_now(), if self.kind.is_over_capacity() => {
                    self.kind.evict();
                    continue;
                }
                () = tokio::time::sleep(HEALTHY_AGE), if self.failures > 0 && !self.is_listing => {
                    self.failures = 0;
                    self.kind.recover(self.number);
                    continue;
                }
            };
            let has_ended = match event {
                Ok(Some(Ok(event))) => {
                    self.take(event);
                    false
                }
                Ok(Some(Err(error))) => self.fail(error).await,
                Ok(None) => true,
                Err(Stalled(limit)) => {
                    self.time_out(limit).await;
                    true
                }
            };
            if has_ended || (self.is_requested && !self.is_listing) {
                return;
            }
        }
    }

    fn take(&mut self, event: Event<RawObject>) {
        match &event {
            // The list is sent after this event, so it is also the requested one.
            Event::Init => (self.is_listing, self.is_requested) = (true, false),
            Event::InitDone => (self.is_listing, self.is_urgent, self.timeouts) = (false, self.is_requested, 0),
            _ => {}
        }
        // `Init` comes before the list is sent, and the next page may fail again: neither shows a healthy server.
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            self.failures = 0;
        }
        let kind = &self.kind;
        if let Err(Undecodable { key, reason }) = kind.take(self.number, event) {
            self.metrics.undecodable();
            warn!(kind = %kind.name(), object = %key, error = reason, "failed to decode an object: the cache ignores its new state");
        }
    }

    /// Reports an error, and waits. Returns whether the stream is of no more use: it would request the same version
    /// forever, and only a new one begins with a list.
    async fn fail(&mut self, error: WatchError) -> bool {
        self.metrics.interrupted();
        let expired = has_code(&error, 410);
        // A replica of the API server that is behind another one catches up soon. If not, etcd was restored.
        let is_lost = is_ahead(&error) && self.failures >= MAX_TOO_LARGE;
        let wait = if has_code(&error, 404) { MISSING_BACKOFF } else { self.backoff() };
        report(&self.kind, self.number, self.failures, error);
        tokio::time::sleep(wait).await;
        self.failures += 1;
        if is_lost {
            self.kind.forget_versions(self.number);
        }
        expired || is_lost
    }

    /// Reports a list that was not answered for so long, and waits.
    async fn time_out(&mut self, limit: Duration) {
        self.metrics.interrupted();
        let (name, reason) = (self.kind.name(), format!("no answer to a list for {limit:?}"));
        warn!(kind = %name, "failed to list {name}: {reason}");
        self.kind.fail(self.number, reason);
        tokio::time::sleep(self.backoff()).await;
        (self.failures, self.timeouts) = (self.failures + 1, self.timeouts + 1);
    }

    fn backoff(&self) -> Duration {
        backoff(self.failures, self.random.fraction())
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
fn events(kind: &Kind, is_of_metadata: bool, scope: Option<&str>, client: &Client) -> Events {
    let (resource, client) = (&kind.name().api_resource(), client.clone());
    let selection = kind.selection(scope);
    if is_of_metadata {
        let api = match scope {
            Some(namespace) => Api::<RawObject<true>>::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        return list_watch(api, selection, kind.streams_lists())
            .map_ok(|event| event.map(RawObject::into_object))
            .boxed();
    }
    let api = match scope {
        Some(namespace) => Api::<RawObject>::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    list_watch(api, selection, kind.streams_lists()).boxed()
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
    use std::{collections::BTreeSet, future::Future};

    use k8s_openapi::api::core::v1::ConfigMap;
    use prometheus::Registry;

    use super::{
        super::{
            metrics::CacheFamilies,
            options::CacheOptions,
            script::{Answer, Requests, Rest, api_server, event},
        },
        *,
    };
    use crate::object::KindName;

    /// The milliseconds of a backoff after this many failures, with any jitter.
    fn backoff_range(failures: u32) -> std::ops::RangeInclusive<u128> {
        backoff(failures, 0.0).as_millis()..=backoff(failures, 1.0).as_millis() + 1
    }

    /// A watch of all ConfigMaps with this script.
    fn start(script: impl IntoIterator<Item = Answer>) -> (Arc<Kind>, Requests, impl Future<Output = ()>) {
        let name = KindName::of::<ConfigMap>();
        let plan = CacheOptions::new().of(&name, true, &BTreeSet::new());
        let kind = Arc::new(Kind::new(name, plan));
        kind.declare::<ConfigMap>();
        let (client, requests) = api_server(script);
        let metrics = CacheFamilies::new(&Registry::new()).kind("configmaps");
        (kind.clone(), requests, watch(kind, 0, client, Random::seeded(7), metrics))
    }

    /// Runs a watch until it has sent this many requests.
    async fn run(count: usize, script: impl IntoIterator<Item = Answer>) -> (Arc<Kind>, Requests) {
        let (kind, requests, task) = start(script);
        let sent = async {
            while requests.len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let sent = tokio::time::timeout(Duration::from_hours(1), sent);
        tokio::select! {
            () = task => unreachable!("a watch doesn't end"),
            sent = sent => sent.expect("the requests"),
        }
        (kind, requests)
    }

    fn empty(version: &'static str) -> Answer {
        Answer::Page(&[], version, "")
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_without_a_response_has_a_deadline_that_doubles() {
        let script = [Answer::Nothing, Answer::Nothing, Answer::Page(&["a"], "5", "more"), Answer::Nothing];
        let (kind, requests) = run(5, script).await;
        assert_eq!(requests.lines(), ["list", "list", "list", "list more", "list"]);
        let reason = kind.failure().expect("a failure");
        assert!(reason.starts_with("no answer to a list for 240s"), "{reason}");
        let pauses = requests.pauses();
        for (failures, pause, deadline) in [(0, pauses[0], 60), (1, pauses[1], 120), (2, pauses[3], 240)] {
            let backoff = pause - deadline * 1000;
            assert!(backoff_range(failures).contains(&backoff), "{pauses:?}");
        }
        assert!(!kind.is_synced());
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_list_resets_the_backoff() {
        let down = || Answer::Refusal(500, "etcdserver: no leader");
        let (kind, requests) = run(6, [down(), down(), down(), empty("5"), down()]).await;
        assert_eq!(requests.lines(), ["list", "list", "list", "list", "watch 5", "watch 5"]);
        let pauses = requests.pauses();
        for (failures, pause) in [(0, pauses[0]), (1, pauses[1]), (2, pauses[2]), (0, pauses[4])] {
            assert!(backoff_range(failures).contains(&pause), "{pauses:?}");
        }
        assert!(pauses[3] < 10 && kind.is_synced(), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_does_not_reset_the_backoff() {
        let down = || Answer::Refusal(500, "etcdserver: no leader");
        let page = || Answer::Page(&["a"], "5", "more");
        let (_, requests) = run(5, [page(), down(), page(), down()]).await;
        assert_eq!(requests.lines(), ["list", "list more", "list", "list more", "list"]);
        let pauses = requests.pauses();
        assert!(backoff_range(0).contains(&pauses[1]) && backoff_range(1).contains(&pauses[3]), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_lasts_resets_the_backoff() {
        let down = || Answer::Refusal(500, "etcdserver: no leader");
        let silent = Answer::Watch(Vec::new(), Rest::Silence);
        let (_, requests) = run(6, [empty("5"), down(), down(), silent, down()]).await;
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 5", "watch 5", "watch 5", "watch 5"]);
        let pauses = requests.pauses();
        for (failures, pause) in [(0, pauses[1]), (1, pauses[2]), (0, pauses[4])] {
            assert!(backoff_range(failures).contains(&pause), "{pauses:?}");
        }
        assert!(pauses[3] >= 295_000, "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_an_expired_version_leads_to_a_list() {
        let expired = Answer::Refusal(410, "too old resource version: 5 (40)");
        let added = Answer::Watch(vec![event("ADDED", "b", "41")], Rest::Silence);
        let (kind, requests) = run(4, [Answer::Page(&["a"], "5", ""), expired, empty("40"), added]).await;
        assert_eq!(requests.lines(), ["list", "watch 5", "list", "watch 40"]);
        assert!(backoff_range(0).contains(&requests.pauses()[1]), "{:?}", requests.pauses());
        let keys = kind.keys_of(0).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(!keys.contains(&"default/a".to_owned()), "the second list doesn't contain it: {keys:?}");
    }

    /// A replica of the API server that is behind another one has time to catch up.
    #[tokio::test(start_paused = true)]
    async fn a_version_of_the_future_leads_to_a_list_after_three_attempts() {
        let ahead = || Answer::Refusal(504, "Too large resource version: 9, current: 5");
        let (_, requests) = run(6, [empty("9"), ahead(), ahead(), ahead(), empty("5")]).await;
        assert_eq!(requests.lines(), ["list", "watch 9", "watch 9", "watch 9", "list", "watch 5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_kind_is_listed_every_second() {
        let missing = || Answer::Refusal(404, "the server could not find the requested resource");
        let (_, requests) = run(5, [missing(), missing(), missing(), missing(), missing()]).await;
        assert!(requests.pauses().iter().all(|pause| (1000..=1001).contains(pause)), "{:?}", requests.pauses());
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_list_has_a_short_deadline() {
        let script = [empty("5"), Answer::Watch(Vec::new(), Rest::Silence), Answer::Nothing, empty("6")];
        let (kind, requests, task) = start(script);
        let request = async {
            while requests.len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            kind.relist(0);
            while requests.len() < 5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = task => unreachable!("a watch doesn't end"),
            requested = tokio::time::timeout(Duration::from_hours(1), request) => requested.expect("the requests"),
        }
        assert_eq!(requests.lines(), ["list", "watch 5", "list", "list", "watch 6"]);
        let pause = requests.pauses()[2];
        assert!(backoff_range(0).contains(&(pause - 10_000)), "{pause}");
    }

    /// Returns an API server whose first lists fail. Whole objects have data, and requests for metadata get none.
    fn failing_at_first(failures: usize) -> (Client, Arc<parking_lot::Mutex<Vec<String>>>) {
        use http_body_util::BodyExt;
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let record = seen.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let accept = request.headers().get("accept").map(|it| it.to_str().unwrap_or_default().to_owned());
            let is_metadata = accept.unwrap_or_default().contains("PartialObjectMetadata");
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let what = format!(
                "{} {}",
                if is_watch { "watch" } else { "list" },
                if is_metadata { "metadata" } else { "whole" }
            );
            let number = record.lock().iter().filter(|line: &&String| line.starts_with("list")).count();
            record.lock().push(what);
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let (code, mut body) = (
                    200,
                    serde_json::json!({
                        "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
                        "items": [{"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                            "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}}],
                    }),
                );
                if is_metadata {
                    body["items"][0].as_object_mut().expect("an object").remove("data");
                }
                let (code, body) = if number < failures {
                    (500, serde_json::json!({"kind": "Status", "status": "Failure", "code": 500, "message": "down"}))
                } else {
                    (code, body)
                };
                let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
                let body = body.map_err(|never| match never {}).boxed_unsync();
                let body: http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, std::io::Error> = body;
                Ok::<_, std::convert::Infallible>(
                    http::Response::builder().status(code).body(body).expect("a response"),
                )
            }
        });
        (Client::new(service, "default"), seen)
    }

    /// A type that reads whole objects is declared while lists of metadata fail.
    #[tokio::test(start_paused = true)]
    async fn a_type_that_comes_while_lists_fail_reads_whole_objects() {
        let name = KindName::of::<ConfigMap>();
        let plan = CacheOptions::new().of(&name, true, &BTreeSet::new());
        let kind = Arc::new(Kind::new(name, plan));
        kind.declare::<kube::core::PartialObjectMeta<ConfigMap>>();
        let (client, seen) = failing_at_first(3);
        let metrics = CacheFamilies::new(&Registry::new()).kind("configmaps");
        let task = watch(kind.clone(), 0, client, Random::seeded(7), metrics);
        let later = async {
            while seen.lock().len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let generation = kind.declare_late::<ConfigMap>();
            while !kind.is_complete(generation) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = task => unreachable!("a watch doesn't end"),
            done = tokio::time::timeout(Duration::from_hours(1), later) => done.expect("complete"),
        }
        let reader = super::super::reader::Reader::<ConfigMap>::new(kind.clone(), None);
        let map = reader.get(&ObjectKey::namespaced("default", "a")).expect("the map");
        assert!(map.data.is_some(), "the cache counts as complete without the data: {:?}", seen.lock());
    }

    /// client-go calls this a very short watch, which is an error with a backoff.
    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_are_repeated_with_a_backoff() {
        let ends = (0..100).map(|_| Answer::Watch(Vec::new(), Rest::End));
        let (_, requests) = run(50, [empty("5")].into_iter().chain(ends)).await;
        let first = requests.pauses().iter().take(50).sum::<u128>();
        assert!(first > 5_000, "fifty watches in {first} ms");
    }

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
