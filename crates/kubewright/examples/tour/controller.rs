//! A config map for each name of a greeting.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kubewright::prelude::*;

use crate::{Greeting, GreetingStatus, cluster, greet, start, until};

pub(crate) struct Greeter;

impl Reconciler<Greeting> for Greeter {
    type Error = ClientError;

    async fn reconcile(&self, greeting: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        // From the cache, by the owner's UID. It has this key's own writes.
        let cards = ctx.children::<ConfigMap>()?;
        let wanted: BTreeSet<_> = greeting.spec.names.iter().map(|name| format!("card-{name}")).collect();
        for card in cards.iter().filter(|card| !wanted.contains(&card.name_any())) {
            ctx.delete(card.as_ref()).await?;
        }
        for name in &greeting.spec.names {
            ctx.apply_child(card(name)).await?;
        }
        let greeted = wanted.len();
        if greeting.status.as_ref().is_none_or(|status| status.greeted != greeted) {
            ctx.record(Event::normal("Greeted", format!("{greeted} have been greeted")));
        }
        ctx.set_status(GreetingStatus { greeted }).await?;
        Ok(Action::await_change())
    }
}

fn card(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(format!("card-{name}")), ..ObjectMeta::default() },
        data: Some([("text".into(), format!("Hello, {name}!"))].into()),
        ..ConfigMap::default()
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let manager = Manager::new(cluster.client()).controller(Controller::<Greeting>::new(Greeter).owns::<ConfigMap>());
    let manager = start(manager);
    let cards = kubewright::client::Client::new(cluster.client()).namespace("default").kind::<ConfigMap>();
    let count = async || {
        let all = cards.list(&Default::default()).await.unwrap_or_default();
        all.iter().filter(|card| card.name_any().starts_with("card-")).count()
    };

    greet(&cluster, &["ada", "bob"]).await?;
    until("both are greeted", async || count().await == 2).await?;
    greet(&cluster, &["ada"]).await?;
    until("one is left", async || count().await == 1).await?;
    // Someone deletes a child: the deletion enqueues the owner, which creates the child again.
    cards.delete(&ObjectKey::cluster("card-ada")).await?;
    until("it is back", async || count().await == 1).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
