//! The replication of the book between pods, so that a takeover loses no entry.
//!
//! The active pod is the one that the Guestbook's Service selects. Every pod polls it for the entries that it lacks,
//! and sends the entries that the active pod lacks. The active pod polls itself, and thereby detects that it is active.
//! A request waits until there is something to answer (long polling), and also acknowledges what its sender has
//! received. The active pod therefore knows when an entry has reached all other pods. It waits for that before it
//! confirms the entry to the guest, but for a second at most, and only for pods that have polled recently. A pod that
//! has just become active doesn't know these pods yet, so its first guests wait until the others have had time to poll.
//! So do the guests of a pod that hasn't found out yet that it is active.
//!
//! Data loss is possible in two cases: if all pods end at once, every entry is lost; and an entry that was confirmed
//! after that second, or without standby pods, is lost if the active pod ends before another pod has polled it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{Request, header},
};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubewright::clock::SharedClock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};

use super::book::{Book, Entry};

/// The maximum time for which a request waits for something to answer.
const POLL: Duration = Duration::from_secs(1);
/// The maximum time for which a guest waits until the other pods have the entry.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time after its last request from which a pod is no longer waited for.
const LATELY: Duration = Duration::from_secs(3);
/// The delay before a failed request is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// The time that the other pods need to find a new active pod: they poll again after [`AGAIN`].
const SETTLING: Duration = Duration::from_millis(600);
/// The number of failed requests after which a pod assumes that there is no active pod.
const ALONE: u32 = 5;
/// The maximum number of remembered pods. A Guestbook has up to ten, and one more while a single one is replaced.
const MAX_FOLLOWERS: usize = 16;
/// The maximum size of a message in bytes: a full book of long entries.
pub(super) const MAX_MESSAGE: usize = 2 << 20;

/// A request from one replica to another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SyncRequest {
    /// The sender.
    from: u64,
    /// The replica that answered the sender's previous request.
    to: Option<u64>,
    /// The number of entries that the sender has received from that replica.
    after: usize,
    /// Entries that the sender has not sent to that replica yet.
    entries: Vec<Entry>,
}

/// The answer to a [`SyncRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SyncResponse {
    /// The answering replica.
    of: u64,
    /// The entries that it received after those that the sender has.
    entries: Vec<Entry>,
    /// The number of entries that the sender has after this answer.
    next: usize,
}

/// The book of one pod.
pub(super) struct Replica {
    /// A random number that identifies the replica, generated at start.
    id: u64,
    clock: SharedClock,
    pub(super) book: Mutex<Book>,
    /// For each other replica: the number of entries that it has received from this one, and the time of its last
    /// request.
    followers: Mutex<BTreeMap<u64, (usize, Duration)>>,
    role: Mutex<ReplicaRole>,
    /// Notifies of changes of the book, the followers and the role.
    changes: watch::Sender<()>,
    /// Whether the book is up to date: it has all entries of the active pod, or there is no active pod.
    ready: watch::Sender<bool>,
}

/// The role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaRole {
    /// There are no other pods.
    Sole,
    /// No pod has answered yet.
    Unknown,
    /// Another pod is active.
    Following,
    /// This replica is active, and has known that since this time.
    Active(Duration),
}

impl Replica {
    pub(super) fn new(id: u64, clock: SharedClock, has_others: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            clock,
            book: Mutex::default(),
            followers: Mutex::default(),
            role: Mutex::new(if has_others { ReplicaRole::Unknown } else { ReplicaRole::Sole }),
            changes: watch::Sender::default(),
            ready: watch::Sender::default(),
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Changes the book, and notifies waiting requests.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let result = change(&mut self.book.lock());
        self.changes.send_replace(());
        result
    }

    /// Waits until the other pods have the first `count` entries.
    pub(super) async fn spread(&self, count: usize) {
        let mut changes = self.changes.subscribe();
        let spread = async {
            while let Some(longest) = self.awaits(count) {
                let _ = timeout(longest, changes.changed()).await;
            }
        };
        if timeout(PATIENCE, spread).await.is_err() {
            tracing::warn!(entries = count, "another pod does not have the latest entries yet");
        }
    }

