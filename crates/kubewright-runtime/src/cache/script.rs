//! A scripted API server for tests of lists and watches: each request gets the next response of the script.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::{Client, client::Body};
use kubewright_apimachinery::clock::{Clock, VirtualClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// The response to a request.
pub(super) enum Answer {
    /// A page of a list: the names of its objects, the resource version, and the token of the next page.
    Page(&'static [&'static str], &'static str, &'static str),
    /// A refusal with this code and message.
    Refusal(u16, &'static str),
    /// The events of a watch, and its continuation.
    Watch(Vec<Value>, Rest),
    /// None. The request never ends. A script continues with it.
    Nothing,
}

/// The continuation of a watch after its events.
pub(super) enum Rest {
    /// The API server ends it.
    End,
    /// The connection fails.
    Fail,
    /// Nothing arrives any more.
    Silence,
}

/// An event of a watch. Without a version, the object has no resource version.
pub(super) fn event(type_: &str, name: &str, version: &str) -> Value {
    json!({ "type": type_, "object": object(name, version) })
}

/// An event that ends a watch with this code.
pub(super) fn failure(code: u16, message: &str) -> Value {
    json!({ "type": "ERROR", "object": status(code, message) })
}

fn object(name: &str, version: &str) -> Value {
    let mut metadata = json!({ "name": name, "namespace": "default" });
    if !version.is_empty() {
        metadata["resourceVersion"] = version.into();
    }
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

fn status(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "reason": "Any", "message": message })
}

/// The requests that the API server has received: the time since the start, and `list`, `list NEXT` (with the token of
/// the page) or `watch VERSION`.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Mutex<Vec<(Duration, String)>>>);

impl Requests {
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().iter().map(|(_, line)| line.clone()).collect()
    }

    /// Returns the times between the requests, in milliseconds.
    pub(super) fn pauses(&self) -> Vec<u128> {
        let requests = self.0.lock();
        requests.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_millis()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// Returns a client of an API server with this script.
pub(super) fn api_server(script: impl IntoIterator<Item = Answer>) -> (Client, Requests) {
    let (requests, clock) = (Requests::default(), VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
    let start = clock.monotonic();
    let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
    let record = requests.clone();
    let service = service_fn(move |request: Request<Body>| {
        let answer = if confirms(&request) {
            Answer::Page(&[], "1", "")
        } else {
            record.0.lock().push((clock.monotonic() - start, line(&request)));
            script.lock().pop_front().unwrap_or(Answer::Nothing)
        };
        async move {
            let (code, body) = match answer {
                Answer::Page(names, version, next) => {
                    let items = names.iter().map(|name| object(name, "1")).collect::<Vec<_>>();
                    let metadata = json!({ "resourceVersion": version, "continue": next });
                    (200, whole(&json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items })))
                }
                Answer::Refusal(code, message) => (code, whole(&status(code, message))),
                Answer::Watch(events, rest) => (200, streamed(events, rest)),
                Answer::Nothing => std::future::pending().await,
            };
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("a response"))
        }
    });
    (Client::new(service, "default"), requests)
}

/// Returns whether this is the list of one object that confirms a version before a watch is resumed from it. It is
/// answered without the script, and isn't recorded.
fn confirms(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.contains("limit=1&") && query.contains("resourceVersionMatch=NotOlderThan")
}

fn line(request: &Request<Body>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let query = query.split('&').filter_map(|pair| pair.split_once('=')).collect::<BTreeMap<_, _>>();
    if query.get("watch") == Some(&"true") {
        assert_eq!(query.get("allowWatchBookmarks"), Some(&"true"));
        return format!("watch {}", query["resourceVersion"]);
    }
    assert_eq!(query.get("limit"), Some(&"500"));
    query.get("continue").map_or("list".into(), |next| format!("list {next}"))
}

fn whole(value: &Value) -> ResponseBody {
    let text = Bytes::from(value.to_string());
    StreamBody::new(stream::iter([Ok(Frame::data(text))])).boxed_unsync()
}

fn streamed(events: Vec<Value>, rest: Rest) -> ResponseBody {
    let events = stream::iter(events).map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    let rest: stream::BoxStream<'static, io::Result<Frame<Bytes>>> = match rest {
        Rest::End => stream::empty().boxed(),
        Rest::Fail => stream::iter([Err(io::Error::other("connection reset"))]).boxed(),
        Rest::Silence => stream::pending().boxed(),
    };
    StreamBody::new(events.chain(rest)).boxed_unsync()
}
