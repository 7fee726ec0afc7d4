//! What becomes of a `Captain`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use project_conversion::api::v1beta1::Captain;

const SAMPLE: &str = include_str!("../../config/samples/crew_v1beta1_captain.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![Captain::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&Captain]) -> bool {
    let is_ready = |object: &Captain| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
