//! A key that fails, hangs or panics: it is retried, and doesn't delay other keys.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kubewright::{clock::SystemClock, controller::RateLimit, metrics::Metrics, prelude::*, queue::Backoff};
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet_as, start, until};

/// The errors of the reconciler, which [`Reconciler::error_policy`] classifies.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the line is busy")]
    Busy,
    #[error("nobody is to be greeted")]
    Nobody,
    #[error("they sleep until the sun rises")]
    Asleep,
}

/// The number of tries by name.
#[derive(Clone, Default)]
struct Caller(Arc<Mutex<BTreeMap<String, usize>>>);

impl Caller {
    fn tries(&self, name: &str) -> usize {
        self.0.lock().get(name).copied().unwrap_or_default()
    }
}

impl Reconciler<Greeting> for Caller {
    type Error = Trouble;

    async fn reconcile(&self, greeting: &Greeting, _: &Context<Greeting>) -> Result<Action, Trouble> {
        let name = greeting.name_any();
        let tries = {
            let mut tries = self.0.lock();
            let tries = tries.entry(name.clone()).or_default();
            *tries += 1;
            *tries
        };
        match &*name {
            "busy" if tries < 4 => Err(Trouble::Busy),
            "asleep" if tries < 2 => Err(Trouble::Asleep),
            "nobody" if greeting.spec.names.is_empty() => Err(Trouble::Nobody),
            "hanging" if tries < 2 => std::future::pending().await,
            "panicking" if tries < 2 => panic!("on purpose, for the tour"),
            _ => Ok(Action::await_change()),
        }
    }

    fn error_policy(&self, error: &Trouble) -> Retry {
        match error {
            Trouble::Busy => Retry::Backoff,
            Trouble::Asleep => Retry::After(Duration::from_millis(100)),
            // Only an edit can help.
            Trouble::Nobody => Retry::Terminal,
        }
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let (caller, metrics) = (Caller::default(), Metrics::new(SystemClock::shared()));
    let controller = Controller::<Greeting>::new(caller.clone())
        .concurrency(4)
        // One run that takes longer is cut off, and counts as failed.
        .timeout(Duration::from_secs(1))
        // For each key by itself; and for all that failed, together.
        .backoff(Backoff { first: Duration::from_millis(5), longest: Duration::from_secs(60) })
        .rate_limit(RateLimit { per_second: 50.0, burst: 10 });
    let manager = start(Manager::new(cluster.client()).metrics(metrics.clone()).controller(controller));
    for (name, names) in
        [("busy", &["ada"][..]), ("asleep", &["ada"]), ("nobody", &[]), ("hanging", &["ada"]), ("panicking", &["ada"])]
    {
        greet_as(&cluster, name, names).await?;
    }
    let tried = |wanted: [(&str, usize); 5]| wanted.iter().all(|(name, times)| caller.tries(name) >= *times);
    let wanted = [("busy", 4), ("asleep", 2), ("nobody", 1), ("hanging", 2), ("panicking", 2)];
    until("all are through, or past help", async || tried(wanted)).await?;
    println!("  tries: {:?}", caller.0.lock());
    greet_as(&cluster, "nobody", &["ada"]).await?;
    until("an edit wakes it", async || caller.tries("nobody") >= 2).await?;

    let page = metrics.encode()?;
    for what in ["terminal_reconcile_errors", "reconcile_panics", "reconcile_timeouts"] {
        let counter = format!("controller_runtime_{what}_total{{controller=\"greeting\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&counter)).unwrap_or("0");
        println!("  {what}: {count}");
        anyhow::ensure!(count != "0", "it is counted: {what}");
    }
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
