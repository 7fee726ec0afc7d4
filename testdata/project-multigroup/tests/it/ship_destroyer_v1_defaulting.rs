//! Tests of the defaulting webhook of `Destroyer`, called by the API server.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::CustomResourceExt;

use crate::start;
use ::project_multigroup::api::ship::v1::Destroyer;

const SAMPLE: &str = include_str!("../../config/samples/ship_v1_destroyer.yaml");

#[tokio::test]
async fn the_sample_is_accepted() -> anyhow::Result<()> {
    let cluster = start(vec![Destroyer::crd()]).await?;
    // The configuration is installed once the webhook is running.
    let is_installed = |all: &[&MutatingWebhookConfiguration]| !all.is_empty();
    cluster.expect(is_installed).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.shutdown().await;
    Ok(())
}
