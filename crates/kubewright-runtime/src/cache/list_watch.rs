//! Lists a kind and watches it from there, repeatedly, as a stream of events, like client-go's `ListAndWatch`.
//!
//! Lists are paged, or streamed as the beginning of the watch (`WatchList`) if that is asked for and the API server
//! does it. A watch that ends is resumed from the latest version that an object or a bookmark has shown, once the API
//! server has confirmed that it has reached this version. After the status 410, *Expired*, the kind is listed again.
//! Errors are items of the stream, and the next poll tries again, so the caller decides how long to wait between
//! attempts.

use std::{fmt::Debug, sync::Arc, time::Duration, vec};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, VersionMatch, WatchEvent, WatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::timeout;

/// The number of objects in a page of a list, as in client-go.
const PAGE: u32 = 500;
/// The longest time without an event before a watch's connection counts as dead. kube requests that API servers end a
/// watch after 290 seconds.
const SILENCE: Duration = Duration::from_secs(295);

/// The time within which the API server has to confirm a version before a watch is resumed from it. The connection may
/// be dead: the next attempt uses another one. The request for the watch follows on a connection that works, and its
/// answer may come with the first event, so it has [`SILENCE`].
const CONFIRMATION: Duration = Duration::from_secs(30);

/// A new watch that ends within this time and without an event is an error, as in client-go.
const SHORTEST: Duration = Duration::from_secs(1);

/// The annotation of the bookmark after the last object of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a list or a watch.
#[derive(Clone, Debug)]
pub(crate) enum Event<K> {
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete: objects that it didn't contain are deleted.
    InitDone,
    /// An object was created or changed.
    Apply(K),
    /// An object was deleted. This is its last state.
    Delete(K),
}

impl<K> Event<K> {
    /// Converts the object of the event.
    pub(crate) fn map<T>(self, form: impl FnOnce(K) -> T) -> Event<T> {
        match self {
            Self::Init => Event::Init,
            Self::InitApply(object) => Event::InitApply(form(object)),
            Self::InitDone => Event::InitDone,
            Self::Apply(object) => Event::Apply(form(object)),
            Self::Delete(object) => Event::Delete(form(object)),
        }
    }
}

