//! Metrics for Prometheus, and an additional health check.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{clock::SystemClock, metrics::Metrics, prelude::*};

use crate::{Greeting, cluster, controller::Greeter, greet, start, until};

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    // The registry, to which a program may add metrics; `metrics_address` sets the address that serves it.
    let metrics = Metrics::new(SystemClock::shared());
    let manager = Manager::new(cluster.client())
        .metrics(metrics.clone())
        .controller(Controller::<Greeting>::new(Greeter).owns::<ConfigMap>());
    let is_warm = Arc::new(AtomicBool::new(false));
    let warm = is_warm.clone();
    // It is served as `/readyz/warm` on `probe_address`, and is a part of `/readyz`.
    manager.probes().readyz.add("warm", move || {
        let is_warm = warm.load(Ordering::Relaxed);
        async move { if is_warm { Ok(()) } else { Err("not warm yet".into()) } }
    });
    let manager = start(manager);
    greet(&cluster, &["ada"]).await?;
    let counter = r#"controller_runtime_reconcile_total{controller="greeting",result="success"} "#;
    let counted = async || {
        let text = metrics.encode().unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix(counter)).any(|count| count != "0")
    };
    until("it is counted", counted).await?;
    is_warm.store(true, Ordering::Relaxed);
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
