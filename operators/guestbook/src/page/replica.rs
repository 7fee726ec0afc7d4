//! One book in all pods: how a takeover loses no entry.
//!
//! The active pod is where the Guestbook's Service leads. So every pod asks there, again and again, for what it doesn't have
//! yet, and gives what the other lacks; the active one, asking itself, learns that it is. A request waits there until
//! there is something to answer, and so tells what its sender has got. By that the active pod knows when an entry is in all
//! the books, which it waits for before it thanks the guest: for a second at most, and only for pods that asked lately. One
//! that has just become active doesn't know yet who that is, so its first guests wait until the others have had time to ask.
//!
//! What can be lost: everything, when all pods end at once; and an entry whose guest was thanked after that second, or
//! while no pod stood by, when the active one ends before another has asked.

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

/// How long a request waits for something to answer.
const POLL: Duration = Duration::from_secs(1);
/// How long a guest waits for the other pods to get the entry.
const PATIENCE: Duration = Duration::from_secs(1);
/// A pod that hasn't asked for so long is not waited for.
const LATELY: Duration = Duration::from_secs(3);
/// How long until a request that failed is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// How long the others may take to find a pod that has just become active: they ask again after [`AGAIN`].
const SETTLING: Duration = Duration::from_millis(600);
/// How often a request must fail before there is no active pod to learn from.
const ALONE: u32 = 5;
/// How many pods are remembered. A Guestbook has ten, and one more while a single one is replaced.
const MAX_FOLLOWERS: usize = 16;
/// The largest message, in bytes: a full book of long entries.
pub(super) const MAX_MESSAGE: usize = 2 << 20;

/// What one copy of the book asks another.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// Who asks.
    from: u64,
    /// Whom it last talked to, if it did.
    to: Option<u64>,
    /// How many entries it has got from there.
    after: usize,
    /// What it has that it hasn't given there yet.
    entries: Vec<Entry>,
}

/// What the other copy answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Who answers.
    of: u64,
    /// What it got after what the other has got from it.
    entries: Vec<Entry>,
    /// How many that makes.
    next: usize,
}

/// One pod's copy of the book.
pub(super) struct Replica {
    /// Tells copies apart: drawn when the process starts.
    id: u64,
    clock: SharedClock,
    pub(super) book: Mutex<Book>,
    /// How many entries each other copy has got from this one, and when it last asked.
    followers: Mutex<BTreeMap<u64, (usize, Duration)>>,
    standing: Mutex<Standing>,
    /// Told when the book, what followers have got, or the standing changes.
    changes: watch::Sender<()>,
    /// Whether the book is what it should be: all that the active pod has, or nothing while there is none.
    ready: watch::Sender<bool>,
}

/// What a copy knows of its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There are no others.
    Sole,
    /// Nobody has answered yet.
    Unknown,
    /// Another one is active.
    Following,
    /// It is the active one, and knows it since then.
    Active(Duration),
}

impl Replica {
    pub(super) fn new(id: u64, clock: SharedClock, has_others: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            clock,
            book: Mutex::default(),
            followers: Mutex::default(),
            standing: Mutex::new(if has_others { Standing::Unknown } else { Standing::Sole }),
            changes: watch::Sender::default(),
            ready: watch::Sender::default(),
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Changes the book, and tells those who wait.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let result = change(&mut self.book.lock());
        self.changes.send_replace(());
        result
    }

    /// Waits until the other pods have got the first `count` entries.
    pub(super) async fn spread(&self, count: usize) {
        let mut changes = self.changes.subscribe();
        let spread = async {
            while let Some(longest) = self.awaits(count) {
                let _ = timeout(longest, changes.changed()).await;
            }
        };
        if timeout(PATIENCE, spread).await.is_err() {
            tracing::warn!(entries = count, "another pod hasn't got the latest entries yet");
        }
    }

    /// How long it makes sense to wait until the others have got the first `count` entries, if it does.
    fn awaits(&self, count: usize) -> Option<Duration> {
        let now = self.clock.monotonic();
        let settling = match *self.standing.lock() {
            Standing::Sole | Standing::Following => None,
            Standing::Unknown => Some(PATIENCE),
            Standing::Active(since) => (since + SETTLING).checked_sub(now).filter(|left| !left.is_zero()),
        };
        let lately = now.saturating_sub(LATELY);
        let lacks = |(got, asked): &(usize, Duration)| *asked >= lately && *got < count;
        settling.or_else(|| self.followers.lock().values().any(lacks).then_some(PATIENCE))
    }

    /// Notes which copy is the active one.
    fn stand(&self, active: u64) {
        let mut standing = self.standing.lock();
        *standing = match *standing {
            Standing::Active(since) if active == self.id => Standing::Active(since),
            _ if active == self.id => Standing::Active(self.clock.monotonic()),
            _ => Standing::Following,
        };
        drop(standing);
        self.changes.send_replace(());
    }

    /// Answers a question, when there is something to answer.
    async fn answer(&self, question: Question) -> Answer {
        let mut changes = self.changes.subscribe();
        let after = if question.to == Some(self.id) { question.after } else { 0 };
        if question.from != self.id {
            self.note(question.from, after);
            if !question.entries.is_empty() {
                self.write(|book| book.merge(question.entries));
            }
        }
        if question.to == Some(self.id) {
            let news = async { while self.book.lock().len() <= after && changes.changed().await.is_ok() {} };
            let _ = timeout(POLL, news).await;
        }
        let book = self.book.lock();
        Answer { of: self.id, entries: book.after(after).to_vec(), next: book.len() }
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

    /// Keeps the book the same as the active pod's, for ever. Without a Service there is no other pod.
    pub(super) async fn follow(&self, service: Option<&str>) {
        let Some(service) = service else {
            self.ready.send_replace(true);
            return std::future::pending().await;
        };
        let (mut active, mut after, mut given, mut failures) = (None, 0, 0, 0);
        loop {
            let entries = self.book.lock().after(given).to_vec();
            let next = given + entries.len();
            let question = Question { from: self.id, to: active, after, entries };
            match ask(service, &question).await {
                Ok(answer) => {
                    self.stand(answer.of);
                    // Another one than before has nothing of this book yet.
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

/// Answers another pod.
pub(super) async fn serve(State(page): State<super::Page>, Json(question): Json<Question>) -> Json<Answer> {
    Json(page.replica.answer(question).await)
}

/// Asks the active pod. Each question has a connection of its own: an old one would lead where the Service once led.
async fn ask(service: &str, question: &Question) -> Result<Answer> {
    let exchange = async {
        let stream = TcpStream::connect(service).await.context("connect")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("shake hands")?;
        let request = Request::post("/replica")
            .header(header::HOST, service)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Body::from(serde_json::to_vec(question)?))?;
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