/// The reason why a list or a watch was interrupted.
#[derive(Debug, Error)]
pub(crate) enum WatchError {
    #[error("failed to list: {0}")]
    List(#[source] kube::Error),
    #[error("failed to start the watch: {0}")]
    Start(#[source] kube::Error),
    #[error("the watch was interrupted: {0}")]
    Interrupted(#[source] kube::Error),
    #[error("the API server ended the watch: {0}")]
    Ended(#[source] Box<Status>),
    #[error("no answer to a request for the watch for {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the API server ended the watch at once")]
    Short,
    #[error("the streamed list ended early")]
    NoEnd,
    #[error("the API server's answer has no resourceVersion")]
    NoVersion,
}

/// The position of a stream.
enum State<K> {
    Start,
    /// A streamed list has begun, and is to be requested.
    Open,
    /// The list is the beginning of a watch.
    Stream {
        events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    },
    /// Objects of the last page are left, then that after `next` follows, or the watch from `version`.
    Page {
        objects: vec::IntoIter<K>,
        next: Option<String>,
        version: String,
    },
    Resume {
        version: String,
        /// True if the API server is known to have reached the version, because its list had it.
        is_reached: bool,
    },
    Watch {
        version: String,
        events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    },
}

/// Lists and watches what the labels and fields of `selection` select.
pub(crate) fn list_watch<K>(
    api: Api<K>,
    selection: ListParams,
    streams: bool,
) -> impl Stream<Item = Result<Event<K>, WatchError>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    // Shared, since they would be copied for each event.
    let source = Arc::new((api, selection));
    stream::unfold((State::Start, streams), move |(mut state, mut streams)| {
        let source = source.clone();
        async move {
            let (api, selection) = &*source;
            loop {
                let (item, next) = step(api, selection, state, &mut streams).await;
                if let Some(item) = item {
                    return Some((item, (next, streams)));
                }
                state = next;
            }
        }
    })
}

/// One request, or one event.
async fn step<K>(
    api: &Api<K>,
    selection: &ListParams,
    state: State<K>,
    streams: &mut bool,
) -> (Option<Result<Event<K>, WatchError>>, State<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match state {
        // Before the request, since the list has what is written before its beginning.
        State::Start if *streams => (Some(Ok(Event::Init)), State::Open),
        State::Open => match api.watch(&watch_params(selection).initial_events(), "").await {
            Ok(events) => (None, State::Stream { events: events.boxed() }),
            // The API server doesn't know it, or not for this kind.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 405 | 422) => {
                *streams = false;
                let (objects, next) = (Vec::new().into_iter(), Some(String::new()));
                (None, State::Page { objects, next, version: String::new() })
            }
            Err(error) => (Some(Err(WatchError::List(error))), State::Start),
        },
        State::Stream { mut events } => match timeout(SILENCE, events.next()).await {
            Ok(Some(event)) => streamed(event, events),
            Ok(None) | Err(_) => (Some(Err(WatchError::NoEnd)), State::Start),
        },
        State::Start => {
            let (objects, next) = (Vec::new().into_iter(), Some(String::new()));
            (Some(Ok(Event::Init)), State::Page { objects, next, version: String::new() })
        }
        State::Page { mut objects, next, version } => match (objects.next(), next) {
            (Some(object), next) => (Some(Ok(Event::InitApply(object))), State::Page { objects, next, version }),
            (None, Some(next)) => page(api, selection, next).await,
            (None, None) if version.is_empty() => (Some(Err(WatchError::NoVersion)), State::Start),
            (None, None) => (Some(Ok(Event::InitDone)), State::Resume { version, is_reached: true }),
        },
        // A watch from a version that the API server has not reached is held open without any events. If etcd was
        // restored from a backup, this would last until the version is reached again.
        State::Resume { version, is_reached: false } => {
            let params = selection.clone().limit(1).at(&version).matching(VersionMatch::NotOlderThan);
            match answered(CONFIRMATION, api.list_metadata(&params)).await {
                Ok(_) => (None, State::Resume { version, is_reached: true }),
                Err(error) => (Some(Err(error)), State::Resume { version, is_reached: false }),
            }
        }
        State::Resume { version, is_reached: true } => {
            let params = watch_params(selection);
            match answered(SILENCE, api.watch(&params, &version)).await {
                Ok(events) => first(version, events.boxed()).await,
                Err(error) => (Some(Err(error)), State::Resume { version, is_reached: false }),
            }
        }
        State::Watch { version, mut events } => match timeout(SILENCE, events.next()).await {
            Ok(Some(event)) => watched(event, version, events),
            Ok(None) | Err(_) => (None, State::Resume { version, is_reached: false }),
        },
    }
}

/// Waits for the answer to a request that begins a watch, but not longer than this.
async fn answered<T>(limit: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, WatchError> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(WatchError::Start),
        Err(_) => Err(WatchError::NoAnswer(limit)),
    }
}

/// Returns the first event of a watch. One that ends without any at once would otherwise be repeated without a pause.
async fn first<K: Resource>(
    version: String,
    mut events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
) -> (Option<Result<Event<K>, WatchError>>, State<K>) {
    match timeout(SHORTEST, events.next()).await {
        Ok(Some(event)) => watched(event, version, events),
        Ok(None) => (Some(Err(WatchError::Short)), State::Resume { version, is_reached: false }),
        Err(_) => (None, State::Watch { version, events }),
    }
}

fn watch_params(selection: &ListParams) -> WatchParams {
    WatchParams {
        label_selector: selection.label_selector.clone(),
        field_selector: selection.field_selector.clone(),
        ..WatchParams::default()
    }
}

/// An event of a streamed list, which ends with a bookmark.
fn streamed<K: Resource>(
    event: kube::Result<WatchEvent<K>>,
    events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
) -> (Option<Result<Event<K>, WatchError>>, State<K>) {
    match event {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            (Some(Ok(Event::InitApply(object))), State::Stream { events })
        }
        // An object that was listed before is deleted: the list is incomplete, as a page would be.
        Ok(WatchEvent::Deleted(_)) => (Some(Err(WatchError::NoEnd)), State::Start),
        Ok(WatchEvent::Bookmark(bookmark)) => match bookmark.metadata.annotations.get(INITIAL_EVENTS_END) {
            Some(_) => {
                (Some(Ok(Event::InitDone)), State::Watch { version: bookmark.metadata.resource_version, events })
            }
            None => (None, State::Stream { events }),
        },
        Ok(WatchEvent::Error(status)) => (Some(Err(WatchError::Ended(status))), State::Start),
        Err(error) => (Some(Err(WatchError::Interrupted(error))), State::Start),
    }
}

