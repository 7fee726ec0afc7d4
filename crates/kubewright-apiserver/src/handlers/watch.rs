//! WATCH of a collection.
//!
//! A watch is a stream made as it is read: a cursor into the event log, and no queue. A reader that is too slow costs
//! nothing, falls off the log in the end, and is told so with 410. Selectors are evaluated here, in the reader's own time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use kubewright_apimachinery::status::Status;
use serde_json::json;
use tokio::{sync::watch::Receiver, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Call, list, present};
use crate::{
    auth::Closing,
    body::Body,
    convert,
    discovery::group_version,
    respond::{self, Answer, Shape, Text},
    selection::Selection,
    storage::{ChangeKind, Cursor, Event, Key, Objects, Snapshot, Stored, frame},
};

/// How often a watcher that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch without `timeoutSeconds` ends after this time, and up to twice as much.
const USUAL_TIMEOUT: Duration = Duration::from_secs(1800);
/// The most events that are read from the log at once.
const BATCH: usize = 128;
/// Marks the bookmark after which a watcher has seen all that existed.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Watches a collection.
pub(super) async fn watch(call: Call) -> Result<Answer, Status> {
    list::check_options(&call, true)?;
    if call.accept.text != Text::Json {
        let message = "only the following media types are accepted: application/json, application/json;stream=watch";
        return Err(Status::new(406, "NotAcceptable", message));
    }
    let selection = list::selection(&call)?;
    let version = list::requested_version(&call)?.unwrap_or(0);
    let wants_initial = call.query.flag("sendInitialEvents");
    let timeout = match call.query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => USUAL_TIMEOUT.mul_f64(1.0 + call.server.random.fraction()),
    };
    list::wait_for(&call.server.store, version).await?;
    let (store, storage) = (call.server.store.clone(), call.resource.storage.clone());
    // Without a version a watch begins with what exists; `sendInitialEvents` says so, or not, in so many words.
    let (initial, start) = if wants_initial.unwrap_or(version == 0) {
        let Snapshot { objects, revision } = store.snapshot(&storage);
        (Some(Initial { objects, after: None, marked: wants_initial == Some(true) }), revision)
    } else if version == 0 {
        (None, store.revision())
    } else {
        (None, version)
    };
    let monotonic = call.server.clock.monotonic();
    let closing = call.parts.extensions.get::<Closing>().map(|closing| closing.0.clone()).unwrap_or_default();
    let watcher = Watcher {
        served: call.server.registry.changes(),
        initial,
        cursor: store.cursor(&storage, start),
        bookmarks: call.query.flag("allowWatchBookmarks") == Some(true),
        ends_at: monotonic + timeout,
        bookmark_at: monotonic + BOOKMARK_EVERY,
        selection,
        ready: VecDeque::new(),
        columns_sent: false,
        ended: false,
        closing,
        call,
    };
    let pieces = stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((Ok(piece), watcher))
    });
    let mut answer = respond::bytes(StatusCode::OK, Body::stream(pieces));
    let kind = HeaderValue::from_static("application/json;stream=watch");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(answer)
}

struct Watcher {
    call: Call,
    selection: Selection,
    cursor: Cursor,
    /// What existed at the beginning and is not yet told.
    initial: Option<Initial>,
    /// Tells when the kind may no longer be served.
    served: Receiver<()>,
    bookmarks: bool,
    /// Monotonic times.
    ends_at: Duration,
    bookmark_at: Duration,
    /// Events that are ready to be sent.
    ready: VecDeque<Pending>,
    columns_sent: bool,
    ended: bool,
    closing: CancellationToken,
}

/// What existed when the watch began, told in batches.
struct Initial {
    objects: Objects,
    after: Option<Key>,
    /// Whether the end is to be marked.
    marked: bool,
}

/// What is to be sent. Texts are made when their turn comes, so that a backlog holds references only.
enum Pending {
    Object(ChangeKind, Arc<Stored>),
    InitialEnd(u64),
    /// The watch can't go on.
    Failure(Box<Status>),
}

