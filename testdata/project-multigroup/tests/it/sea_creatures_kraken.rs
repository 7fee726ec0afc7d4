//! Tests of the controller of `Kraken`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use ::project_multigroup::api::sea_creatures::v1beta1::Kraken;

const SAMPLE: &str = include_str!("../../config/samples/sea-creatures_v1beta1_kraken.yaml");

#[tokio::test]
async fn the_sample_is_reconciled() -> anyhow::Result<()> {
    let cluster = start(vec![Kraken::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_reconciled).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(found: &[&Kraken]) -> bool {
    let is_reconciled = |object: &Kraken| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    !found.is_empty() && found.iter().all(|object| is_reconciled(object))
}