/// The page that begins at this token; the first if it is empty.
async fn page<K>(
    api: &Api<K>,
    selection: &ListParams,
    token: String,
) -> (Option<Result<Event<K>, WatchError>>, State<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut params = selection.clone();
    params.limit = Some(PAGE);
    params.continue_token = (!token.is_empty()).then_some(token);
    match api.list(&params).await {
        Ok(list) => {
            let next = list.metadata.continue_.filter(|token| !token.is_empty());
            let version = list.metadata.resource_version.unwrap_or_default();
            (None, State::Page { objects: list.items.into_iter(), next, version })
        }
        Err(error) => (Some(Err(WatchError::List(error))), State::Start),
    }
}

fn watched<K: Resource>(
    event: kube::Result<WatchEvent<K>>,
    version: String,
    events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
) -> (Option<Result<Event<K>, WatchError>>, State<K>) {
    let (event, object): (fn(K) -> Event<K>, K) = match event {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (Event::Apply, object),
        Ok(WatchEvent::Deleted(object)) => (Event::Delete, object),
        Ok(WatchEvent::Bookmark(bookmark)) => {
            return (None, State::Watch { version: bookmark.metadata.resource_version, events });
        }
        Ok(WatchEvent::Error(status)) => {
            let state = if status.code == 410 { State::Start } else { State::Watch { version, events } };
            return (Some(Err(WatchError::Ended(status))), state);
        }
        Err(error) => return (Some(Err(WatchError::Interrupted(error))), State::Watch { version, events }),
    };
    match object.resource_version() {
        Some(version) if !version.is_empty() => (Some(Ok(event(object))), State::Watch { version, events }),
        _ => (Some(Err(WatchError::NoVersion)), State::Start),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kubewright_apimachinery::clock::{Clock, VirtualClock};
    use serde_json::json;

    use super::{
        super::script::{Answer, Requests, Rest, api_server, event, failure},
        *,
    };

    fn text(item: Result<Event<ConfigMap>, WatchError>) -> String {
        match item {
            Ok(Event::Init) => "init".into(),
            Ok(Event::InitApply(object)) => format!("listed {}", object.name_any()),
            Ok(Event::InitDone) => "done".into(),
            Ok(Event::Apply(object)) => format!("applied {}", object.name_any()),
            Ok(Event::Delete(object)) => format!("deleted {}", object.name_any()),
            Err(error) => format!("error: {error}"),
        }
    }

    /// Returns the first items of a stream with this script, and the requests until then.
    async fn run(count: usize, script: impl IntoIterator<Item = Answer>) -> (Vec<String>, Requests) {
        run_as(false, count, script).await
    }

    async fn run_as(streams: bool, count: usize, script: impl IntoIterator<Item = Answer>) -> (Vec<String>, Requests) {
        let (client, requests) = api_server(script);
        let stream = pin!(list_watch(Api::<ConfigMap>::default_namespaced(client), ListParams::default(), streams));
        (stream.take(count).map(text).collect().await, requests)
    }

    fn empty(version: &'static str) -> Answer {
        Answer::Page(&[], version, "")
    }

    #[tokio::test(start_paused = true)]
    async fn pages_are_followed_by_a_watch() {
        let (items, requests) = run(
            8,
            [
                Answer::Page(&["a", "b"], "5", "more"),
                // An empty page in between is not the end.
                Answer::Page(&[], "5", "last"),
                Answer::Page(&["c"], "5", ""),
                Answer::Watch(
                    vec![event("ADDED", "d", "6"), event("MODIFIED", "a", "7"), event("DELETED", "b", "8")],
                    Rest::Silence,
                ),
            ],
        )
        .await;
        assert_eq!(items, ["init", "listed a", "listed b", "listed c", "done", "applied d", "applied a", "deleted b"]);
        assert_eq!(requests.lines(), ["list", "list more", "list last", "watch 5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_streamed_as_the_beginning_of_the_watch() {
        let mut end = event("BOOKMARK", "", "7");
        end["object"]["metadata"]["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        let events = vec![event("ADDED", "a", "3"), event("BOOKMARK", "", "4"), event("ADDED", "b", "5"), end];
        let later = [event("MODIFIED", "a", "8"), event("DELETED", "b", "9")];
        let whole = [events.clone(), later.to_vec()].concat();
        let script = [Answer::Watch(whole, Rest::End), Answer::Watch(vec![event("ADDED", "c", "10")], Rest::Silence)];
        let (items, requests) = run_as(true, 7, script).await;
        assert_eq!(items, ["init", "listed a", "listed b", "done", "applied a", "deleted b", "applied c"]);
        assert_eq!(requests.lines(), ["watch ", "watch 9"]);

        let script = [Answer::Watch(events[..1].to_vec(), Rest::End), Answer::Watch(events, Rest::Silence)];
        let (items, requests) = run_as(true, 6, script).await;
        assert_eq!(items, ["init", "listed a", "error: the streamed list ended early", "init", "listed a", "listed b"]);
        assert_eq!(requests.lines(), ["watch ", "watch "]);
    }

    /// What the API server has returned to writes before the list begins is part of the list, so the list mustn't have
    /// been requested before its beginning is known.
    #[tokio::test(start_paused = true)]
    async fn a_streamed_list_begins_before_its_request() {
        for streams in [false, true] {
            let (client, requests) = api_server([Answer::Watch(Vec::new(), Rest::Silence)]);
            let mut stream =
                pin!(list_watch(Api::<ConfigMap>::default_namespaced(client), ListParams::default(), streams));
            assert_eq!(stream.next().await.map(text).as_deref(), Some("init"));
            assert_eq!(requests.lines(), [""; 0], "streams: {streams}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_stream_lists_is_asked_for_pages() {
        let refusal = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        let script = [
            Answer::Refusal(422, refusal),
            Answer::Page(&["a"], "5", ""),
            Answer::Watch(vec![failure(410, "too old resource version")], Rest::End),
            Answer::Page(&["b"], "9", ""),
        ];
        let (items, requests) = run_as(true, 7, script).await;
        assert_eq!(items[..3], ["init", "listed a", "done"]);
        assert!(items[3].starts_with("error: the API server ended the watch: "), "{items:?}");
        assert_eq!(items[4..], ["init", "listed b", "done"]);
        assert_eq!(requests.lines(), ["watch ", "list", "watch 5", "list"], "it isn't asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_resumed_from_the_latest_object_or_bookmark() {
        let bookmark = event("BOOKMARK", "", "9");
        let (items, requests) = run(
            5,
            [
                empty("5"),
                Answer::Watch(vec![bookmark], Rest::End),
                Answer::Watch(vec![event("ADDED", "a", "12")], Rest::End),
                Answer::Watch(Vec::new(), Rest::End),
                Answer::Watch(vec![event("DELETED", "a", "20")], Rest::End),
            ],
        )
        .await;
        assert_eq!(items, ["init", "done", "applied a", "error: the API server ended the watch at once", "deleted a"]);
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 9", "watch 12", "watch 12"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_is_resumed_after_a_deadline() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let start = clock.monotonic();
        let (items, requests) = run(
            3,
            [
                empty("5"),
                Answer::Watch(vec![event("BOOKMARK", "", "6")], Rest::Silence),
                Answer::Watch(vec![event("ADDED", "a", "7")], Rest::Silence),
            ],
        )
        .await;
        assert_eq!(items, ["init", "done", "applied a"]);
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 6"]);
        assert_eq!((clock.monotonic() - start).as_secs(), SILENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_answered_is_requested_again() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let start = clock.monotonic();
        let script = [
            empty("5"),
            Answer::Nothing,
            Answer::Watch(vec![event("ADDED", "a", "6")], Rest::Silence),
            Answer::Nothing,
        ];
        let (items, requests) = run(4, script).await;
        assert_eq!(items, ["init", "done", "error: no answer to a request for the watch for 295 s", "applied a"]);
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 5"]);
        assert_eq!(clock.monotonic() - start, SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_watch_is_reported_and_resumed() {
        let (items, requests) = run(
            5,
            [
                empty("5"),
                Answer::Watch(vec![event("ADDED", "a", "6")], Rest::Fail),
                Answer::Watch(vec![event("MODIFIED", "a", "7")], Rest::Silence),
            ],
        )
        .await;
        assert_eq!(items[..3], ["init", "done", "applied a"]);
        assert!(items[3].starts_with("error: the watch was interrupted: "), "{items:?}");
        assert_eq!(items[4], "applied a");
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 6"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_version_is_listed_again() {
        let expired = "too old resource version: 5 (40)";
        let (items, requests) = run(
            6,
            [
                empty("5"),
                Answer::Watch(vec![failure(410, expired)], Rest::End),
                Answer::Page(&["b"], "40", ""),
                Answer::Watch(Vec::new(), Rest::Silence),
            ],
        )
        .await;
        assert_eq!(items[..2], ["init", "done"]);
        assert!(items[2].starts_with("error: the API server ended the watch: "), "{items:?}");
        assert_eq!(items[3..], ["init", "listed b", "done"]);
        assert_eq!(requests.lines(), ["list", "watch 5", "list"]);
    }

    /// The version may still be valid for another replica of the API server. Whether to list again is the caller's
    /// decision.
    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_is_requested_again() {
        let (items, requests) = run(
            5,
            [
                empty("5"),
                Answer::Refusal(410, "too old resource version: 5 (40)"),
                Answer::Refusal(403, "configmaps is forbidden"),
                Answer::Watch(vec![event("ADDED", "a", "6")], Rest::Silence),
            ],
        )
        .await;
        assert!(items[2..4].iter().all(|item| item.starts_with("error: failed to start the watch: ")), "{items:?}");
        assert_eq!(items[4], "applied a");
        assert_eq!(requests.lines(), ["list", "watch 5", "watch 5", "watch 5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_page_restarts_the_list() {
        let (items, requests) = run(
            7,
            [
                Answer::Page(&["a"], "5", "more"),
                Answer::Refusal(410, "The provided continue parameter is too old"),
                Answer::Refusal(500, "etcdserver: leader changed"),
                Answer::Page(&["b"], "9", ""),
            ],
        )
        .await;
        assert_eq!(items[..2], ["init", "listed a"]);
        assert!(items[2].starts_with("error: failed to list: "), "{items:?}");
        assert_eq!(items[3], "init");
        assert!(items[4].starts_with("error: failed to list: "), "{items:?}");
        assert_eq!(items[5..], ["init", "listed b"]);
        assert_eq!(requests.lines(), ["list", "list more", "list", "list"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_a_version_is_an_error() {
        let error = format!("error: {}", WatchError::NoVersion);
        let (items, requests) =
            run(6, [empty(""), empty("5"), Answer::Watch(vec![event("ADDED", "a", "")], Rest::Silence), empty("6")])
                .await;
        assert_eq!(items, ["init", &error, "init", "done", &error, "init"]);
        assert_eq!(requests.lines(), ["list", "list", "watch 5"]);
    }
}
