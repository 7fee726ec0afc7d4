//! What becomes of a `HealthCheckPolicy`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use project_multigroup::api::foo_policy::v1::HealthCheckPolicy;

const SAMPLE: &str = include_str!("../../config/samples/foo.policy_v1_healthcheckpolicy.yaml");

#[tokio::test]
async fn the_sample_becomes_ready() -> anyhow::Result<()> {
    let cluster = start(vec![HealthCheckPolicy::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_ready).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Whether there are any, and all of them are ready.
fn are_ready(found: &[&HealthCheckPolicy]) -> bool {
    let is_ready = |object: &HealthCheckPolicy| {
        let status = object.status.as_ref();
        status.is_some_and(|status| condition::is_true(&status.conditions, "Ready"))
    };
    !found.is_empty() && found.iter().all(|object| is_ready(object))
}
