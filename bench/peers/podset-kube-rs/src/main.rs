//! The binary of the kube-rs peer.

use anyhow::Context;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).init();
    let client = Client::try_default().await.context("connect to the cluster")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    podset_kube_rs::run(client, async move { terminate.recv().await.unwrap_or_default() }).await;
    Ok(())
}
