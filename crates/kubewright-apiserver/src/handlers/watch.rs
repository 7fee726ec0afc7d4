//! WATCH of a collection.
//!
//! A watch is a stream that is produced while it is read: a cursor into the event log, without a queue. A slow reader
//! costs no memory. When the log no longer contains its position, the watch ends with 410. The reader's task evaluates
//! selectors.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use kubewright_apimachinery::status::Status;
use kubewright_apimachinery::watch::Receiver;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{call::Call, list, present};
use crate::{
    body::Body,
    codec,
    group_version::group_version,
    object_type, protobuf,
    registry::Resource,
    response::{self, Encoding, Representation, Response},
    selection::Selection,
    storage::{ChangeKind, Cursor, Event, Key, Objects, Snapshot, Stored, frame},
    websocket::{self, ConnectionTasks, Content},
};

/// The minimum duration of watches without `timeoutSeconds`. They end after up to twice this time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// The time before the end of a watch at which its last bookmark is sent.
const BEFORE_END: Duration = Duration::from_secs(2);
/// The maximum number of events that are read from the log at once.
const BATCH: usize = 128;
/// The annotation of the bookmark that follows the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Watches a collection.
pub(super) async fn watch(mut call: Call) -> Result<Response, Status> {
    list::check_options(&call, true)?;
    if call.accept.encoding == Encoding::Protobuf && websocket::is_requested(&call.parts.headers) {
        // The messages of a WebSocket are texts.
        call.accept.encoding = Encoding::Json;
    }
    if call.accept.encoding == Encoding::Yaml {
        let message = match call.resource.schema.custom {
            true => "only the following media types are accepted: application/json, application/json;stream=watch",
            false => {
                "only the following media types are accepted: application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch"
            }
        };
        return Err(Status::new(406, "NotAcceptable", message));
    }
    let selection = list::selection(&call)?;
    let version = list::requested_start(&call)?;
    let wants_initial = call.query.flag("sendInitialEvents");
    let timeout = match call.query.number("timeoutSeconds")?.map(nanoseconds).filter(|nanoseconds| *nanoseconds != 0) {
        // A negative time ends the watch before its first event.
        Some(nanoseconds) => Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default()),
        None => DEFAULT_TIMEOUT.mul_f64(1.0 + call.state.random.fraction()),
    };
    // Once the request is understood, errors are events.
    let failure = match wants_initial {
        Some(true) => list::wait_for(&call.state.store, version).await.err(),
        _ => None,
    };
    let (store, storage) = (call.state.store.clone(), call.resource.storage.clone());
    // Without a version, a watch begins with all objects, unless `sendInitialEvents` says otherwise.
    let (initial, start) = if wants_initial.unwrap_or(version == 0) {
        let Snapshot { objects, revision } = store.snapshot(&storage);
        (Some(Initial { objects, after: None }), revision)
    } else if version == 0 {
        (None, store.revision())
    } else {
        (None, version)
    };
    let (monotonic, encoding) = (call.state.clock.monotonic(), call.accept.encoding);
    let tasks = call.parts.extensions.get::<Arc<ConnectionTasks>>();
    let closing = tasks.map(|tasks| tasks.closing.clone()).unwrap_or_default();
    let watcher = Watcher {
        served: call.state.registry.changes(),
        initial,
        cursor: store.cursor(&storage, start),
        bookmarks: call.query.flag("allowWatchBookmarks") == Some(true),
        ends_at: monotonic + timeout,
        bookmark_at: next_bookmark(monotonic, call.state.bookmark_interval, monotonic + timeout),
        selection,
        ready: failure.into_iter().map(|status| Pending::Failure(Box::new(status))).collect(),
        columns_sent: false,
        ended: timeout.is_zero(),
        closing,
        alarm: Mutex::default(),
        call,
    };
    let chunks = stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next().await?;
        Some((Ok(chunk), watcher))
    });
    let mut response = response::bytes(StatusCode::OK, Body::stream(chunks));
    if encoding == Encoding::Protobuf {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(protobuf::STREAM_TYPE));
    }
    response.extensions_mut().insert(Content::Events);
    Ok(response)
}

