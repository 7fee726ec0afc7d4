//! What becomes of a `Kraken`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use project_multigroup::api::sea_creatures::v1beta1::Kraken;

const SAMPLE: &str = include_str!("../../config/samples/sea-creatures_v1beta1_kraken.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![Kraken::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&Kraken]) -> bool {
    let is_ready = |object: &Kraken| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
