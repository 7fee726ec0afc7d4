//! A manager from start to graceful shutdown: its description, another task that it runs, and work in progress.

use std::{sync::Arc, time::Duration};

use kubewright::{manager::Runnable, prelude::*};
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet, start, until};

/// The events, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<&'static str>>>);

impl Diary {
    fn note(&self, what: &'static str) {
        self.0.lock().push(what);
    }

    fn has(&self, what: &str) -> bool {
        self.0.lock().contains(&what)
    }
}

impl Reconciler<Greeting> for Diary {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        self.note("work begins");
        // Long work listens for this, and comes to a good end.
        ctx.cancelled().cancelled().await;
        self.note("work ends well");
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let diary = Diary::default();
    let beside = diary.clone();
    let manager = Manager::new(cluster.client())
        .controller(Controller::<Greeting>::new(diary.clone()))
        // Beside the controllers; with leader election, where they work.
        .runnable(Runnable::new("poller", async move |context| {
            beside.note("the poller begins");
            context.cancelled.cancelled().await;
            beside.note("the poller ends");
            Ok(())
        }))
        // How long all may take to end. A pod's terminationGracePeriodSeconds should be longer.
        .graceful_shutdown(Duration::from_secs(20));
    let described = manager.describe();
    for controller in &described.controllers {
        let uses = controller.uses.iter().map(|it| format!("{:?} {}", it.relation, it.kind)).collect::<Vec<_>>();
        println!("  controller {}: {}", controller.name, uses.join(", "));
    }
    anyhow::ensure!(described.controllers.len() == 1, "it tells of its controller without being run");
    // Immediately, because there is no leader election.
    let elected = manager.elected();
    let manager = start(manager);
    elected.cancelled().await;
    greet(&cluster, &["ada"]).await?;
    until("both are at it", async || diary.has("work begins") && diary.has("the poller begins")).await?;
    // As SIGTERM does. It returns when everything has ended.
    manager.stop().await?;
    println!("  {}", diary.0.lock().join(", "));
    anyhow::ensure!(diary.has("work ends well") && diary.has("the poller ends"), "nothing was cut off");
    cluster.shutdown().await;
    Ok(())
}
