//! What becomes of a `PodSet`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use podset_operator::api::k8stest::v1alpha1::PodSet;

const SAMPLE: &str = include_str!("../../config/samples/k8stest_v1alpha1_podset.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![PodSet::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&PodSet]) -> bool {
    let is_ready = |object: &PodSet| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
