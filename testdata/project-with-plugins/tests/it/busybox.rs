//! Tests of the controller of `Busybox`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use ::project_with_plugins::api::v1::Busybox;

const SAMPLE: &str = include_str!("../../config/samples/cache_v1_busybox.yaml");

#[tokio::test]
async fn the_image_of_the_sample_runs() -> anyhow::Result<()> {
    let cluster = start(vec![Busybox::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Returns whether there is an object, and the pods of each are ready.
fn are_ready(found: &[&Busybox]) -> bool {
    let is_ready = |object: &Busybox| {
        let ready = object
            .status
            .as_ref()
            .and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == object.metadata.generation
        })
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
