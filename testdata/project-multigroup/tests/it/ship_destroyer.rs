//! What becomes of a `Destroyer`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use project_multigroup::api::ship::v1::Destroyer;

const SAMPLE: &str = include_str!("../../config/samples/ship_v1_destroyer.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![Destroyer::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&Destroyer]) -> bool {
    let is_ready = |object: &Destroyer| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
