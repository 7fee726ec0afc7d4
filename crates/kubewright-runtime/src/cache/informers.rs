//! The set of running informers: those of declared kinds run with the manager, those of kinds that reconcilers watch
//! while they are requested.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use kubewright_apimachinery::random::Random;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::{Release, kind::Kind, metrics::CacheFamilies, scope, watch::watch};

/// A request to watch a kind.
pub(super) struct Start {
    pub(super) kind: Arc<Kind>,
    /// Ends the watches when it is cancelled.
    pub(super) until: CancellationToken,
}

/// The running watches of a cache. They end when this is dropped, at the latest, and with them the handlers of its
/// changes.
pub(crate) struct InformerSet {
    supervisor: JoinSet<()>,
    stop: CancellationToken,
    _release: Release,
}

impl InformerSet {
    /// Starts the watches of each kind that comes through the channel, which holds at most one entry for each kind.
    pub(super) fn start(
        starts: mpsc::UnboundedReceiver<Start>,
        client: Client,
        random: Random,
        metrics: CacheFamilies,
        span: Span,
        release: Release,
    ) -> Self {
        let (mut supervisor, stop) = (JoinSet::new(), CancellationToken::new());
        let stopped = stop.clone();
        supervisor.spawn(async move {
            let mut watches =
                Watches { client, random, metrics, span, running: JoinSet::new(), by_name: BTreeMap::new() };
            let (mut starts, mut discoveries) = (starts, JoinSet::new());
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => break,
                    Some(start) = starts.recv() => match start.kind.needs_discovery() {
                        true => drop(discoveries.spawn(watches.discover(start))),
                        false => watches.start(start),
                    },
                    // Any result is matched: a branch whose pattern doesn't match isn't polled any more.
                    Some(found) = discoveries.join_next() => {
                        if let Ok(Some(start)) = found {
                            watches.start(start);
                        }
                    }
                    Some(ended) = watches.running.join_next() => watches.ended(ended),
                }
            }
            watches.end().await;
        });
        Self { supervisor, stop, _release: release }
    }

    /// Ends the watches and waits for them.
    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.supervisor.join_next().await.is_some() {}
    }
}

/// The tasks of the watches, each with the name of its kind.
struct Watches {
    client: Client,
    random: Random,
    metrics: CacheFamilies,
    span: Span,
    running: JoinSet<String>,
    /// The number of tasks by the name of the kind, which its versions share.
    by_name: BTreeMap<String, usize>,
}

impl Watches {
    /// Finds the scope of a kind. Returns what starts its watches, unless it isn't watched any more.
    fn discover(&self, start: Start) -> impl Future<Output = Option<Start>> + use<> {
        let (client, random, span) = (self.client.clone(), self.random.clone(), self.span.clone());
        async move {
            let discovery = scope::discover(&start.kind, &client, &random);
            start.until.run_until_cancelled(discovery).await?;
            Some(start)
        }
        .instrument(span)
    }

    fn start(&mut self, Start { kind, until }: Start) {
        let name = kind.name().to_string();
        let metrics = self.metrics.kind(&name);
        for number in 0..kind.scopes().len() {
            let watch = watch(kind.clone(), number, self.client.clone(), self.random.clone(), metrics.clone());
            let (until, name) = (until.clone(), name.clone());
            *self.by_name.entry(name.clone()).or_default() += 1;
            let watch = async move {
                until.run_until_cancelled(watch).await;
                name
            };
            self.running.spawn(watch.instrument(self.span.clone()));
        }
    }

    /// Ends all watches. The metrics of a cluster that is taken out go with it, those of the manager's own stay until
    /// its end.
    async fn end(mut self) {
        self.running.shutdown().await;
        if self.metrics.is_of_another_cluster() {
            self.by_name.keys().for_each(|name| self.metrics.forget(name));
        }
    }

    /// Drops the metrics of a kind with its last watch.
    fn ended(&mut self, ended: Result<String, JoinError>) {
        let Ok(name) = ended else { return };
        let count = self.by_name.entry(name.clone()).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.by_name.remove(&name);
            self.metrics.forget(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use parking_lot::Mutex;
    use prometheus::Registry;
    use serde_json::json;

    use super::*;
    use crate::cache::{Cache, CacheOptions};

    /// A kind is given up while its scope isn't known, and then the scope of another one is found.
    #[tokio::test(start_paused = true)]
    async fn a_discovery_that_is_given_up_does_not_keep_others_from_starting() {
        let (seen, is_installed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(false)));
        let (record, installed) = (seen.clone(), is_installed.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            record.lock().push(path.clone());
            let (code, body) = match (&*path, *installed.lock()) {
                ("/apis/b.io/v1", true) => (
                    200,
                    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "b.io/v1",
                    "resources": [{"name": "bs", "singularName": "b", "namespaced": true, "kind": "B", "verbs": ["list", "watch"]}]}),
                ),
                ("/apis/b.io/v1/namespaces/here/bs", true) => (
                    200,
                    json!({"kind": "BList", "apiVersion": "b.io/v1", "metadata": {"resourceVersion": "1"}, "items": []}),
                ),
                _ => (404, json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found"})),
            };
            async move {
                let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
                let body: http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error> = body;
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).expect("a response"))
            }
        });
        let client = Client::new(service, "here");
        let cache = Cache::new(BTreeSet::from(["here".to_owned()]), CacheOptions::new());
        let resource = |group: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let a = cache.watch::<DynamicObject>(&resource("a.io", "A"), true);
        let b = cache.watch::<DynamicObject>(&resource("b.io", "B"), true);
        let watches = cache.start(&client, &Random::seeded(1), CacheFamilies::new(&Registry::new()), Span::none());
        tokio::time::sleep(Duration::from_secs(10)).await;
        cache.unwatch(a.name());
        tokio::time::sleep(Duration::from_secs(10)).await;
        *is_installed.lock() = true;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let last = seen.lock().iter().rev().take(3).cloned().collect::<Vec<_>>();
        assert!(b.is_synced(), "the kind is never listed; the last requests: {last:?}");
        watches.shutdown().await;
    }
}
