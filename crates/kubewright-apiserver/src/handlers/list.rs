//! GET of a collection.

use std::{ops::Bound, sync::Arc, time::Duration};

use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use kubewright_apimachinery::{
    decode,
    status::{Cause, Details, Status},
};
use serde_json::{Value, json};

use super::call::Call;
use crate::{
    body::Body,
    codec, compression,
    group_version::group_version,
    object_type, protobuf,
    registry::Resource,
    response::{self, Encoding, Representation, Response},
    selection::Selection,
    storage::{Expired, Key, Objects, ReadError, Snapshot, Store, Stored},
    strconv,
};

/// The time that a read waits for a revision in the future.
const FUTURE_TIMEOUT: Duration = Duration::from_secs(3);
/// The version of continue tokens.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// The approximate size of the chunks in which lists are sent.
const CHUNK: usize = 64 << 10;

/// The metadata of a page of a list.
pub(super) struct Page {
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

/// The objects of a page, or the response to a continue token that is too old.
pub(super) enum Listed {
    Items(Vec<Arc<Stored>>, Page),
    Expired(Response),
}

/// Lists a collection.
pub(super) async fn list(call: &Call) -> Result<Response, Status> {
    match select_page(call, false).await? {
        Listed::Items(items, page) => respond(call, items, &page),
        Listed::Expired(response) => Ok(response),
    }
}

/// Returns the objects that a list with the parameters of this call contains, in the version of the call. `paged` says
/// whether it counts as a list with a limit if it has none.
pub(super) async fn select_page(call: &Call, paged: bool) -> Result<Listed, Status> {
    check_options(call, false)?;
    let selection = selection(call)?;
    let limit = call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    // The cache of Kubernetes, which answers a list of any version, knows no pages.
    let limit = limit.filter(|_| call.resource.lifecycle.uncached || call.query.get("resourceVersion") != Some("0"));
    let (snapshot, after) = match call.query.get("continue") {
        None => (snapshot(call, paged || limit.is_some()).await?, None),
        Some(token) => match resume(call, token).await? {
            Continuation::At(snapshot, after) => (snapshot, Some(after)),
            Continuation::Expired(response) => return Ok(Listed::Expired(response)),
        },
    };
    let snapshot = convert_for_selection(call, snapshot, &selection).await?;
    let (items, page) = select(&snapshot, &selection, after.as_ref(), limit);
    Ok(Listed::Items(load_all(call, items).await?, page))
}

/// Converts objects to the version of the call. As Kubernetes' watch cache, a list isn't ready while that fails.
async fn load_all(call: &Call, objects: Vec<Arc<Stored>>) -> Result<Vec<Arc<Stored>>, Status> {
    let Resource { group, version, kind, .. } = &*call.resource;
    codec::load(&call.state.webhook_client, &call.resource, objects).await.map_err(|status| {
        let why = format!(
            "storage is (re)initializing: failed to list {}, Kind={kind}: {}",
            group_version(group, version),
            status.message
        );
        let details = Details { retry_after_seconds: Some(1), ..Details::default() };
        Status { details: Some(details.into()), ..Status::new(429, "TooManyRequests", why) }
    })
}

/// Returns the selection of a request.
pub(super) fn selection(call: &Call) -> Result<Selection, Status> {
    let (labels, fields) = (call.query.get("labelSelector"), call.query.get("fieldSelector"));
    Selection::parse(&call.resource, &call.namespace, labels, fields)
}

/// Converts a snapshot to the version of the call if the selection depends on fields of objects, since it names them in
/// that version.
pub(super) async fn convert_for_selection(
    call: &Call,
    snapshot: Snapshot,
    selection: &Selection,
) -> Result<Snapshot, Status> {
    if call.resource.versions.is_none() || !selection.depends_on_content() {
        return Ok(snapshot);
    }
    let found = range(&snapshot.objects, selection.namespace(), None);
    let (keys, objects): (Vec<_>, Vec<_>) = found.map(|(key, stored)| (key.clone(), stored.clone())).unzip();
    let objects = load_all(call, objects).await?;
    Ok(Snapshot { objects: keys.into_iter().zip(objects).collect(), ..snapshot })
}

/// Returns the objects of a namespace (of all, if it is empty) after a key, in order.
pub(super) fn range<'a>(
    objects: &'a Objects,
    namespace: &'a str,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
    let first = Key::new(namespace, "");
    let found = objects.from(after.map_or(Bound::Included(&first), Bound::Excluded));
    found.take_while(move |(key, _)| namespace.is_empty() || *key.namespace == *namespace)
}

