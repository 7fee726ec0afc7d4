//! The recorder of one run: its reads, writes and events.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};

use super::{Query, Read, RecordedEvent, Write};
use crate::{
    client::{Call, ClientError, Operation, ParsedResponse, explain},
    event::{Event, EventType},
    object::{KindName, ObjectKey},
};

/// The maximum number of entries of each type kept for a run. Further entries are only counted.
const MOST: usize = 32;
/// The kind whose errors are not kept.
const SECRET: &str = "Secret";
/// The length in bytes to which error messages are truncated.
const LONGEST_ERROR: usize = 1024;

/// A recorder of one run. Clones share the record, so that it outlives an aborted run. The default records nothing.
#[derive(Clone, Default)]
pub(crate) struct RunRecorder(Option<Arc<Inner>>);

struct Inner {
    clock: SharedClock,
    notes: Mutex<RunNotes>,
    /// The latest versions that the run has read or written, if they are noted.
    versions: Option<Mutex<Versions>>,
}

/// The versions of objects, by kind.
type Versions = BTreeMap<KindName, BTreeMap<ObjectKey, u64>>;

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunNotes {
    pub(super) reads: Vec<Read>,
    pub(super) more_reads: u32,
    pub(super) writes: Vec<Write>,
    pub(super) more_writes: u32,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) more_events: u32,
    /// True if a request for a Secret failed, so that the error of the run may quote it.
    pub(super) hides_errors: bool,
}

impl RunRecorder {
    pub(crate) fn new(clock: SharedClock, has_versions: bool) -> Self {
        let versions = has_versions.then(Mutex::default);
        Self(Some(Arc::new(Inner { clock, notes: Mutex::default(), versions })))
    }

    /// Returns whether versions are noted.
    pub(crate) fn has_versions(&self) -> bool {
        self.versions().is_some()
    }

    fn versions(&self) -> Option<&Mutex<Versions>> {
        self.0.as_ref()?.versions.as_ref()
    }

    /// Notes the version of an object that the run has read or written.
    pub(crate) fn saw(&self, kind: &KindName, key: &ObjectKey, version: Option<u64>) {
        let (Some(versions), Some(version)) = (self.versions(), version) else { return };
        let mut versions = versions.lock();
        // Most objects are of a kind that is known already.
        if !versions.contains_key(kind) {
            versions.insert(kind.clone(), BTreeMap::new());
        }
        let known = versions.get_mut(kind).map(|of_kind| of_kind.entry(key.clone()).or_default());
        if let Some(known) = known {
            *known = version.max(*known);
        }
    }

    /// Notes the versions in a response, and returns that of the object, if it is one.
    fn saw_answer(&self, call: &Call, answer: &Result<ParsedResponse, ClientError>) -> Option<u64> {
        let answer = answer.as_ref().ok().filter(|_| self.has_versions())?;
        let Objects { kind, metadata, items } = answer.read().ok()?;
        if kind == "Status" {
            return None;
        }
        let version = |metadata: &Metadata| metadata.resource_version.parse::<u64>().ok();
        match items {
            Some(items) => {
                for Object { metadata } in items {
                    let key = match metadata.namespace.as_str() {
                        "" => ObjectKey::cluster(&metadata.name),
                        namespace => ObjectKey::namespaced(namespace, &metadata.name),
                    };
                    self.saw(call.kind(), &key, version(&metadata));
                }
                None
            }
            None => {
                let version = version(&metadata);
                self.saw(call.kind(), &call.key().sibling(&metadata.name), version);
                version
            }
        }
    }

    /// Returns whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a read from the cache.
    pub(crate) fn read(&self, kind: impl FnOnce() -> Cow<'static, str>, query: impl FnOnce() -> Query, found: usize) {
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        self.note_read(|| Read::cached(kind(), query(), found));
    }

    /// Records a request. A write is recorded before it is sent, so that it is kept without a response if the response
    /// is lost or the run is aborted. `query` is the query of the URL, which contains the selector.
    pub(crate) fn sent(&self, call: &Call, query: Option<&str>) -> Sent {
        let Some(inner) = &self.0 else { return Sent::default() };
        let started = inner.clock.monotonic();
        if !call.operation().is_write() {
            let query = match call.operation() {
                Operation::Get => Query::Name { object: call.key().to_string() },
                _ => Query::Labels {
                    namespace: call.namespace().map(Into::into),
                    selector: query.and_then(|query| parameter(query, "labelSelector")).unwrap_or_default(),
                },
            };
            return Sent { recorder: self.clone(), started, what: What::Read(query) };
        }
        let RunNotes { writes, more_writes, .. } = &mut *inner.notes.lock();
        let index = add(writes, more_writes, || {
            let mut write = Write::new(call.operation().as_str(), call.kind().kind.clone(), call.key().to_string());
            write.subresource = call.subresource().map(Into::into);
            write.dry_run = call.is_dry_run();
            let versions = self.versions().map(|versions| versions.lock());
            write.read_version = versions.and_then(|versions| versions.get(call.kind())?.get(call.key()).copied());
            write
        });
        Sent { recorder: self.clone(), started, what: index.map_or(What::Nothing, What::Write) }
    }

    fn note_read(&self, read: impl FnOnce() -> Read) {
        let Some(inner) = &self.0 else { return };
        let RunNotes { reads, more_reads, .. } = &mut *inner.notes.lock();
        add(reads, more_reads, read);
    }

