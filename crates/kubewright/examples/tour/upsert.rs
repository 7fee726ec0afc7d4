//! `create_or_patch_child`: creates an object, or changes some fields of an existing one. Outside of reconciles: a
//! patch of the difference between two states, and a change that is repeated after a conflict.

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
    // Two states of an object: what differs is sent, here only if nobody has changed the object meanwhile.
    let key = ObjectKey::cluster("count");
    let old = maps.get(&key).await?.ok_or_else(|| anyhow::anyhow!("the count is gone"))?;
    let mut new = old.clone();
    new.metadata.labels.get_or_insert_default().insert("checked".into(), "yes".into());
    maps.patch_from(&old, &new).optimistic_lock().await?;
    anyhow::ensure!(
        maps.patch_from(&old, &new).optimistic_lock().await.is_err_and(|error| error.is_conflict()),
        "it has changed"
    );
    // Two changes of one list, made from the same state: a strategic patch sends single items, where a merge patch
    // replaces the list.
    let old = maps.get(&key).await?.ok_or_else(|| anyhow::anyhow!("the count is gone"))?;
    for finalizer in ["example.com/first", "example.com/second"] {
        let mut new = old.clone();
        new.metadata.finalizers = Some(vec![finalizer.into()]);
        let held = maps.patch_from(&old, &new).strategic().await?;
        anyhow::ensure!(held.metadata.finalizers.is_some_and(|all| all.iter().any(|name| name == "example.com/first")));
    }
    let note = |count: &mut ConfigMap| drop(count.data.get_or_insert_default().insert("note".into(), "by hand".into()));
    let noted = maps.retry_on_conflict(&key, note).await?.ok_or_else(|| anyhow::anyhow!("the count is gone"))?;
    anyhow::ensure!(noted.data.is_some_and(|data| data.len() == 2), "the names are still there");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
