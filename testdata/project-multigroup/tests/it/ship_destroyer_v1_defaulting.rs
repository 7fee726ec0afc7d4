//! The defaulting webhook of `Destroyer`, asked by the API server.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::CustomResourceExt;

use crate::start;
use project_multigroup::api::ship::v1::Destroyer;

const SAMPLE: &str = include_str!("../../config/samples/ship_v1_destroyer.yaml");

#[tokio::test]
async fn the_sample_is_taken() -> anyhow::Result<()> {
    let cluster = start(vec![Destroyer::crd()]).await?;
    // The configuration is there once the webhook answers.
    let is_there = |all: &[&MutatingWebhookConfiguration]| !all.is_empty();
    cluster.expect(is_there).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.shutdown().await;
    Ok(())
}