    /// Records an event.
    pub(crate) fn event(&self, event: &Event) {
        let Some(inner) = &self.0 else { return };
        let RunNotes { events, more_events, .. } = &mut *inner.notes.lock();
        add(events, more_events, || {
            RecordedEvent::new(event.type_ == EventType::Warning, event.reason.chars().take(128).collect::<String>())
        });
    }

    /// Ends the record and returns it. Requests that an aborted run still sends are not recorded.
    pub(crate) fn finish(&self) -> RunNotes {
        self.0.as_ref().map(|inner| std::mem::take(&mut *inner.notes.lock())).unwrap_or_default()
    }
}

/// A recorded request.
#[derive(Default)]
pub(crate) struct Sent {
    recorder: RunRecorder,
    started: Duration,
    what: What,
}

#[derive(Default)]
enum What {
    #[default]
    Nothing,
    Read(Query),
    /// The write at this index.
    Write(usize),
}

impl Sent {
    /// Records the response, and whether the write changed anything, if known.
    pub(crate) fn answered(&self, call: &Call, answer: &Result<ParsedResponse, ClientError>, changed: Option<bool>) {
        let Some(inner) = &self.recorder.0 else { return };
        let duration = Some(inner.clock.monotonic().saturating_sub(self.started));
        let error = answer.as_ref().err().map(|error| shown(&call.kind().kind, error));
        let version = if call.is_dry_run() { None } else { self.recorder.saw_answer(call, answer) };
        if error.is_some() && call.kind().kind == SECRET {
            inner.notes.lock().hides_errors = true;
        }
        match &self.what {
            What::Nothing => {}
            What::Write(index) => {
                let status = match answer {
                    Ok(answer) => Some(answer.status()),
                    Err(error) => error.status().map(|status| status.code),
                };
                if let Some(write) = inner.notes.lock().writes.get_mut(*index) {
                    let is_certain =
                        matches!(call.operation(), Operation::Create | Operation::Delete) && call.changes_something();
                    let changed = if is_certain { Some(true) } else { changed };
                    write.changed = changed.filter(|_| error.is_none());
                    if let (None, Ok(answer)) = (call.name(), answer) {
                        write.object = named(call.key(), answer).to_string();
                    }
                    (write.status, write.error, write.duration) = (status, error, duration);
                    write.version = version;
                }
            }
            What::Read(query) => {
                let found = match answer {
                    Ok(answer) => Some(found(call, answer)),
                    Err(error) => error.is_not_found().then_some(0),
                };
                let error = error.filter(|_| found.is_none());
                self.recorder.note_read(|| {
                    let mut read = Read::default();
                    (read.kind, read.query, read.live) = (call.kind().kind.clone().into(), query.clone(), true);
                    (read.found, read.duration, read.error) = (found, duration, error);
                    read
                });
            }
        }
    }
}

/// Counts the objects in the response to a read.
fn found(call: &Call, answer: &ParsedResponse) -> u32 {
    #[derive(Deserialize)]
    struct List {
        items: Vec<IgnoredAny>,
    }
    if call.operation() == Operation::Get {
        return 1;
    }
    let list = answer.read::<List>();
    list.map_or(0, |list| u32::try_from(list.items.len()).unwrap_or(u32::MAX))
}

/// The part of a response that has versions.
#[derive(Deserialize)]
struct Objects {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    items: Option<Vec<Object>>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    resource_version: String,
}

/// Returns the key with the name generated by the API server.
fn named(key: &ObjectKey, answer: &ParsedResponse) -> ObjectKey {
    let object = answer.read::<Object>();
    object.map_or_else(|_| key.clone(), |object| key.sibling(&object.metadata.name))
}

/// Returns a parameter of a URL query, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let (_, value) = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let escaped = |rest: &mut std::str::Bytes<'_>| {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()
        };
        bytes.push(match byte {
            b'%' => escaped(&mut rest)?,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Adds an entry if the list is not full, and returns its index.
fn add<T>(list: &mut Vec<T>, more: &mut u32, one: impl FnOnce() -> T) -> Option<usize> {
    if list.len() < MOST {
        list.push(one());
        return Some(list.len() - 1);
    }
    *more = more.saturating_add(1);
    None
}

/// Returns the message of an error, or a placeholder for Secrets, since the API server's message may quote their
/// content.
fn shown(kind: &str, error: &ClientError) -> String {
    match error {
        _ if kind == SECRET => "errors about Secrets are not shown".into(),
        // Operation and object are recorded separately.
        ClientError::Request { source, .. } => cut(explain(source.as_ref())),
        error => cut(error.to_string()),
    }
}

/// Truncates a long error message.
pub(super) fn cut(mut error: String) -> String {
    if error.len() > LONGEST_ERROR {
        let mut end = LONGEST_ERROR;
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        error.truncate(end);
        error.push('…');
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_from_the_request() {
        let query = "&limit=500&labelSelector=app%3Dweb%2Ctier+in+%28a%29";
        assert_eq!(parameter(query, "labelSelector").as_deref(), Some("app=web,tier in (a)"));
        assert_eq!(parameter("labelSelector=%4", "labelSelector"), None);
        assert_eq!(parameter("limit=1", "labelSelector"), None);
    }

    #[test]
    fn long_errors_are_cut_between_characters() {
        let text = cut("é".repeat(1000));
        assert!(text.len() < 1030 && text.ends_with("é…"), "{}", text.len());
        assert_eq!(cut("short".into()), "short");
    }
}