    /// Returns how long to wait until the others have the first `count` entries; `None` if no wait is needed.
    fn awaits(&self, count: usize) -> Option<Duration> {
        let now = self.clock.monotonic();
        let settling = match *self.role.lock() {
            ReplicaRole::Sole => None,
            // A guest has reached this pod, so it is probably active by now, and learns that with its next request.
            ReplicaRole::Unknown | ReplicaRole::Following => Some(PATIENCE),
            ReplicaRole::Active(since) => (since + SETTLING).checked_sub(now).filter(|left| !left.is_zero()),
        };
        let lately = now.saturating_sub(LATELY);
        let lacks = |(got, asked): &(usize, Duration)| *asked >= lately && *got < count;
        settling.or_else(|| self.followers.lock().values().any(lacks).then_some(PATIENCE))
    }

    /// Records which replica is active.
    fn stand(&self, active: u64) {
        let mut role = self.role.lock();
        *role = match *role {
            ReplicaRole::Active(since) if active == self.id => ReplicaRole::Active(since),
            _ if active == self.id => ReplicaRole::Active(self.clock.monotonic()),
            _ => ReplicaRole::Following,
        };
        drop(role);
        self.changes.send_replace(());
    }

    /// Answers a request once there is something to answer.
    async fn answer(&self, request: SyncRequest) -> SyncResponse {
        let mut changes = self.changes.subscribe();
        let after = if request.to == Some(self.id) { request.after } else { 0 };
        if request.from != self.id {
            self.note(request.from, after);
            if !request.entries.is_empty() {
                self.write(|book| book.merge(request.entries));
            }
        }
        if request.to == Some(self.id) {
            let news = async { while self.book.lock().len() <= after && changes.changed().await.is_ok() {} };
            let _ = timeout(POLL, news).await;
        }
        let book = self.book.lock();
        SyncResponse { of: self.id, entries: book.after(after).to_vec(), next: book.len() }
    }

    fn note(&self, follower: u64, got: usize) {
        let now = self.clock.monotonic();
        let mut followers = self.followers.lock();
        followers.insert(follower, (got, now));
        if followers.len() > MAX_FOLLOWERS {
            let oldest = followers.iter().min_by_key(|(_, (_, asked))| *asked).map(|(id, _)| *id);
            oldest.map(|id| followers.remove(&id));
        }
        drop(followers);
        self.changes.send_replace(());
    }

    /// Replicates the active pod's book forever. Without a Service there are no other pods.
    pub(super) async fn follow(&self, service: Option<&str>) {
        let Some(service) = service else {
            self.ready.send_replace(true);
            return std::future::pending().await;
        };
        let (mut active, mut after, mut given, mut failures) = (None, 0, 0, 0);
        loop {
            let entries = self.book.lock().after(given).to_vec();
            let next = given + entries.len();
            let request = SyncRequest { from: self.id, to: active, after, entries };
            match ask(service, &request).await {
                Ok(answer) => {
                    self.stand(answer.of);
                    // A new active pod has no entries of this book yet.
                    let is_known = active == Some(answer.of);
                    (active, after, given, failures) =
                        (Some(answer.of), answer.next, if is_known { next } else { 0 }, 0);
                    if answer.of == self.id {
                        given = self.book.lock().len();
                        if is_known {
                            sleep(AGAIN).await;
                        }
                    } else {
                        self.write(|book| book.merge(answer.entries));
                    }
                    self.ready.send_replace(true);
                }
                Err(error) => {
                    tracing::debug!(%service, %error, "no active pod answers");
                    failures += 1;
                    if failures >= ALONE {
                        self.ready.send_replace(true);
                    }
                    sleep(AGAIN).await;
                }
            }
        }
    }
}

/// Handles a request of another pod.
pub(super) async fn serve(State(page): State<super::Page>, Json(request): Json<SyncRequest>) -> Json<SyncResponse> {
    Json(page.replica.answer(request).await)
}

/// Sends a request to the active pod. Each request uses a new connection, since an existing one would reach the pod
/// that the Service selected before.
async fn ask(service: &str, request: &SyncRequest) -> Result<SyncResponse> {
    let exchange = async {
        let stream = TcpStream::connect(service).await.context("connect")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("shake hands")?;
        let request = Request::post("/replica")
            .header(header::HOST, service)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Body::from(serde_json::to_vec(request)?))?;
        let exchange = async {
            let response = sender.send_request(request).await.context("ask")?;
            ensure!(response.status().is_success(), "the answer is {}", response.status());
            let body = Limited::new(response.into_body(), MAX_MESSAGE).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error)).context("read the answer")?;
            Ok(serde_json::from_slice(&body.to_bytes())?)
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => {
                ended.context("talk")?;
                exchange.await
            }
        }
    };
    timeout(2 * POLL, exchange).await.context("no answer in time")?
}
