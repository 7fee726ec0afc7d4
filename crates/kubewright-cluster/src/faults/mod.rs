//! Scripted faults between a client and an API server: refusals, lost answers, slow and broken watches.
//!
//! A test wraps the client that it gives to the operator, keeps the bare one for itself, and says which request meets
//! which fault:
//!
//! ```
//! # use kubewright_cluster::faults::{Faults, Verb};
//! # fn example(client: kube::Client) {
//! let faults = Faults::new();
//! let operators_client = faults.client(&client);
//! // The second pod is created, but the operator never hears of it.
//! faults.on(&[Verb::Create], "pods").skip(1).lose_answer();
//! // The next three status writes are refused.
//! faults.on(&[Verb::Patch], "podsets/status").times(3).refuse(409, "Conflict");
//! // Nothing that happens to pods is seen until the gate is dropped.
//! let stale = faults.on(&[Verb::Watch], "pods").always().hold();
//! # drop(stale);
//! # }
//! ```
//!
//! The faults are those a real API server and network can show. A watch never skips an event silently, since that
//! never happens; it ends, and is begun again.

mod request;
mod service;
#[cfg(test)]
mod tests;
mod watch;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch as signal;

pub use self::request::{ApiRequest, Verb};

/// The script. Clones share it; rules may be added and taken away at any time.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    next: u64,
    seen: BTreeMap<u64, Seen>,
}

/// A request that passed, and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The request.
    pub request: ApiRequest,
    /// The HTTP code that the client got; none while it waits, or if it got no answer.
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
    /// No faults yet: everything passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client like this one, whose requests meet the faults.
    pub fn client(&self, client: &Client) -> Client {
        Client::new(service::service(self.clone(), client.clone()), client.default_namespace())
    }

    /// Begins a rule for requests of these verbs to a resource (`pods`, `podsets/status`; `*` for any). It applies once, to
    /// the next of them, until told otherwise. Of several rules that match, the first applies.
    #[must_use = "a rule is complete with what shall happen"]
    pub fn on(&self, verbs: &'static [Verb], resource: &str) -> RuleBuilder {
        let matcher = Matcher { verbs, resource: resource.into(), name: None, skip: 0, times: Some(1) };
        RuleBuilder { faults: self.clone(), matcher, retry_after: None }
    }

    /// Takes all rules away. What is under way ends as it began.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// The requests for resources so far, in the order in which they were made.
    pub fn seen(&self) -> Vec<Seen> {
        self.0.lock().seen.values().cloned().collect()
    }

    /// How many requests so far would have changed something, leaving out events and leases.
    pub fn writes(&self) -> usize {
        let counts = |it: &&Seen| it.request.verb.is_write() && !matches!(&*it.request.resource, "events" | "leases");
        self.0.lock().seen.values().filter(counts).count()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.0.lock().seen.clear();
    }

    /// Notes a request under a number, and finds what happens to it.
    fn admit(&self, request: &ApiRequest) -> (u64, Option<Action>) {
        let state = &mut *self.0.lock();
        let number = state.next;
        state.next += 1;
        state.seen.insert(number, Seen { request: request.clone(), code: None });
        (number, state.rules.iter_mut().find_map(|rule| rule.take(request)))
    }

    /// Notes the answer, unless the request is forgotten.
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

/// A rule that lacks what shall happen.
#[derive(Debug)]
pub struct RuleBuilder {
    faults: Faults,
    matcher: Matcher,
    retry_after: Option<u32>,
}

impl RuleBuilder {
    /// Only requests about the object of this name; a create counts by `name` or `generateName`.
    pub fn named(mut self, name: &str) -> Self {
        self.matcher.name = Some(name.into());
        self
    }

    /// Lets the first `count` pass.
    pub fn skip(mut self, count: usize) -> Self {
        self.matcher.skip = count;
        self
    }

    /// Applies `count` times.
    pub fn times(mut self, count: usize) -> Self {
        self.matcher.times = Some(count);
        self
    }

    /// Applies until the rules are cleared.
    pub fn always(mut self) -> Self {
        self.matcher.times = None;
        self
    }

    /// Adds `Retry-After` to a refusal.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Answers with an error instead of the server, which doesn't see the request.
    pub fn refuse(self, code: u16, reason: &str) -> Fault {
        self.refuse_with(code, reason, &format!("scripted fault: {reason}"))
    }

    /// As [`refuse`](Self::refuse), with a message.
    pub fn refuse_with(self, code: u16, reason: &str, message: &str) -> Fault {
        let (reason, message, retry_after) = (reason.into(), message.into(), self.retry_after);
        self.then(Action::Refuse { code, reason, message, retry_after })
    }

    /// The connection breaks before the server sees the request.
    pub fn lose_request(self) -> Fault {
        self.then(Action::LoseRequest)
    }

    /// The server does what was asked, and then the connection breaks. Not for watches, which have no end.
    pub fn lose_answer(self) -> Fault {
        self.then(Action::LoseAnswer)
    }

    /// The request takes as long to arrive. Of a watch, every event arrives as much later.
    pub fn delay(self, by: Duration) -> Fault {
        self.then(Action::Delay(by))
    }

    /// The request waits while the gate lives. Of a watch, the events wait, also those of a watch that has begun.
    #[must_use = "the gate opens when it is dropped"]
    pub fn hold(self) -> Gate {
        let (sender, receiver) = signal::channel(());
        self.then(Action::Hold(receiver));
        Gate { _closed: sender }
    }

    /// A watch ends after as many events; bookmarks don't count.
    pub fn cut_after(self, events: usize) -> Fault {
        self.then(Action::CutAfter(events))
    }

    /// A watch is told that its version is gone (410), as one that fell behind.
    pub fn expire(self) -> Fault {
        self.then(Action::Expire)
    }

    /// A watch gets every event twice.
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

/// A rule in force.
#[derive(Clone, Debug)]
pub struct Fault {
    hits: Arc<Mutex<usize>>,
}

impl Fault {
    /// How many requests have met it.
    pub fn hits(&self) -> usize {
        *self.hits.lock()
    }
}

/// Holds requests or events back while it lives.
#[derive(Debug)]
pub struct Gate {
    _closed: signal::Sender<()>,
}

impl Gate {
    /// Lets everything through that was held back.
    pub fn open(self) {}
}

/// Completes when the gate is dropped.
async fn opened(mut gate: signal::Receiver<()>) {
    while gate.changed().await.is_ok() {}
}
