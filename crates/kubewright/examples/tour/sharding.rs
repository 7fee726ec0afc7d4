//! Three replicas of an operator divide the greetings among themselves, and two go on when the third has left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kubewright::{client::Client, prelude::*, shard::ShardOptions};
use kubewright_cluster::Cluster;
use parking_lot::Mutex;

use crate::{Greeting, GreetingStatus, cluster, greet_as, start, until};

const GREETINGS: usize = 24;

/// Who has worked on which greeting last, who is at it now, and what must not be.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    last: BTreeMap<ObjectKey, &'static str>,
    at_work: BTreeSet<ObjectKey>,
    doubled: usize,
}

struct Signing {
    replica: &'static str,
    log: Log,
}

impl Reconciler<Greeting> for Signing {
    type Error = ClientError;

    async fn reconcile(&self, greeting: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let is_alone = self.log.0.lock().at_work.insert(ctx.key().clone());
        self.log.0.lock().doubled += usize::from(!is_alone);
        let told = ctx.set_status(GreetingStatus { greeted: greeting.spec.names.len() }).await;
        let mut log = self.log.0.lock();
        log.at_work.remove(ctx.key());
        log.last.insert(ctx.key().clone(), self.replica);
        // Soon again, so that it is seen whose it has become.
        told.map(|()| Action::requeue_after(Duration::from_millis(200)))
    }
}

fn replica(cluster: &Cluster, log: &Log, replica: &'static str) -> Manager {
    // The lease's name begins with `greeter`. A binary says `--shard`, and finds its namespace and identity itself.
    let mut options = ShardOptions::new("default", "greeter", replica);
    options.retry_period = Duration::from_millis(200);
    Manager::new(cluster.client())
        .sharding(options)
        .controller(Controller::<Greeting>::new(Signing { replica, log: log.clone() }).concurrency(4))
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    for number in 0..GREETINGS {
        greet_as(&cluster, &format!("hello-{number}"), &["ada"]).await?;
    }
    let log = Log::default();
    let mut replicas =
        ["first", "second", "third"].map(|name| (name, start(replica(&cluster, &log, name)))).into_iter();
    let shares = || {
        let mut shares = BTreeMap::<&str, usize>::new();
        log.0.lock().last.values().for_each(|replica| *shares.entry(replica).or_default() += 1);
        shares
    };
    let all_are_shared = |by: usize| {
        let shares = shares();
        shares.len() == by && shares.values().sum::<usize>() == GREETINGS
    };
    until("three share them", async || all_are_shared(3)).await?;
    println!("  three replicas: {:?}", shares());
    let leases = Client::new(cluster.client()).namespace("default").kind::<Lease>();
    anyhow::ensure!(leases.list(&Default::default()).await?.len() >= 3, "each holds a lease of its own");

    // It hands its part over at once. That of one that vanishes would move when its lease has run out.
    if let Some((_, first)) = replicas.next() {
        first.stop().await?;
    }
    until("two share them", async || all_are_shared(2) && !shares().contains_key("first")).await?;
    println!("  two replicas: {:?}", shares());
    for (_, replica) in replicas {
        replica.stop().await?;
    }
    anyhow::ensure!(log.0.lock().doubled == 0, "no greeting was ever worked on by two");
    cluster.shutdown().await;
    Ok(())
}
