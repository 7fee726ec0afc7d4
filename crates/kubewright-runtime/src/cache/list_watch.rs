//! Lists a kind and watches it from there, repeatedly, as a stream of events, like client-go's `ListAndWatch`.
//!
//! Lists are paged. A watch that ends is resumed from the latest version that an object or a bookmark has shown. After the
//! status 410, *Expired*, the kind is listed again. Errors are items of the stream, and the next poll tries again, so the
//! caller decides how long to wait between attempts.

use std::{fmt::Debug, time::Duration, vec};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::timeout;

/// The number of objects in a page of a list, as in client-go.
const PAGE: u32 = 500;
/// The longest time without an event before a watch's connection counts as dead. kube requests that API servers end a watch
/// after 290 seconds.
const SILENCE: Duration = Duration::from_secs(295);

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
    #[error("the API server's answer has no resourceVersion")]
    NoVersion,
}

/// Where a feed is.
enum State<K> {
    Start,
    /// Objects of the last page are left, then that after `next` follows, or the watch from `version`.
    Page {
        objects: vec::IntoIter<K>,
        next: Option<String>,
        version: String,
    },
    Resume {
        version: String,
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
) -> impl Stream<Item = Result<Event<K>, WatchError>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    stream::unfold(State::Start, move |mut state| {
        let (api, selection) = (api.clone(), selection.clone());
        async move {
            loop {
                let (item, next) = step(&api, &selection, state).await;
                if let Some(item) = item {
                    return Some((item, next));
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
) -> (Option<Result<Event<K>, WatchError>>, State<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match state {
        State::Start => {
            let (objects, next) = (Vec::new().into_iter(), Some(String::new()));
            (Some(Ok(Event::Init)), State::Page { objects, next, version: String::new() })
        }
        State::Page { mut objects, next, version } => match (objects.next(), next) {
            (Some(object), next) => (Some(Ok(Event::InitApply(object))), State::Page { objects, next, version }),
            (None, Some(next)) => page(api, selection, next).await,
            (None, None) if version.is_empty() => (Some(Err(WatchError::NoVersion)), State::Start),
            (None, None) => (Some(Ok(Event::InitDone)), State::Resume { version }),
        },
        State::Resume { version } => {
            let params = WatchParams {
                label_selector: selection.label_selector.clone(),
                field_selector: selection.field_selector.clone(),
                ..WatchParams::default()
            };
            match api.watch(&params, &version).await {
                Ok(events) => (None, State::Watch { version, events: events.boxed() }),
                Err(error) => (Some(Err(WatchError::Start(error))), State::Resume { version }),
            }
        }
        State::Watch { version, mut events } => match timeout(SILENCE, events.next()).await {
            Ok(Some(event)) => watched(event, version, events),
            Ok(None) | Err(_) => (None, State::Resume { version }),
        },
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
