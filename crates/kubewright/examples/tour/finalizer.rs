//! A finalizer: a greeting that is deleted leaves a farewell in an object that isn't its child.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kubewright::{
    client::Client,
    prelude::*,
    wait::{await_condition, conditions},
};

use crate::{DEADLINE, Greeting, cluster, greet, start, until};

struct Polite;

impl Reconciler<Greeting> for Polite {
    const FINALIZER: Option<&'static str> = Some("tour.kubewright.dev/goodbye");

    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, _: &Context<Greeting>) -> Result<Action, ClientError> {
        // The finalizer is there before this is first called.
        Ok(Action::await_change())
    }

    async fn cleanup(&self, greeting: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let metadata = ObjectMeta { name: Some(format!("goodbye-{}", greeting.name_any())), ..ObjectMeta::default() };
        ctx.apply(&ConfigMap { metadata, ..ConfigMap::default() }).await?;
        // Done: the finalizer is taken off, and the greeting goes.
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let manager = start(Manager::new(cluster.client()).controller(Controller::<Greeting>::new(Polite)));
    let client = Client::new(cluster.client()).namespace("default");
    let (hello, goodbye) = (ObjectKey::cluster("hello"), ObjectKey::cluster("goodbye-hello"));
    let greetings = client.kind::<Greeting>();
    greet(&cluster, &["ada"]).await?;
    until("it is kept", async || {
        let greeting = greetings.get(&hello).await.ok().flatten();
        greeting.is_some_and(|greeting| !greeting.finalizers().is_empty())
    })
    .await?;
    let uid = greetings.get(&hello).await?.and_then(|greeting| greeting.uid()).unwrap_or_default();
    greetings.delete(&hello).await?;
    tokio::time::timeout(DEADLINE, await_condition(&greetings, &hello, conditions::is_deleted(&uid))).await??;
    anyhow::ensure!(client.kind::<ConfigMap>().get(&goodbye).await?.is_some(), "it has said goodbye before");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
