//! Watches: a config map with settings enqueues the greetings that use it; secrets are found by an index.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::prelude::*;
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet, start, until};

/// Records what it reads.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Vec<String>>>);

impl Reconciler<Greeting> for Reader {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let settings = ctx.get::<ConfigMap>(&ctx.key().sibling("settings"))?;
        let tone = settings.and_then(|settings| settings.data.as_ref()?.get("tone").cloned());
        let secrets = ctx.cached::<Secret>()?.indexed("type", "tour/stamp").len();
        self.0.lock().push(format!("{}, {secrets} stamps", tone.unwrap_or_default()));
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let reader = Reader::default();
    let controller = Controller::<Greeting>::new(reader.clone())
        // Changes of the status don't enqueue it.
        .predicate(Predicate::generation_changed())
        // The settings apply to all greetings in their namespace. Changes of labels don't matter.
        .watches_when::<ConfigMap>(
            Predicate::changed(|settings: &ConfigMap| settings.data.clone()),
            |settings, greetings| {
                let here = greetings.list(settings.metadata.namespace.as_deref(), &Default::default());
                let is_ours = settings.name_any() == "settings";
                here.iter().filter(|_| is_ours).map(|greeting| ObjectKey::of(greeting.as_ref())).collect()
            },
        )
        // Changes of secrets enqueue nothing. An index finds them by type.
        .reads::<Secret>()
        .index::<Secret>("type", |secret| secret.type_.iter().cloned().collect());
    let manager = start(Manager::new(cluster.client()).controller(controller));

    let saw = |what: &str| reader.0.lock().last().is_some_and(|last| last == what);
    cluster.apply_yaml("{apiVersion: v1, kind: Secret, type: tour/stamp, metadata: {name: stamp}}").await?;
    greet(&cluster, &["ada"]).await?;
    until("it is reconciled", async || !reader.0.lock().is_empty()).await?;
    let settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {tone: warm}}";
    cluster.apply_yaml(settings).await?;
    until("the settings wake it", async || saw("warm, 1 stamps")).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