/// Returns seconds as Go's duration, whose multiplication may overflow.
fn nanoseconds(seconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000)
}

/// Returns the time of the next bookmark. As in Kubernetes, one is sent shortly before the end, if there is enough
/// time.
fn next_bookmark(now: Duration, interval: Duration, ends_at: Duration) -> Duration {
    let next = now + interval;
    let last = ends_at.saturating_sub(BEFORE_END);
    if last > now { next.min(last) } else { next }
}

struct Watcher {
    call: Call,
    selection: Selection,
    cursor: Cursor,
    /// The objects of the initial events that have not been sent yet.
    initial: Option<Initial>,
    /// Notifies when the served resources change.
    served: Receiver<()>,
    bookmarks: bool,
    /// The monotonic time at which the watch ends.
    ends_at: Duration,
    /// The monotonic time of the next bookmark.
    bookmark_at: Duration,
    /// Events that are ready to be sent.
    ready: VecDeque<Pending>,
    columns_sent: bool,
    ended: bool,
    closing: CancellationToken,
    /// Waits for what is rarer than changes. It is kept, since a timer for each event of each watcher would cost as
    /// much as the rest. The lock is never taken: it lets the watcher be used by reference in tasks that move between
    /// threads.
    alarm: Mutex<Option<Pin<Box<dyn Future<Output = Alarm> + Send>>>>,
}

/// What a watcher waits for beside changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    /// The server shuts down.
    Closing,
    /// The served resources have changed, or a bookmark or the end of the watch may be due.
    Other,
}

impl Alarm {
    async fn ring(closing: CancellationToken, mut served: Receiver<()>, after: Duration) -> Self {
        tokio::select! {
            biased;
            () = closing.cancelled() => Self::Closing,
            _ = served.changed() => Self::Other,
            () = sleep(after) => Self::Other,
        }
    }
}

/// The objects that existed when the watch began, sent in batches.
struct Initial {
    objects: Objects,
    after: Option<Key>,
}

/// An event to be sent. Its text is written just before sending, so that a backlog contains only references.
enum Pending {
    Object(ChangeKind, Arc<Stored>),
    InitialEnd(u64),
    /// The error that ends the watch.
    Failure(Box<Status>),
}

