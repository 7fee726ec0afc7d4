//! Reads of the cache that the compiler checks: a reconciler's context lists the types, and another one doesn't
//! compile.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{context::DeclaredContext, prelude::*, reads};
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet, start, until};

reads! {
    /// What [`Counter`] reads. A read of a Secret would be an error that names this list.
    enum CounterReads: ConfigMap;
}

/// Counts the config maps of a greeting's namespace.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Option<usize>>>);

impl Reconciler<Greeting, DeclaredContext<Greeting, CounterReads>> for Counter {
    type Error = ClientError;

    async fn reconcile(
        &self,
        _: &Greeting,
        ctx: &DeclaredContext<Greeting, CounterReads>,
    ) -> Result<Action, ClientError> {
        *self.0.lock() = Some(ctx.list::<ConfigMap>(&Selector::default())?.len());
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}";
    cluster.apply_yaml(map).await?;
    let counter = Counter::default();
    // Neither the cache nor the role of the operator needs another declaration.
    let manager = Manager::new(cluster.client()).controller(Controller::<Greeting>::new(counter.clone()));
    let description = manager.describe();
    let uses = &description.controllers[0].uses;
    anyhow::ensure!(uses.iter().any(|of| of.kind.to_string() == "configmaps"), "{uses:?}");
    let manager = start(manager);
    greet(&cluster, &["ada"]).await?;
    until("it has counted", async || counter.0.lock().is_some_and(|count| count > 0)).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
