//! Sources outside of the cluster: a channel and a task that enqueue keys.

use std::{sync::Arc, time::Duration};

use kubewright::{prelude::*, queue::LOW_PRIORITY};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{Greeting, cluster, greet, start, until};

#[derive(Clone, Default)]
struct Counter(Arc<Mutex<usize>>);

impl Reconciler<Greeting> for Counter {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, _: &Context<Greeting>) -> Result<Action, ClientError> {
        *self.0.lock() += 1;
        // Behind everything that has just changed.
        Ok(Action::requeue_after_with_priority(Duration::from_secs(600), LOW_PRIORITY))
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    greet(&cluster, &["ada"]).await?;
    let counter = Counter::default();
    let (sender, receiver) = mpsc::channel(16);
    let (ring, mut rung) = mpsc::channel::<()>(1);
    let hello = ObjectKey::namespaced("default", "hello");
    let key = hello.clone();
    let controller = Controller::<Greeting>::new(counter.clone())
        // Keys from elsewhere in the program.
        .reconcile_on(receiver)
        // Changes that follow each other are one run.
        .debounce(Duration::from_millis(50), Duration::from_secs(1))
        // A task that knows when to look again: here, when somebody rings.
        .watches_raw_source(|waker| async move {
            while rung.recv().await.is_some() {
                waker.wake(key.clone());
            }
            waker.wake_all();
        });
    let manager = start(Manager::new(cluster.client()).controller(controller));
    let reaches = async |count: usize| until("it has run", async || *counter.0.lock() == count).await;
    reaches(1).await?;
    sender.send(hello).await?;
    reaches(2).await?;
    ring.send(()).await?;
    reaches(3).await?;
    drop(ring);
    reaches(4).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