impl Watcher {
    /// The next piece of the stream; none at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
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
            match self.cursor.read(&self.call.server.store, BATCH) {
                Err(expired) => {
                    let status = list::too_old(self.cursor.revision(), expired.oldest);
                    return Some(self.fail(&status));
                }
                Ok(events) if events.is_empty() => {
                    if let Some(piece) = self.wait().await {
                        return Some(piece);
                    }
                }
                Ok(events) => self.changes(&events).await,
            }
        }
    }

    /// Goes on with what is served by now in the place of what was asked for; ends if that is nothing.
    fn follow(&mut self) {
        if self.served.has_changed().unwrap_or(false) {
            self.served.mark_unchanged();
            match self.call.server.registry.successor(&self.call.resource) {
                Some(resource) => self.call.resource = resource,
                None => self.ended = true,
            }
        }
    }

    /// The last piece of the stream: what went wrong.
    fn fail(&mut self, status: &Status) -> Bytes {
        self.ended = true;
        frame("ERROR", status.to_json().to_string().as_bytes())
    }

    /// Objects out of the store, in the version that is watched.
    async fn load(&self, objects: Vec<Arc<Stored>>) -> Result<Vec<Arc<Stored>>, Status> {
        convert::load(&self.call.server, &self.call.resource, objects).await
    }

    /// Waits for news; what is due by the clock is sent.
    async fn wait(&mut self) -> Option<Bytes> {
        let now = self.call.server.clock.monotonic();
        if now >= self.ends_at {
            self.ended = true;
            return self.bookmarks.then(|| self.bookmark(self.cursor.revision(), false));
        }
        if self.bookmarks && now >= self.bookmark_at {
            self.bookmark_at = now + BOOKMARK_EVERY;
            return Some(self.bookmark(self.cursor.revision(), false));
        }
        let due = if self.bookmarks { self.ends_at.min(self.bookmark_at) } else { self.ends_at };
        tokio::select! {
            there = self.cursor.wait() => self.ended |= !there,
            changed = self.served.changed() => {
                if changed.is_ok() {
                    self.served.mark_changed();
                }
            }
            () = sleep(due.saturating_sub(now)) => {}
            () = self.closing.cancelled() => self.ended = true,
        }
        None
    }

    /// The next of what existed, as additions, and in the end the mark, if it was wished for.
    async fn existing(&mut self, mut initial: Initial) -> Result<(), Status> {
        let rest = list::range(&initial.objects, self.selection.namespace(), initial.after.as_ref());
        let rest = rest.take(BATCH).map(|(key, stored)| (key.clone(), stored.clone()));
        let (keys, objects): (Vec<_>, Vec<_>) = rest.unzip();
        let Some(last) = keys.last().cloned() else {
            if initial.marked && self.bookmarks {
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

    /// Changes out of the log. Those before one that can't be converted are told.
    async fn changes(&mut self, events: &[Arc<Event>]) {
        let reached: Vec<_> = events.iter().filter(|event| self.selection.reaches(&event.key)).collect();
        // All in one request, if it goes well.
        if let Ok(shown) = self.shown(&reached).await {
            let seen = reached.iter().zip(shown).filter_map(|(event, states)| self.seen(event, states));
            let seen: Vec<_> = seen.collect();
            self.ready.extend(seen);
            return;
        }
        for event in reached {
            match self.shown(&[event]).await {
                Ok(mut shown) => {
                    let seen = shown.pop().and_then(|states| self.seen(event, states));
                    self.ready.extend(seen);
                }
                Err(status) => return self.ready.push_back(Pending::Failure(Box::new(status))),
            }
        }
    }

    /// The states of objects after changes, and before them, in the version that is watched. Those before stay as they are
    /// stored where nobody looks at more than their place.
    async fn shown(&self, events: &[&Arc<Event>]) -> Result<Vec<(Arc<Stored>, Option<Arc<Stored>>)>, Status> {
        let after = self.load(events.iter().map(|event| event.object.clone()).collect()).await?;
        let previous = events.iter().map(|event| event.previous.clone());
        if !self.selection.looks_inside() {
            return Ok(after.into_iter().zip(previous).collect());
        }
        let before = self.load(events.iter().filter_map(|event| event.previous.clone()).collect()).await?;
        let mut before = before.into_iter();
        Ok(after.into_iter().zip(previous.map(|previous| previous.and_then(|_| before.next()))).collect())
    }

    /// A change as this watcher sees it: what enters its selection is added, what leaves it is deleted.
    fn seen(&self, event: &Event, (object, previous): (Arc<Stored>, Option<Arc<Stored>>)) -> Option<Pending> {
        let present = object.change() != ChangeKind::Deleted;
        let before = previous.is_some_and(|previous| self.selection.matches(&event.key, &previous));
        let after = present && self.selection.matches(&event.key, &object);
        let change = match (before, after) {
            (false, false) => return None,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        Some(Pending::Object(change, object))
    }

    fn event(&mut self, change: ChangeKind, stored: &Stored) -> Bytes {
        let resource = &self.call.resource;
        if self.call.accept.shape == Shape::Whole {
            // Nearly all events are sent to everyone as they stand in the log.
            let shared = if change == stored.change() { convert::served_frame(resource, stored) } else { None };
            return shared.unwrap_or_else(|| frame(change.as_str(), &convert::served_text(resource, stored)));
        }
        let object = convert::to_served(resource, &stored.value());
        let shown = match self.call.accept.shape {
            Shape::Metadata => present::metadata(&object),
            _ => {
                // The columns are told once.
                let headers = !std::mem::replace(&mut self.columns_sent, true);
                match self.call.table(&[object], &present::table_metadata(stored), headers) {
                    Ok(table) => table,
                    Err(status) => return self.fail(&status),
                }
            }
        };
        frame(change.as_str(), shown.to_string().as_bytes())
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let resource = &self.call.resource;
        let (kind, version) = match self.call.accept.shape {
            Shape::Whole => (&*resource.kind, group_version(&resource.group, &resource.version)),
            Shape::Table => ("Table", "meta.k8s.io/v1".into()),
            Shape::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".into()),
        };
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        frame("BOOKMARK", object.to_string().as_bytes())
    }
}
