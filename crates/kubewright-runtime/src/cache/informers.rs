//! The set of running informers: those of declared kinds run with the manager, those of kinds that reconcilers watch while
//! they are requested.

use std::sync::Arc;

use kube::Client;
use kubewright_apimachinery::random::Random;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{kind::Kind, metrics::CacheFamilies, watch::watch};

/// A request to watch a kind.
pub(super) struct Start {
    pub(super) kind: Arc<Kind>,
    /// Ends the watches when it is cancelled.
    pub(super) until: CancellationToken,
}

/// The running watches of a cache. They end when this is dropped, at the latest.
#[derive(Debug)]
pub(crate) struct InformerSet {
    supervisor: JoinSet<()>,
    stop: CancellationToken,
}

impl InformerSet {
    /// Starts the watches of each kind that comes through the channel, which holds at most one entry for each kind.
    pub(super) fn start(
        starts: mpsc::UnboundedReceiver<Start>,
        client: Client,
        random: Random,
        metrics: CacheFamilies,
    ) -> Self {
        let (mut supervisor, stop) = (JoinSet::new(), CancellationToken::new());
        let stopped = stop.clone();
        supervisor.spawn(async move {
            let mut watches = JoinSet::new();
            let start = |watches: &mut JoinSet<_>, Start { kind, until }| {
                let metrics = metrics.kind(&kind.name().to_string());
                for number in 0..kind.scopes().len() {
                    let watch = watch(kind.clone(), number, client.clone(), random.clone(), metrics.clone());
                    let until = until.clone();
                    watches.spawn(async move {
                        until.run_until_cancelled(watch).await;
                    });
                }
            };
            let mut starts = starts;
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    Some(kind) = starts.recv() => start(&mut watches, kind),
                    Some(_) = watches.join_next() => {}
                }
            }
            watches.shutdown().await;
        });
        Self { supervisor, stop }
    }

    /// Ends the watches and waits for them.
    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.supervisor.join_next().await.is_some() {}
    }
}
