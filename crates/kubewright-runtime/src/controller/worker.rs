//! The task of one run: the live reads that the barrier requires, then the reconcile, with its panics and its time
//! limit.

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
    cache::{Cache, LiveView, ObjectSet},
    client::{Client, ClientError},
    context::{Expectation, LiveViews, Services, WriteTracker},
    object::ObjectKey,
    panic::message,
    trace::{self, Begun, RunNotes, RunRecorder},
};

/// The time that a run gets after its time limit, once its token is cancelled.
const CANCELLATION_GRACE: Duration = Duration::from_secs(1);

/// A key and everything that its run needs.
pub(super) struct Job {
    pub(super) services: Arc<Services>,
    pub(super) work: Arc<dyn Work>,
    pub(super) key: ObjectKey,
    pub(super) priority: i32,
    /// The objects to read live first.
    pub(super) stale: Stale,
    pub(super) timeout: Option<Duration>,
    pub(super) cancel: CancellationToken,
    pub(super) span: Span,
    pub(super) begun: Begun,
    pub(super) recorder: RunRecorder,
}

/// The end of a run.
pub(super) enum End {
    Done(Action),
    Failed(Failure),
    Panicked(String),
    TimedOut(Duration),
}

impl End {
    /// Returns the end as it appears in the trace.
    pub(super) fn traced(&self) -> trace::End {
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

/// The result of a job.
pub(super) struct Report {
    pub(super) key: ObjectKey,
    pub(super) priority: i32,
    pub(super) end: End,
    /// The states that the key's next run must see.
    pub(super) expectations: Vec<Expectation>,
    /// The scopes that were read live.
    pub(super) read_live: BTreeSet<Scope>,
    pub(super) span: Span,
    pub(super) begun: Begun,
    /// The record of its reads, writes and events.
    pub(super) notes: RunNotes,
}

impl Job {
    /// Runs the reconcile. It doesn't panic even if the reconciler does.
    pub(super) async fn run(self) -> Report {
        let Self { services, work, key, priority, stale, timeout, cancel, span, mut begun, recorder } = self;
        // Tasks that the run has spawned see the cancellation when it ends, in whatever way.
        let _over = cancel.clone().drop_guard();
        let late = cancel.clone();
        let tracker = WriteTracker::new(services.clone(), recorder.clone());
        let client = tracker.observing(services.api.clone());
        let mut expectations = Vec::new();
        let mut read_live = BTreeSet::new();
        let run = async {
            let views = if stale.is_empty() {
                LiveViews::new()
            } else {
                // Boxed, since the future is large and rarely needed, and tasks are moved as a whole.
                match Box::pin(read(&services.cache, &client, &stale, &mut expectations)).await {
                    Ok(views) => views,
                    Err(error) => return End::Failed(Failure::new(&error, Retry::Backoff)),
                }
            };
            read_live = stale.into_keys().collect();
            let (key, tracker) = (key.clone(), tracker.clone());
            let run = Run { services, key, views, tracker, cancel };
            work.run(run).await.map_or_else(End::Failed, End::Done)
        };
        let end = isolated(run, timeout, &late).await;
        expectations.extend(tracker.expectations());
        begun.triggers.settle();
        let notes = recorder.finish();
        Report { key, priority, end, expectations, read_live, span, begun, notes }
    }
}

/// Runs a reconcile with a time limit, after which `late` is cancelled. It doesn't panic even if the reconcile does.
pub(super) async fn isolated(run: impl Future<Output = End>, limit: Option<Duration>, late: &CancellationToken) -> End {
    let limited = async {
        let Some(limit) = limit else { return run.await };
        let mut run = pin!(run);
        if let Ok(end) = tokio::time::timeout(limit, &mut run).await {
            return end;
        }
        // The reconciler may want to clean up.
        late.cancel();
        let _ = tokio::time::timeout(CANCELLATION_GRACE, run).await;
        End::TimedOut(limit)
    };
    let end = AssertUnwindSafe(limited).catch_unwind().await;
    end.unwrap_or_else(|panic| End::Panicked(message(panic.as_ref()).into()))
}

/// Reads the stale objects live, kind by kind.
async fn read(
    cache: &Cache,
    client: &Client,
    stale: &Stale,
    expectations: &mut Vec<Expectation>,
) -> Result<LiveViews, ClientError> {
    let mut views = LiveViews::new();
    for id in stale.keys().map(|(id, _)| id).collect::<BTreeSet<_>>() {
        let Some(kind) = cache.find(id) else { continue };
        let of_kind = stale.iter().filter(|((kind, _), _)| kind == id);
        let scopes = of_kind.map(|((_, namespace), objects)| (namespace.clone(), objects.clone())).collect();
        let LiveView { overlay, expected } = kind.live_view(client, scopes).await?;
        expectations.extend(expected.into_iter().map(|(namespace, state)| {
            let objects = stale.get(&(id.clone(), namespace.clone())).cloned().unwrap_or(ObjectSet::All);
            Expectation { kind: id.clone(), namespace, state: Some(state), objects }
        }));
        views.insert(id.clone(), overlay);
    }
    Ok(views)
}
