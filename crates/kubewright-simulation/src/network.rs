//! The client of an operator: it records requests and events, and applies the faults of the schedule.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use kubewright_cluster::faults::{ApiRequest, Verb};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tower::{BoxError, service_fn};

use crate::{
    control::{Behind, Control},
    fault::{
        DELAY, EventFault, Fault, LAG, OVERLAP, OVERTAKING, PAUSE, ProcessFault, Refusal, TERMINATING,
        WEBHOOK_UNAVAILABLE, WriteFault,
    },
    history::Entry,
    oracle::Own,
    outside::Outside,
    state::State,
    world::NAMESPACE,
};

/// How long a request takes, so that other things can happen meanwhile.
pub(crate) const LATENCY: Duration = Duration::from_millis(2);

/// How long a watch lasts, within the half to whole hour after which API servers end watches without `timeoutSeconds`.
const LASTING: &str = "timeoutSeconds=2400";

type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The connection of one process.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) state: Arc<State>,
    /// The client of the user, with all permissions.
    pub(crate) server: Client,
    pub(crate) process: u64,
    /// Set when the process has died: none of its requests reaches the server, and it receives nothing.
    pub(crate) is_dead: Arc<AtomicBool>,
    /// Until when the process is paused, as virtual time since the start.
    pub(crate) pause: Arc<Mutex<Option<Duration>>>,
    /// What surrounds the operator.
    pub(crate) outside: Arc<Outside>,
    pub(crate) behind: Option<Arc<Behind>>,
    /// The groups and plurals of the kinds that the operator declares.
    pub(crate) own: Arc<Own>,
    /// Whether the API server calls webhooks of the operator.
    pub(crate) has_webhooks: bool,
    /// The addresses of the resources that were listed.
    pub(crate) listed: Arc<Mutex<BTreeSet<String>>>,
}

impl Connection {
    /// Returns the client for the process.
    pub(crate) fn client(self) -> Client {
        let namespace = self.server.default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let connection = self.clone();
            async move { connection.send(request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let about = ApiRequest::parse(&head.method, &head.uri, &body);
        let mut request = Request::from_parts(head, Body::from(body.to_vec()));
        sleep(LATENCY).await;
        self.alive().await;
        let Some(about) = about else {
            let response = self.server.send(request).await?;
            return Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()));
        };
        let (number, fault) = self.state.admit(self.process, &about, &body);
        self.disturb(self.state.process_fault(number)).await;
        let fault = match fault {
            Some(Fault::Write(fault)) => Some(fault),
            Some(fault) => {
                self.outside.happens(fault, self.state.version()).await;
                None
            }
            None => None,
        };
        if about.verb == Verb::Watch
            && let Some(lasting) = lasting(request.uri())
        {
            *request.uri_mut() = lasting;
        }
        self.lag(&about, &mut request).await;
        self.alive().await;
        let response = self.execute(&about, request, fault, number).await;
        self.alive().await;
        self.state.answered(number, response.as_ref().ok().map(|response| response.status().as_u16()));
        response
    }

    /// Lets a fault of the process happen.
    async fn disturb(&self, fault: Option<ProcessFault>) {
        match fault {
            Some(ProcessFault::Killed) => self.die().await,
            Some(ProcessFault::Paused) => *self.pause.lock() = Some(self.state.elapsed() + PAUSE),
            Some(ProcessFault::Overlapped) => self.outside.control(Control::Overlap(self.process, OVERLAP)),
            Some(ProcessFault::Displaced) => {
                *self.pause.lock() = Some(self.state.elapsed() + PAUSE);
                self.outside.control(Control::Overlap(self.process, PAUSE + OVERLAP));
            }
            Some(ProcessFault::MemberLeft) => self.end(Control::Left(self.process)).await,
            Some(ProcessFault::MemberJoined) => self.outside.control(Control::Join),
            Some(ProcessFault::ServerUnavailable) => self.state.begin_outage(),
            Some(ProcessFault::TakenOver) => {
                self.state.delay_takeover();
                self.die().await;
            }
            Some(ProcessFault::Upgraded) => {
                self.state.upgrade();
                self.die().await;
            }
            None => {}
        }
    }

