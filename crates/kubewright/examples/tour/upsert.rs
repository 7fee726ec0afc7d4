//! `create_or_patch_child`: creates an object, or changes some fields of an existing one.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kubewright::{
    client::{Client, OperationResult},
    prelude::*,
};

use crate::{Greeting, cluster, greet, start, until};

struct Counter;

impl Reconciler<Greeting> for Counter {
    type Error = ClientError;

    async fn reconcile(&self, greeting: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let metadata = ObjectMeta { name: Some("count".into()), ..ObjectMeta::default() };
        let count = ConfigMap { metadata, ..ConfigMap::default() };
        // Whatever else is in it stays; it is sent only if it differs, and becomes a child.
        let (done, _) = ctx
            .create_or_patch_child(count, |count| {
                let names = greeting.spec.names.len().to_string();
                count.data.get_or_insert_default().insert("names".into(), names);
            })
            .await?;
        if done != OperationResult::Unchanged {
            ctx.record(Event::normal("Counted", format!("the count was {done}")));
        }
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let controller = Controller::<Greeting>::new(Counter).owns::<ConfigMap>();
    let manager = start(Manager::new(cluster.client()).controller(controller));
    let maps = Client::new(cluster.client()).namespace("default").kind::<ConfigMap>();
    let count = async || maps.get(&ObjectKey::cluster("count")).await.ok()??.data?.get("names").cloned();
    for names in [&["ada"][..], &["ada", "bob"]] {
        greet(&cluster, names).await?;
        until("they are counted", async || count().await == Some(names.len().to_string())).await?;
    }
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
