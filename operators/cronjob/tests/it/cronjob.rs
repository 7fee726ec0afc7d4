//! What becomes of a `CronJob`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use cronjob_operator::api::v1::CronJob;

const SAMPLE: &str = include_str!("../../config/samples/batch_v1_cronjob.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![CronJob::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&CronJob]) -> bool {
    let is_ready = |object: &CronJob| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
