//! Fault injection between a client and an API server: refused requests, lost responses, and slow or broken watches.
//!
//! A test wraps the client that it passes to the operator, keeps the original for itself, and adds rules that assign
//! faults to requests:
//!
//! ```
//! # use kubewright_cluster::faults::{Faults, Verb};
//! # fn example(client: kube::Client) {
//! let faults = Faults::new();
//! let operators_client = faults.client(&client);
//! // The second pod is created, but the operator never receives the answer.
//! faults.on(&[Verb::Create], "pods").skip(1).lose_response();
//! // The next three status writes are refused.
//! faults.on(&[Verb::Patch], "podsets/status").times(3).refuse(409, "Conflict");
//! // Nothing that happens to pods is seen until the gate is dropped.
//! let stale = faults.on(&[Verb::Watch], "pods").always().hold();
//! # drop(stale);
//! # }
//! ```
//!
//! All of these faults can occur with a real API server and network. As with a real server, a watch never skips an
//! event silently; it ends, and the client starts another one.

mod request;
mod service;
#[cfg(test)]
mod tests;
mod watch;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use kubewright_apimachinery::watch as signal;
use parking_lot::Mutex;
use tower::BoxError;

pub use self::request::{ApiRequest, Verb};

/// The body of a response to the client.
type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A set of fault rules. Clones share it, and rules may be added and removed at any time.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    next: u64,
    seen: BTreeMap<u64, RecordedRequest>,
}

/// A recorded request, with its response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The request.
    pub request: ApiRequest,
    /// The status code that the client received; `None` while the request is in progress, or if the response was lost.
    pub code: Option<u16>,
}

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    action: Action,
    hits: Arc<Mutex<usize>>,
}

#[derive(Clone, Debug)]
struct Matcher {
    verbs: &'static [Verb],
    resource: String,
    name: Option<String>,
    skip: usize,
    times: Option<usize>,
}

#[derive(Clone, Debug)]
enum Action {
    Refuse { code: u16, reason: String, message: String, retry_after: Option<u32> },
    LoseRequest,
    LoseAnswer,
    Delay(Duration),
    CutAfter(usize),
    Expire,
    Double,
    Hold(signal::Receiver<()>),
}

impl Faults {
    /// Creates a set without rules: all requests pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client whose requests are subject to the faults before they reach the server of `client`.
    pub fn client(&self, client: &Client) -> Client {
        Client::new(service::service(self.clone(), client.clone()), client.default_namespace())
    }

    /// Adds a rule for requests with these verbs for a resource (`pods`, `podsets/status`, or `*` for any). By default
    /// the rule applies once, to the next matching request. If several rules match, the first one applies.
    #[must_use = "a rule is complete with what shall happen"]
    pub fn on(&self, verbs: &'static [Verb], resource: &str) -> RuleBuilder {
        let matcher = Matcher { verbs, resource: resource.into(), name: None, skip: 0, times: Some(1) };
        RuleBuilder { faults: self.clone(), matcher, retry_after: None }
    }

    /// Removes all rules. Requests in progress are still subject to their faults.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// Returns all resource requests so far, in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.0.lock().seen.values().cloned().collect()
    }

    /// Returns the number of write requests so far, not counting those for events and leases.
    pub fn writes(&self) -> usize {
        let counts =
            |it: &&RecordedRequest| it.request.verb.is_write() && !matches!(&*it.request.resource, "events" | "leases");
        self.0.lock().seen.values().filter(counts).count()
    }

    /// Clears the recorded requests.
    pub fn forget(&self) {
        self.0.lock().seen.clear();
    }

    /// Records a request under a number, and returns the fault to apply.
    fn admit(&self, request: &ApiRequest) -> (u64, Option<Action>) {
        let state = &mut *self.0.lock();
        let number = state.next;
        state.next += 1;
        state.seen.insert(number, RecordedRequest { request: request.clone(), code: None });
        (number, state.rules.iter_mut().find_map(|rule| rule.take(request)))
    }

    /// Records the response, unless the request was cleared.
    fn answered(&self, number: u64, code: u16) {
        if let Some(seen) = self.0.lock().seen.get_mut(&number) {
            seen.code = Some(code);
        }
    }
}

