//! Tests of the conversion of `FirstMate` to version v2. Lossless conversion is tested beside the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::crd::merge_crds};

use crate::start;
use ::project_conversion::api::v1::FirstMate as Hub;
use ::project_conversion::api::v2::FirstMate as Spoke;

const SAMPLE: &str = include_str!("../../config/samples/crew_v2_firstmate.yaml");

#[tokio::test]
async fn the_sample_is_shown_in_either_version() -> anyhow::Result<()> {
    let definition = merge_crds(vec![Hub::crd(), Spoke::crd()], "v1")?;
    let cluster = start(vec![definition]).await?;
    // The definition has the webhook once it is running.
    cluster.expect(are_converted).await?;
    cluster.apply_yaml(SAMPLE).await?;
    let stored = cluster.expect(|all: &[&Hub]| !all.is_empty()).await?;
    let shown = cluster.expect(|all: &[&Spoke]| !all.is_empty()).await?;
    assert_eq!(stored[0].metadata.uid, shown[0].metadata.uid);
    cluster.shutdown().await;
    Ok(())
}

/// Returns whether the API server has the conversion webhook.
fn are_converted(definitions: &[&CustomResourceDefinition]) -> bool {
    definitions.iter().all(|definition| {
        let conversion = definition.spec.conversion.as_ref();
        conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
    })
}