    /// Makes the first list of a resource one of an older state, and lets watches begin late, if the API server is
    /// behind.
    async fn lag(&self, about: &ApiRequest, request: &mut Request<Body>) {
        let Some(behind) = &self.behind else { return };
        if self.own.contains(&(about.group.clone(), about.resource.clone())) != behind.of_own {
            return;
        }
        if about.verb == Verb::Watch {
            sleep(LAG).await;
        } else if about.verb == Verb::List
            // A list of one object by its name is a read that asks for the newest state.
            && about.name.is_none()
            && let Some(older) = older(request.uri(), behind.version)
            && self.listed.lock().insert(request.uri().path().to_owned())
        {
            *request.uri_mut() = older;
        }
    }

    async fn execute(
        &self,
        about: &ApiRequest,
        request: Request<Body>,
        fault: Option<WriteFault>,
        number: u64,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let outage = if self.state.is_in_outage() { Some(WriteFault::Unavailable) } else { fault };
        let refusal = outage.and_then(WriteFault::refusal);
        if let Some(refusal) = if refusal.is_none() { self.of_the_world(about, request.uri()).await } else { refusal } {
            return refuse(refusal).await;
        }
        match fault {
            Some(WriteFault::Lost) => return Err(lost()),
            Some(WriteFault::DiedBefore) => self.die().await,
            Some(WriteFault::ConflictByAnother) => self.touch(about, request.uri()).await,
            _ => {}
        }
        let before = if about.verb.is_write() { self.state.latest_version() } else { 0 };
        let response = self.server.send(request).await?;
        if about.verb == Verb::Watch {
            return Ok(response.map(|body| self.clone().watch(number, body)));
        }
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.state.executed(about, head.status.as_u16(), &body, before);
        match fault {
            Some(WriteFault::AnswerLost) => return Err(lost()),
            Some(WriteFault::DiedAfter) => self.die().await,
            _ => {}
        }
        Ok(Response::from_parts(head, whole(body)))
    }

    /// Returns what the API server answers if it can't accept the request as the world is.
    async fn of_the_world(&self, about: &ApiRequest, uri: &Uri) -> Option<Refusal> {
        let is_change = matches!(about.verb, Verb::Create | Verb::Update | Verb::Patch);
        if !is_change || about.resource.contains('/') || about.resource == "leases" {
            return None;
        }
        if self.state.has_no_namespace() && about.namespace.as_deref() == Some(NAMESPACE) {
            // An apply creates what isn't there.
            let is_creation = about.verb == Verb::Create || about.verb == Verb::Patch && !self.is_there(uri).await;
            return is_creation.then_some(TERMINATING);
        }
        // The API server itself calls those of the operator, and can't reach them.
        (self.state.is_webhook_unavailable() && !self.has_webhooks).then_some(WEBHOOK_UNAVAILABLE)
    }

    /// Returns whether the object at an address exists.
    async fn is_there(&self, uri: &Uri) -> bool {
        let Ok(request) = Request::get(uri.path()).body(Body::empty()) else { return true };
        self.server.send(request).await.is_ok_and(|response| response.status() != http::StatusCode::NOT_FOUND)
    }

    /// Waits while the process is paused, and for ever if it is dead or the run has ended.
    async fn alive(&self) {
        let pause = *self.pause.lock();
        if let Some(left) = pause.and_then(|end| end.checked_sub(self.state.elapsed())) {
            sleep(left).await;
        }
        if self.is_dead.load(Ordering::Relaxed) || self.state.is_stopped() {
            std::future::pending::<()>().await;
        }
    }

    async fn die(&self) {
        self.end(Control::Died(self.process)).await;
    }