impl Rule {
    fn take(&mut self, request: &ApiRequest) -> Option<Action> {
        let Matcher { verbs, resource, name, skip, times } = &mut self.matcher;
        let named = name.as_ref().is_none_or(|name| request.name.as_ref() == Some(name));
        let matches = verbs.contains(&request.verb) && (*resource == request.resource || resource == "*") && named;
        if !matches || *times == Some(0) {
            return None;
        }
        if *skip > 0 {
            *skip -= 1;
            return None;
        }
        *times = times.map(|times| times - 1);
        *self.hits.lock() += 1;
        Some(self.action.clone())
    }
}

/// A rule that has no fault yet.
#[derive(Debug)]
pub struct RuleBuilder {
    faults: Faults,
    matcher: Matcher,
    retry_after: Option<u32>,
}

impl RuleBuilder {
    /// Restricts the rule to requests for the object with this name. For create requests, `generateName` counts as a
    /// name.
    pub fn named(mut self, name: &str) -> Self {
        self.matcher.name = Some(name.into());
        self
    }

    /// Lets the first `count` matching requests pass.
    pub fn skip(mut self, count: usize) -> Self {
        self.matcher.skip = count;
        self
    }

    /// Applies the rule to `count` requests.
    pub fn times(mut self, count: usize) -> Self {
        self.matcher.times = Some(count);
        self
    }

    /// Applies the rule until [`Faults::clear`].
    pub fn always(mut self) -> Self {
        self.matcher.times = None;
        self
    }

    /// Adds a `Retry-After` header to the refusal.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Responds with an error. The request doesn't reach the server.
    pub fn refuse(self, code: u16, reason: &str) -> Fault {
        self.refuse_with(code, reason, &format!("scripted fault: {reason}"))
    }

    /// Responds with an error and a message; see [`refuse`](Self::refuse).
    pub fn refuse_with(self, code: u16, reason: &str, message: &str) -> Fault {
        let (reason, message, retry_after) = (reason.into(), message.into(), self.retry_after);
        self.then(Action::Refuse { code, reason, message, retry_after })
    }

    /// Breaks the connection before the request reaches the server.
    pub fn lose_request(self) -> Fault {
        self.then(Action::LoseRequest)
    }

    /// Breaks the connection after the server has executed the request. Not for watches, since their responses don't
    /// end.
    pub fn lose_response(self) -> Fault {
        self.then(Action::LoseAnswer)
    }

    /// Delays the request. For a watch, delays each event.
    pub fn delay(self, by: Duration) -> Fault {
        self.then(Action::Delay(by))
    }

    /// Holds the request until the gate is dropped. For a watch, holds the events, including those of watches that have
    /// already started.
    #[must_use = "the gate opens when it is dropped"]
    pub fn hold(self) -> Gate {
        let (sender, receiver) = signal::channel(());
        self.then(Action::Hold(receiver));
        Gate { _closed: sender }
    }

    /// Ends a watch after this number of events, not counting bookmarks.
    pub fn cut_after(self, events: usize) -> Fault {
        self.then(Action::CutAfter(events))
    }

    /// Ends a watch with the error 410 `Expired`, as for a client that has fallen behind.
    pub fn expire(self) -> Fault {
        self.then(Action::Expire)
    }

    /// Sends every event of a watch twice.
    pub fn double(self) -> Fault {
        self.then(Action::Double)
    }

    fn then(self, action: Action) -> Fault {
        let hits = Arc::default();
        let rule = Rule { matcher: self.matcher, action, hits: Arc::clone(&hits) };
        self.faults.0.lock().rules.push(rule);
        Fault { hits }
    }
}

/// A rule with its fault.
#[derive(Clone, Debug)]
pub struct Fault {
    hits: Arc<Mutex<usize>>,
}

impl Fault {
    /// Returns the number of requests that the fault was applied to.
    pub fn hits(&self) -> usize {
        *self.hits.lock()
    }
}

/// Holds requests or events until it is dropped.
#[derive(Debug)]
pub struct Gate {
    _closed: signal::Sender<()>,
}

impl Gate {
    /// Releases all held requests and events.
    pub fn open(self) {}
}

/// Waits until the gate is dropped.
async fn opened(mut gate: signal::Receiver<()>) {
    while gate.changed().await.is_ok() {}
}