impl Watcher {
    /// Returns the next chunk of the stream, or `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Kubernetes can't write an event with a list, and ends such a watch with the first.
            if self.call.accept.representation == Representation::MetadataList && !self.ready.is_empty() {
                self.ended = true;
                return None;
            }
            if let Some(pending) = self.ready.pop_front() {
                return Some(match pending {
                    Pending::Object(change, stored) => self.event(change, &stored),
                    Pending::InitialEnd(revision) => self.bookmark(revision, true),
                    Pending::Failure(status) => self.fail(&status),
                });
            }
            self.follow();
            if self.ended {
                return None;
            }
            if let Some(initial) = self.initial.take() {
                if let Err(status) = self.existing(initial).await {
                    return Some(self.fail(&status));
                }
                continue;
            }
            match self.cursor.read(&self.call.state.store, BATCH) {
                Err(expired) => {
                    let status = list::too_old(self.cursor.revision(), expired.oldest);
                    return Some(self.fail(&status));
                }
                Ok(events) if events.is_empty() => {
                    if let Some(chunk) = self.wait().await {
                        return Some(chunk);
                    }
                }
                Ok(events) => self.changes(&events).await,
            }
        }
    }

    /// Continues with the current entry of the watched resource. Ends if it is no longer served, or if the spec of its
    /// CRD has changed: as in Kubernetes, clients then read the objects again as the new schema has them.
    fn follow(&mut self) {
        if self.served.has_changed().unwrap_or(false) {
            self.served.mark_unchanged();
            match self.call.state.registry.successor(&self.call.resource) {
                Some(resource) if generation(&resource) == generation(&self.call.resource) => {
                    self.call.resource = resource;
                }
                _ => self.ended = true,
            }
        }
    }

    /// Returns the last chunk of the stream, an error.
    fn fail(&mut self, status: &Status) -> Bytes {
        self.ended = true;
        self.framed("ERROR", &status.to_json())
    }

    /// Converts stored objects to the watched version.
    async fn load(&self, objects: Vec<Arc<Stored>>) -> Result<Vec<Arc<Stored>>, Status> {
        codec::load(&self.call.state.webhook_client, &self.call.resource, objects).await
    }

    /// Waits for changes. Returns a bookmark if one is due.
    async fn wait(&mut self) -> Option<Bytes> {
        let now = self.call.state.clock.monotonic();
        // A watch may begin at a revision in the future, which bookmarks don't confirm before it is reached.
        let confirms = self.bookmarks && self.cursor.revision() <= self.call.state.store.revision();
        if now >= self.ends_at {
            self.ended = true;
            return None;
        }
        if self.bookmarks && now >= self.bookmark_at {
            self.bookmark_at = next_bookmark(now, self.call.state.bookmark_interval, self.ends_at);
            if confirms {
                return Some(self.bookmark(self.cursor.revision(), false));
            }
        }
        let due = if self.bookmarks { self.ends_at.min(self.bookmark_at) } else { self.ends_at };
        let (closing, served) = (&self.closing, &self.served);
        let alarm = self
            .alarm
            .get_mut()
            .get_or_insert_with(|| Box::pin(Alarm::ring(closing.clone(), served.clone(), due.saturating_sub(now))));
        tokio::select! {
            biased;
            open = self.cursor.wait() => self.ended |= !open,
            alarm = alarm => {
                *self.alarm.get_mut() = None;
                self.ended |= alarm == Alarm::Closing;
            }
        }
        None
    }

    /// Queues the next initial events. After the last one, queues the bookmark that marks the end, if requested.
    async fn existing(&mut self, mut initial: Initial) -> Result<(), Status> {
        let rest = list::range(&initial.objects, self.selection.namespace(), initial.after.as_ref());
        let rest = rest.take(BATCH).map(|(key, stored)| (key.clone(), stored.clone()));
        let (keys, objects): (Vec<_>, Vec<_>) = rest.unzip();
        let Some(last) = keys.last().cloned() else {
            if self.bookmarks {
                self.ready.push_back(Pending::InitialEnd(self.cursor.revision()));
            }
            return Ok(());
        };
        for (key, stored) in keys.iter().zip(self.load(objects).await?) {
            if self.selection.matches(key, &stored) {
                self.ready.push_back(Pending::Object(ChangeKind::Added, stored));
            }
        }
        initial.after = Some(last);
        self.initial = Some(initial);
        Ok(())
    }

    /// Queues changes of the log. If one can't be converted, those before it are still sent.
    async fn changes(&mut self, events: &[Arc<Event>]) {
        let relevant: Vec<_> = events.iter().filter(|event| self.selection.may_match(&event.key)).collect();
        // Tries to convert all changes at once.
        if let Ok(converted) = self.converted(&relevant).await {
            let seen = relevant.iter().zip(converted).filter_map(|(event, states)| self.seen(event, states));
            let seen: Vec<_> = seen.collect();
            self.ready.extend(seen);
            return;
        }
        for event in relevant {
            match self.converted(&[event]).await {
                Ok(mut converted) => {
                    let seen = converted.pop().and_then(|states| self.seen(event, states));
                    self.ready.extend(seen);
                }
                Err(status) => return self.ready.push_back(Pending::Failure(Box::new(status))),
            }
        }
    }

    /// Returns the objects before and after changes, in the watched version. The objects before remain in their stored
    /// version if the selection doesn't depend on their content.
    async fn converted(&self, events: &[&Arc<Event>]) -> Result<Vec<(Arc<Stored>, Option<Arc<Stored>>)>, Status> {
        let after = self.load(events.iter().map(|event| event.object.clone()).collect()).await?;
        let previous = events.iter().map(|event| event.previous.clone());
        if !self.selection.is_narrowed() {
            return Ok(after.into_iter().zip(previous).collect());
        }
        let before = self.load(events.iter().filter_map(|event| event.previous.clone()).collect()).await?;
        let mut before = before.into_iter();
        Ok(after.into_iter().zip(previous.map(|previous| previous.and_then(|_| before.next()))).collect())
    }

    /// Returns the event of a change for this watcher. Objects that start to match its selection are added, those that
    /// cease to match are deleted.
    fn seen(&self, event: &Event, (object, previous): (Arc<Stored>, Option<Arc<Stored>>)) -> Option<Pending> {
        let present = object.change() != ChangeKind::Deleted;
        let before = previous.as_ref().is_some_and(|previous| self.selection.matches(&event.key, previous));
        let after = present && self.selection.matches(&event.key, &object);
        let change = match (before, after) {
            (false, false) => return None,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        if change == ChangeKind::Deleted && present {
            // As in Kubernetes, the event contains the object's last matching state, with the resource version of the
            // change.
            let last = previous.map(|previous| Arc::unwrap_or_clone(previous.value())).unwrap_or_default();
            return Some(Pending::Object(change, Arc::new(Stored::new(change, object.revision(), last))));
        }
        Some(Pending::Object(change, object))
    }

    fn event(&mut self, change: ChangeKind, stored: &Stored) -> Bytes {
        let resource = &self.call.resource;
        if self.call.accept.representation == Representation::Whole && self.call.accept.encoding == Encoding::Json {
            // Nearly all watchers share the text of the event.
            let shared = if change == stored.change() { codec::served_frame(resource, stored) } else { None };
            return shared.unwrap_or_else(|| frame(change.as_str(), &codec::served_text(resource, stored)));
        }
        let object = codec::to_served(resource, &stored.value());
        self.presented(change.as_str(), object, &present::table_metadata(stored))
    }

    /// Returns an event in the encoding of the watch.
    fn framed(&self, change: &str, document: &Value) -> Bytes {
        match self.call.accept.encoding {
            Encoding::Protobuf => protobuf::encode_event(change, document).unwrap_or_default().into(),
            _ => frame(change, &object_type::to_vec(document)),
        }
    }

    /// Returns an event with an object, its metadata or its table.
    fn presented(&mut self, change: &str, object: Arc<Value>, table_metadata: &Value) -> Bytes {
        let document = match self.call.accept.representation {
            Representation::Whole => return self.framed(change, &object),
            Representation::Metadata | Representation::MetadataList => {
                present::metadata(self.call.accept.meta_version, &object)
            }
            Representation::Table => {
                // Only the first table defines the columns.
                let headers = !std::mem::replace(&mut self.columns_sent, true);
                match self.call.table(&[object], table_metadata, headers) {
                    Ok(table) => table,
                    Err(status) => return self.fail(&status),
                }
            }
        };
        self.framed(change, &document)
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let resource = self.call.resource.clone();
        let version = group_version(&resource.group, &resource.version);
        let mut object = json!({"kind": &*resource.kind, "apiVersion": version, "metadata": metadata});
        if let Some(ty) = resource.schema.served {
            ty.complete(&mut object);
        }
        // As in Kubernetes, that of a table has a row for an object without name.
        self.presented("BOOKMARK", Arc::new(object), &json!({"resourceVersion": revision.to_string()}))
    }
}
/// Returns the generation of the CRD of a custom kind.
fn generation(resource: &Resource) -> Option<i64> {
    resource.versions.as_ref().map(|versions| versions.generation())
}
