//! The validation webhook of `CronJob`, asked by the API server.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::CustomResourceExt;

use crate::start;
use cronjob_operator::api::v1::CronJob;

const SAMPLE: &str = include_str!("../../config/samples/batch_v1_cronjob.yaml");

#[tokio::test]
async fn the_sample_is_taken() -> anyhow::Result<()> {
    let cluster = start(vec![CronJob::crd()]).await?;
    // The configuration is there once the webhook answers.
    let is_there = |all: &[&ValidatingWebhookConfiguration]| !all.is_empty();
    cluster.expect(is_there).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.shutdown().await;
    Ok(())
}