    async fn end(&self, control: Control) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.outside.control(control);
        std::future::pending::<()>().await;
    }

    /// Changes an annotation of the object that a request writes.
    async fn touch(&self, about: &ApiRequest, uri: &http::Uri) {
        if matches!(about.verb, Verb::Create | Verb::DeleteCollection) {
            return;
        }
        let path = uri.path();
        let path = match about.resource.split_once('/') {
            Some((_, subresource)) => path.strip_suffix(&format!("/{subresource}")).unwrap_or(path),
            None => path,
        };
        let patch = json!({"metadata": {"annotations": {"simulation.kubewright.dev/changed-by": "another client"}}});
        let request = Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()));
        if let Ok(request) = request {
            // An object that doesn't exist has no conflict.
            let _ = self.server.send(request).await;
        }
    }

    /// Records the events of a watch.
    fn watch(self, number: u64, body: Body) -> ResponseBody {
        let start = (body.into_data_stream(), BytesMut::new(), false);
        let lines = stream::unfold(start, move |(mut body, mut buffer, has_ended)| {
            let connection = self.clone();
            async move {
                if has_ended {
                    return None;
                }
                loop {
                    if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                        let line = buffer.split_to(end + 1).freeze();
                        connection.alive().await;
                        let (line, ends) = connection.receive(number, line).await?;
                        return Some((Ok(line), (body, buffer, ends)));
                    }
                    match body.next().await? {
                        Ok(bytes) => buffer.extend_from_slice(&bytes),
                        Err(error) => return Some((Err(BoxError::from(error)), (body, buffer, true))),
                    }
                }
            }
        });
        StreamBody::new(lines.map(|line| line.map(http_body::Frame::data))).boxed_unsync()
    }

    /// Records an event, and returns what the operator receives and whether the watch ends with it; nothing if it ends
    /// before.
    async fn receive(&self, request: u64, line: Bytes) -> Option<(Bytes, bool)> {
        let Ok(event) = serde_json::from_slice::<WatchEvent>(&line) else { return Some((line, false)) };
        // Bookmarks, of which an idle operator receives most, tell it nothing, and aren't recorded.
        let is_bookmark = event.event == "BOOKMARK";
        if self.state.is_in_outage() {
            return None;
        }
        let fault = if is_bookmark { None } else { self.state.arrives() };
        match fault {
            Some(EventFault::Delayed) => {
                sleep(DELAY).await;
                self.alive().await;
            }
            Some(EventFault::Cut) => return None,
            Some(EventFault::Expired) => return Some((expired(), true)),
            Some(EventFault::Died) => self.die().await,
            Some(EventFault::Overtaken) => {
                // If nothing else arrives, there is nothing to be overtaken by.
                let _ = timeout(OVERTAKING, self.state.overtaken(request)).await;
                self.alive().await;
            }
            Some(EventFault::Doubled) | None => {}
        }
        if let Some(late) = self.state.late() {
            sleep(late).await;
            self.alive().await;
        }
        if is_bookmark {
            return Some((line, false));
        }
        self.state.has_arrived(request);
        let Metadata { namespace, name, version } = event.object.metadata;
        let object = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        let entry = Entry::Event { request, event: event.event, kind: event.object.kind, object, version };
        if fault == Some(EventFault::Doubled) {
            self.state.record(entry.clone());
            self.state.record(entry);
            return Some(([&*line, &*line].concat().into(), false));
        }
        self.state.record(entry);
        Some((line, false))
    }
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(rename = "type")]
    event: String,
    object: EventObject,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventObject {
    kind: String,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
}

fn whole(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the address of the same list at a version, if it is one of a first page.
fn older(uri: &Uri, version: u64) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    if query.contains("continue=") {
        return None;
    }
    format!("{}?{query}&resourceVersion={version}&resourceVersionMatch=Exact", uri.path()).parse().ok()
}

/// Returns the address of the same watch with a later end, if it gets bookmarks. Clients ask for less than five
/// minutes, and begin a watch again that has ended, which would be most of what happens in a run.
fn lasting(uri: &Uri) -> Option<Uri> {
    let query = uri.query().filter(|query| query.contains("allowWatchBookmarks=true"))?;
    let parts = query.split('&').map(|part| if part.starts_with("timeoutSeconds=") { LASTING } else { part });
    format!("{}?{}", uri.path(), parts.collect::<Vec<_>>().join("&")).parse().ok()
}

/// Returns the event that ends the watch of a client that has fallen behind.
fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

fn lost() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection is lost").into()
}

async fn refuse(refusal: Refusal) -> Result<Response<ResponseBody>, BoxError> {
    let Refusal { code, reason, message, cause, retry_after, delay } = refusal;
    sleep(delay).await;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
        "details": {"causes": cause.as_slice(), "retryAfterSeconds": retry_after.unwrap_or_default()},
    });
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    Ok(response.body(whole(status.to_string().into()))?)
}
