//! The peer's binary.

use anyhow::Context;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let client = Client::try_default().await.context("connect to the cluster")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    podset_kube_rs::run(client, async move { terminate.recv().await.unwrap_or_default() }).await;
    Ok(())
}
