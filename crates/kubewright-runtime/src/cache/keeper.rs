//! Starts and ends the watches: of what controllers declared, with the manager; of what reconciles watch, when they ask.

use std::sync::Arc;

use kube::Client;
use kubewright_apimachinery::random::Random;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{CacheFamilies, kind::Kind, watch::watch};

/// A kind that is to be watched.
pub(super) struct Start {
    pub(super) kind: Arc<Kind>,
    /// Until then.
    pub(super) until: CancellationToken,
}

/// The watches of a cache. They end, at the latest, when this is dropped.
#[derive(Debug)]
pub(crate) struct Watches {
    keeper: JoinSet<()>,
    stop: CancellationToken,
}

impl Watches {
    /// Starts what comes through the channel: as many as there are kinds.
    pub(super) fn start(
        starts: mpsc::UnboundedReceiver<Start>,
        client: Client,
        random: Random,
        metrics: CacheFamilies,
    ) -> Self {
        let (mut keeper, stop) = (JoinSet::new(), CancellationToken::new());
        let stopped = stop.clone();
        keeper.spawn(async move {
            let mut watches = JoinSet::new();
            let start = |watches: &mut JoinSet<_>, Start { kind, until }| {
                let metrics = metrics.kind(&kind.name().to_string());
                for feed in 0..kind.scopes().len() {
                    let watch = watch(kind.clone(), feed, client.clone(), random.clone(), metrics.clone());
                    let until = until.clone();
                    watches.spawn(async move {
                        until.run_until_cancelled(watch).await;
                    });
                }
            };
            let mut starts = starts;
            loop {
                tokio::select! {
                    () = stopped.cancelled() => break,
                    Some(kind) = starts.recv() => start(&mut watches, kind),
                    Some(_) = watches.join_next() => {}
                }
            }
            watches.shutdown().await;
        });
        Self { keeper, stop }
    }

    /// Ends the watches, and waits.
    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.keeper.join_next().await.is_some() {}
    }
}
