//! Read-your-writes with a delayed cache: the next run of a key waits until the cache has the key's own writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kubewright::{client::Client, clock::SystemClock, metrics::Metrics, prelude::*};
use kubewright_cluster::faults::{Faults, Verb};

use crate::{Greeting, GreetingStatus, cluster, greet, start, until};

/// Creates cards until there are enough. The API server generates their names, so only the count prevents too many.
struct Printer;

impl Reconciler<Greeting> for Printer {
    type Error = ClientError;

    async fn reconcile(&self, greeting: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let (cards, wanted) = (ctx.children::<ConfigMap>()?.len(), greeting.spec.names.len());
        if cards < wanted {
            let metadata = ObjectMeta { generate_name: Some("card-".into()), ..ObjectMeta::default() };
            ctx.create_child(ConfigMap { metadata, ..ConfigMap::default() }).await?;
            return Ok(Action::requeue_after(Duration::ZERO));
        }
        ctx.set_status(GreetingStatus { greeted: cards }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let (faults, metrics) = (Faults::new(), Metrics::new(SystemClock::shared()));
    // The operator receives each change of a config map half a second late.
    faults.on(&[Verb::Watch], "configmaps").always().delay(Duration::from_millis(500));
    let controller = Controller::<Greeting>::new(Printer).owns::<ConfigMap>();
    let manager = Manager::new(faults.client(&cluster.client())).metrics(metrics.clone()).controller(controller);
    let manager = start(manager);
    let names = ["ada", "bob", "cleo"];
    greet(&cluster, &names).await?;
    let client = Client::new(cluster.client()).namespace("default");
    let (greetings, hello) = (client.kind::<Greeting>(), ObjectKey::cluster("hello"));
    let greeted = async || greetings.get(&hello).await.ok()??.status.map(|status| status.greeted);
    until("there are enough", async || greeted().await.is_some()).await?;

    let maps = client.kind::<ConfigMap>().list(&Default::default()).await?;
    let cards = maps.iter().filter(|map| map.name_any().starts_with("card-")).count();
    let counter = r#"kubewright_read_your_writes_waits_total{controller="greeting"} "#;
    let page = metrics.encode()?;
    let waits = page.lines().find_map(|line| line.strip_prefix(counter)).unwrap_or("0");
    println!("  {cards} cards for {} names; a run was held back {waits} times", names.len());
    anyhow::ensure!(cards == names.len() && waits != "0", "none too many");
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
