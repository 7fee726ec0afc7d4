//! Leader election without a Lease: the record of the leader is in a store of the operator, here in memory.

use std::sync::Arc;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kubewright::{
    client::Client,
    leader::{LeaderOptions, Lock, LockError},
    prelude::*,
};
use kubewright_cluster::Cluster;
use parking_lot::Mutex;

use crate::{Greeting, cluster, controller::Greeter, greet, start, until};

/// A store that compares before it writes. Both replicas have it.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Option<Lease>>>);

impl Store {
    fn holder(&self) -> Option<String> {
        self.0.lock().as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    /// Writes a record if the store still has the version on which it is based.
    fn write(&self, record: &Lease) -> Result<Lease, LockError> {
        let mut stored = self.0.lock();
        let known = stored.as_ref().and_then(|record| record.metadata.resource_version.clone());
        if record.metadata.resource_version != known {
            return Err(LockError::Conflict);
        }
        let version: u64 = known.and_then(|version| version.parse().ok()).unwrap_or_default();
        let mut record = record.clone();
        record.metadata.resource_version = Some((version + 1).to_string());
        Ok(stored.insert(record).clone())
    }
}

impl Lock for Store {
    async fn read(&self) -> Result<Option<Lease>, LockError> {
        Ok(self.0.lock().clone())
    }

    async fn create(&self, record: &Lease) -> Result<Lease, LockError> {
        self.write(record)
    }

    async fn update(&self, record: &Lease) -> Result<Lease, LockError> {
        self.write(record)
    }
}

fn replica(cluster: &Cluster, store: &Store, identity: &str) -> Manager {
    Manager::new(cluster.client())
        .leader_election(LeaderOptions::new("default", "greeter", identity))
        .leader_lock(store.clone())
        .controller(Controller::<Greeting>::new(Greeter).owns::<ConfigMap>())
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let (cluster, store) = (cluster().await?, Store::default());
    let cards = Client::new(cluster.client()).namespace("default").kind::<ConfigMap>();
    let first = start(replica(&cluster, &store, "first"));
    until("the first leads", async || store.holder().as_deref() == Some("first")).await?;
    let second = start(replica(&cluster, &store, "second"));
    greet(&cluster, &["ada"]).await?;
    until("it works", async || matches!(cards.get(&ObjectKey::cluster("card-ada")).await, Ok(Some(_)))).await?;
    first.stop().await?;
    until("the second leads", async || store.holder().as_deref() == Some("second")).await?;
    second.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
