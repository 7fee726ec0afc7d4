//! Version v1beta1 of `Captain`, which the API server has converted. That nothing gets lost is tested beside the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::crd::merge_crds};

use crate::start;
use project_conversion::api::v1::Captain as Hub;
use project_conversion::api::v1beta1::Captain as Spoke;

const SAMPLE: &str = include_str!("../../config/samples/crew_v1beta1_captain.yaml");

#[tokio::test]
async fn the_sample_is_shown_in_either_version() -> anyhow::Result<()> {
    let definition = merge_crds(vec![Hub::crd(), Spoke::crd()], "v1")?;
    let cluster = start(vec![definition]).await?;
    // The definition says so once the webhook answers.
    cluster.expect(are_converted).await?;
    cluster.apply_yaml(SAMPLE).await?;
    let stored = cluster.expect(|all: &[&Hub]| !all.is_empty()).await?;
    let shown = cluster.expect(|all: &[&Spoke]| !all.is_empty()).await?;
    assert_eq!(stored[0].metadata.uid, shown[0].metadata.uid);
    cluster.shutdown().await;
    Ok(())
}

/// Whether the API server asks the operator for other versions.
fn are_converted(definitions: &[&CustomResourceDefinition]) -> bool {
    definitions.iter().all(|definition| {
        let conversion = definition.spec.conversion.as_ref();
        conversion.is_some_and(|conversion| conversion.strategy == "Webhook")
    })
}
