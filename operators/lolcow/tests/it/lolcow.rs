//! What becomes of a `Lolcow`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use lolcow_operator::api::v1alpha1::Lolcow;

const SAMPLE: &str = include_str!("../../config/samples/v1alpha1_lolcow.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![Lolcow::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&Lolcow]) -> bool {
    let is_ready = |object: &Lolcow| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
