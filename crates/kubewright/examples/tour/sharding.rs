//! Sharding: three replicas of an operator divide the greetings, and two continue when the third leaves.

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

/// The last replica of each greeting, the running reconciles, and violations.
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
        let result = ctx.set_status(GreetingStatus { greeted: greeting.spec.names.len() }).await;
        let mut log = self.log.0.lock();
        log.at_work.remove(ctx.key());
        log.last.insert(ctx.key().clone(), self.replica);
        // Soon again, so that it is seen whose it has become.
        result.map(|()| Action::requeue_after(Duration::from_millis(200)))
    }
}

fn replica(cluster: &Cluster, log: &Log, replica: &'static str) -> Manager {
    // The names of the leases begin with `greeter`. A binary has the flag `--shard`, and detects its namespace and
    // identity.
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

    // It hands its keys over at once. The keys of a replica that crashes move when its lease expires.
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
