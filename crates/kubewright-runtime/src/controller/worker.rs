//! One worker's task: the live reads that the barrier asks for, then the reconcile, with its panics and its time limit.

use std::{collections::BTreeSet, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::{
    barrier::{Scope, Stale},
    run::{Failure, Run, Work},
};
use crate::{
    action::{Action, Retry},
    cache::{Cache, LiveView, Objects},
    client::{Client, ClientError},
    context::{Journal, Services, Views, Write},
    object::ObjectKey,
    panic::message,
    trace::{self, Begun, RunNotes, RunRecorder},
};

/// How long a run may go on that has used up its time, and is told so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A key and all that working on it takes.
pub(super) struct Job {
    pub(super) services: Arc<Services>,
    pub(super) work: Arc<dyn Work>,
    pub(super) key: ObjectKey,
    pub(super) priority: i32,
    /// What the cache must not be asked for.
    pub(super) stale: Stale,
    pub(super) timeout: Option<Duration>,
    pub(super) cancel: CancellationToken,
    pub(super) span: Span,
    pub(super) begun: Begun,
    pub(super) recorder: RunRecorder,
}

/// How it ended.
pub(super) enum End {
    Done(Action),
    Failed(Failure),
    Panicked(String),
    TimedOut(Duration),
}

impl End {
    /// As its trace tells it.
    pub(super) fn told(&self) -> trace::End {
        match self {
            Self::Done(_) => trace::End::Done,
            Self::Failed(Failure { message, retry, .. }) => {
                trace::End::Failed { error: message.clone(), terminal: *retry == Retry::Terminal }
            }
            Self::Panicked(message) => trace::End::Panicked { error: message.clone() },
            Self::TimedOut(limit) => trace::End::TimedOut { limit: *limit },
        }
    }
}

/// A job that has ended.
pub(super) struct Report {
    pub(super) key: ObjectKey,
    pub(super) priority: i32,
    pub(super) end: End,
    /// What the key's next run must see: what was written, and what was read live.
    pub(super) writes: Vec<Write>,
    /// What was read live.
    pub(super) read_live: BTreeSet<Scope>,
    pub(super) span: Span,
    pub(super) begun: Begun,
    /// What it read, wrote and told.
    pub(super) notes: RunNotes,
}

impl Job {
    /// Works on the key. It doesn't panic, whatever the reconciler does.
    pub(super) async fn run(self) -> Report {
        let Self { services, work, key, priority, stale, timeout, cancel, span, mut begun, recorder } = self;
        // Whatever the run has started and left behind hears that it is over, however it ends.
        let _over = cancel.clone().drop_guard();
        let late = cancel.clone();
        let journal = Journal::new(services.clone(), recorder.clone());
        let client = journal.observing(services.api.clone());
        let mut writes = Vec::new();
        let mut read_live = BTreeSet::new();
        let run = async {
            let views = if stale.is_empty() {
                Views::new()
            } else {
                // In a box, since it is large and mostly not wanted, and a task is moved to its place as a whole.
                match Box::pin(read(&services.cache, &client, &stale, &mut writes)).await {
                    Ok(views) => views,
                    Err(error) => return End::Failed(Failure::new(&error, Retry::Backoff)),
                }
            };
            read_live = stale.into_keys().collect();
            let (key, journal) = (key.clone(), journal.clone());
            let run = Run { services, key, views, journal, cancel };
            work.run(run).await.map_or_else(End::Failed, End::Done)
        };
        let limited = async {
            let Some(limit) = timeout else { return run.await };
            let mut run = pin!(run);
            if let Ok(end) = tokio::time::timeout(limit, &mut run).await {
                return end;
            }
            // It may have something to put in order.
            late.cancel();
            let _ = tokio::time::timeout(LAST_WORDS, run).await;
            End::TimedOut(limit)
        };
        let end = AssertUnwindSafe(limited).catch_unwind().await;
        let end = end.unwrap_or_else(|panic| End::Panicked(message(panic.as_ref()).into()));
        writes.extend(journal.writes());
        begun.triggers.settle();
        let notes = recorder.finish();
        Report { key, priority, end, writes, read_live, span, begun, notes }
    }
}

/// Reads the stale scopes live, kind by kind.
async fn read(cache: &Cache, client: &Client, stale: &Stale, writes: &mut Vec<Write>) -> Result<Views, ClientError> {
    let mut views = Views::new();
    for id in stale.keys().map(|(id, _)| id).collect::<BTreeSet<_>>() {
        let Some(kind) = cache.find(id) else { continue };
        let of_kind = stale.iter().filter(|((kind, _), _)| kind == id);
        let scopes = of_kind.map(|((_, namespace), objects)| (namespace.clone(), objects.clone())).collect();
        let LiveView { overlay, arrivals } = kind.live_view(client, scopes).await?;
        writes.extend(arrivals.into_iter().map(|(namespace, arrival)| {
            let objects = stale.get(&(id.clone(), namespace.clone())).cloned().unwrap_or(Objects::Any);
            Write { kind: id.clone(), namespace, arrival: Some(arrival), objects }
        }));
        views.insert(id.clone(), overlay);
    }
    Ok(views)
}