/// Checks `resourceVersion` and the options that depend on it
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
pub(super) fn check_options(call: &Call, watch: bool) -> Result<(), Status> {
    let get = |name| call.query.get(name).unwrap_or_default();
    let (matching, version, next) = (get("resourceVersionMatch"), get("resourceVersion"), get("continue"));
    let initial = call.query.flag("sendInitialEvents");
    call.query.number("timeoutSeconds")?;
    let causes = match watch {
        true => watch_causes(matching, version, next, initial),
        false => list_causes(matching, version, next, initial),
    };
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes)) }
}

fn list_causes(matching: &str, version: &str, next: &str, initial: Option<bool>) -> Vec<Cause> {
    const MATCH: &str = "resourceVersionMatch";
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if !next.is_empty() {
            causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause::not_supported(MATCH, &json!(matching), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if initial.is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

fn watch_causes(matching: &str, version: &str, next: &str, initial: Option<bool>) -> Vec<Cause> {
    const MATCH: &str = "resourceVersionMatch";
    // A watch from any version has initial events by default.
    let is_legacy = matching.is_empty() && initial.is_none() && matches!(version, "" | "0");
    let (matching, initial) = if is_legacy { ("NotOlderThan", Some(true)) } else { (matching, initial) };
    let mut causes = Vec::new();
    if initial.is_some() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(MATCH, &json!(matching), &["NotOlderThan"]));
        }
        if !next.is_empty() {
            causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    causes
}

/// Returns the `resourceVersion` of the request. 0 means any.
fn requested_version(call: &Call) -> Result<Option<u64>, Status> {
    requested_version_of(call).map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

/// Returns the `resourceVersion` of a GET or a watch. Its error has no reason, as in Kubernetes.
pub(super) fn requested_start(call: &Call) -> Result<u64, Status> {
    Ok(requested_version_of(call).map_err(Status::unknown)?.unwrap_or(0))
}

fn requested_version_of(call: &Call) -> Result<Option<u64>, String> {
    let Some(text) = call.query.get("resourceVersion") else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Cause::invalid("resourceVersion", &json!(text), &strconv::parse_uint(text)).to_string())
}

/// Waits for a revision in the future, up to a timeout.
pub(super) async fn wait_for(store: &Store, revision: u64) -> Result<(), Status> {
    if revision == 0
        || store.revision() >= revision
        || tokio::time::timeout(FUTURE_TIMEOUT, store.reached(revision)).await.is_ok()
    {
        return Ok(());
    }
    let present = store.revision();
    let cause = Cause::new("ResourceVersionTooLarge", "", "Too large resource version");
    let details = Details { causes: vec![cause], retry_after_seconds: Some(1), ..Details::default() };
    let message = format!("Timeout: Too large resource version: {revision}, current: {present}");
    Err(Status { details: Some(details.into()), ..Status::new(504, "Timeout", message) })
}

async fn snapshot(call: &Call, limited: bool) -> Result<Snapshot, Status> {
    let (store, storage) = (&call.state.store, &call.resource.storage);
    let Some(version) = requested_version(call)?.filter(|version| *version > 0) else {
        return Ok(store.snapshot(storage));
    };
    wait_for(store, version).await?;
    // Without `resourceVersionMatch`, a limit makes the version exact, as in Kubernetes.
    let exact = match call.query.get("resourceVersionMatch") {
        Some(matching) => matching == "Exact",
        None => limited,
    };
    if !exact {
        return Ok(store.snapshot(storage));
    }
    snapshot_at(call, version).map_err(|error| match error {
        ReadError::Expired(_) => Status::expired("The resourceVersion for the provided list is too old."),
        ReadError::Future(_) => Status::internal("the revision of the store decreased"),
    })
}

/// Returns the objects of a call's resource at a revision, if it hasn't been compacted.
fn snapshot_at(call: &Call, revision: u64) -> Result<Snapshot, ReadError> {
    let oldest = call.state.compaction.oldest();
    if revision < oldest {
        return Err(ReadError::Expired(Expired { oldest }));
    }
    call.state.store.snapshot_at(&call.resource.storage, revision)
}

/// Returns 410.
pub(super) fn too_old(version: u64, oldest: u64) -> Status {
    Status::expired(format!("too old resource version: {version} ({oldest})"))
}

/// Returns the token for the page after a key of a list of this namespace, or of all namespaces, at the revision of the
/// whole list (−1 for the current one).
fn token(revision: i64, after: &Key, namespace: &str) -> String {
    // The zero byte makes it the smallest key after this one.
    let start = match &*after.namespace {
        space if space == namespace => format!("/{}\0", after.name),
        space => format!("/{space}/{}\0", after.name),
    };
    // A client that begins again at the current revision has the key without its slash, as in Kubernetes.
    let start = if revision < 0 { start.trim_start_matches('/') } else { &start };
    URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{TOKEN_VERSION}","rv":{revision},"start":{}}}"#, json!(start)))
}

/// The state that a continue token refers to.
enum Continuation {
    /// The list at its revision, and the last key of the previous page.
    At(Snapshot, Key),
    /// The revision is too old. The response has a token that continues with the current objects.
    Expired(Response),
}

/// The revision and the last key that a continue token contains.
#[derive(Debug, PartialEq)]
struct Token {
    revision: i64,
    after: Key,
}

impl Token {
    /// Parses a continue token of a list of this namespace, or of all namespaces. Errors have Kubernetes' wording.
    fn parse(text: &str, namespace: &str) -> Result<Self, String> {
        let invalid = |why: &dyn std::fmt::Display| format!("continue key is not valid: {why}");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            let place = match error {
                DecodeError::InvalidByte(place, _) | DecodeError::InvalidLastSymbol(place, _) => place,
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
            };
            invalid(&format!("illegal base64 data at input byte {place}"))
        })?;
        let token = decode::json(&bytes).map_err(|error| invalid(&error))?.value;
        let version = token["v"].as_str().unwrap_or_default();
        if version != TOKEN_VERSION {
            return Err(invalid(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = token["rv"].as_i64().unwrap_or(0);
        if revision == 0 {
            return Err(invalid(&format!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})")));
        }
        let start = token["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(invalid(&format!("encoded start key empty (version {TOKEN_VERSION})")));
        }
        if start.trim_start_matches('/').split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(&start));
        }
        let start = start.trim_start_matches('/').trim_end_matches('\0');
        let after = match namespace {
            "" => start.split_once('/').map_or_else(|| Key::new("", start), |(space, name)| Key::new(space, name)),
            namespace => Key::new(namespace, start),
        };
        Ok(Self { revision, after })
    }
}

/// Returns the state that a continue token refers to.
async fn resume(call: &Call, text: &str) -> Result<Continuation, Status> {
    let invalid = |why: &str| Status::bad_request(format!("invalid continue token: {why}"));
    let Token { revision, after } = Token::parse(text, &call.namespace).map_err(|why| invalid(&why))?;
    if call.query.get("resourceVersion").is_some_and(|version| version != "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let (store, storage) = (&call.state.store, &call.resource.storage);
    let Ok(revision) = u64::try_from(revision) else { return Ok(Continuation::At(store.snapshot(storage), after)) };
    wait_for(store, revision).await?;
    match snapshot_at(call, revision) {
        Ok(snapshot) => Ok(Continuation::At(snapshot, after)),
        Err(ReadError::Future(_)) => Err(Status::internal("the revision of the store decreased")),
        Err(ReadError::Expired(_)) => {
            let status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            );
            let mut body = status.to_json();
            body["metadata"]["continue"] = self::token(-1, &after, &call.namespace).into();
            Ok(Continuation::Expired(response::value(StatusCode::GONE, Encoding::Json, &body)))
        }
    }
}

fn select(
    snapshot: &Snapshot,
    selection: &Selection,
    after: Option<&Key>,
    limit: Option<usize>,
) -> (Vec<Arc<Stored>>, Page) {
    let mut page = Page { revision: snapshot.revision, next: None, remaining: None };
    if let (Some(name), false, None) = (selection.name(), selection.namespace().is_empty(), after) {
        let key = Key::new(selection.namespace(), name);
        let found = snapshot.objects.get(&key).filter(|stored| selection.matches(&key, stored));
        return (found.cloned().into_iter().collect(), page);
    }
    let mut items: Vec<Arc<Stored>> = Vec::new();
    let mut last = None;
    let mut rest = range(&snapshot.objects, selection.namespace(), after);
    while let Some((key, stored)) = rest.next() {
        // As in Kubernetes, which doesn't look at what follows a full page, nothing in it may match.
        if limit == Some(items.len()) {
            let revision = i64::try_from(snapshot.revision).unwrap_or(-1);
            page.next = Some(token(revision, last.unwrap_or(key), selection.namespace()));
            // As in Kubernetes, there is no count for lists with selectors.
            page.remaining = (!selection.is_narrowed()).then(|| 1 + rest.count());
            break;
        }
        if selection.matches(key, stored) {
            items.push(stored.clone());
            last = Some(key);
        }
    }
    (items, page)
}

/// Returns the response with a page.
pub(super) fn respond(call: &Call, items: Vec<Arc<Stored>>, page: &Page) -> Result<Response, Status> {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = next.as_str().into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    let resource = &call.resource;
    if resource.schema.custom && call.accept.representation == Representation::Whole && page.next.is_none() {
        // Lists of custom objects pass through no Go type, which would leave out an empty token.
        metadata["continue"] = "".into();
    }
    if call.accept.representation == Representation::Whole && call.accept.encoding == Encoding::Json {
        let first = match () {
            () if call.audit.wants_response() => usize::MAX,
            // What is produced while it is sent is long enough to be compressed.
            () if compression::is_accepted(&call.parts.headers) => compression::THRESHOLD + 1,
            () => CHUNK,
        };
        return Ok(response::bytes(StatusCode::OK, chunked(resource.clone(), items, &metadata, first)));
    }
    if let (Representation::Whole, Encoding::Protobuf, Some(of)) =
        (call.accept.representation, call.accept.encoding, resource.schema.served)
    {
        let version = group_version(&resource.group, &resource.version);
        let objects = items.iter().map(|stored| codec::to_served(resource, &stored.value()));
        let list = protobuf::encode_list((&version, &resource.list_kind), &metadata, of, objects);
        return Ok(response::protobuf(StatusCode::OK, list));
    }
    let list = call.present_list(&items, &metadata)?;
    Ok(response::value(StatusCode::OK, call.accept.encoding, &list))
}

/// The text of a list. It is written while it is sent, so that a large list is never in memory as a whole.
struct Chunks {
    resource: Arc<Resource>,
    items: std::vec::IntoIter<Arc<Stored>>,
    /// The text before the first item, until it has been sent.
    head: Option<Vec<u8>>,
    /// The text after the last item.
    tail: Vec<u8>,
    /// The size of the next chunk, at least.
    size: usize,
    ended: bool,
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let head = self.head.take();
        let mut separate = head.is_none();
        let mut chunk = BytesMut::from(&*head.unwrap_or_default());
        while chunk.len() < self.size {
            let Some(item) = self.items.next() else {
                self.ended = true;
                chunk.extend_from_slice(&self.tail);
                break;
            };
            if std::mem::replace(&mut separate, true) {
                chunk.put_u8(b',');
            }
            chunk.put_u8(b'{');
            chunk.extend_from_slice(&codec::item_text(&self.resource, &item));
        }
        Some(chunk.freeze())
    }
}

/// Returns the text of a list, whose first chunk has at least the given size if there are others.
fn chunked(resource: Arc<Resource>, items: Vec<Arc<Stored>>, metadata: &Value, first: usize) -> Body {
    let version = group_version(&resource.group, &resource.version);
    let kind = &resource.list_kind;
    let (head, tail) = if resource.schema.custom {
        // Custom objects have their fields in alphabetical order.
        let head = format!(r#"{{"apiVersion":"{version}","items":["#);
        (head.into_bytes(), format!("],\"kind\":\"{kind}\",\"metadata\":{metadata}}}\n").into_bytes())
    } else {
        let start = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":"#);
        let head = [start.as_bytes(), &object_type::list_meta(metadata), br#","items":["#].concat();
        (head, b"]}\n".to_vec())
    };
    let mut chunks = Chunks { resource, items: items.into_iter(), head: Some(head), tail, size: first, ended: false };
    let first = chunks.next().unwrap_or_default();
    chunks.size = CHUNK;
    if chunks.ended {
        return first.into();
    }
    Body::stream(stream::iter(std::iter::once(first).chain(chunks).map(Ok)))
}
