//! Tests of the controller of `Guestbook`.

use kube::CustomResourceExt;
use kubewright::condition;

use crate::start;
use ::guestbook_operator::api::v1::Guestbook;

const SAMPLE: &str = include_str!("../../config/samples/webapp_v1_guestbook.yaml");

#[tokio::test]
async fn the_sample_is_reconciled() -> anyhow::Result<()> {
    let cluster = start(vec![Guestbook::crd()]).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.expect(are_reconciled).await?;
    cluster.shutdown().await;
    Ok(())
}

/// Returns whether there is an object, and the condition `Ready` of each is for its current generation.
fn are_reconciled(found: &[&Guestbook]) -> bool {
    let is_reconciled = |object: &Guestbook| {
        let ready = object.status.as_ref().and_then(|status| condition::get(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)
    };
    !found.is_empty() && found.iter().all(|object| is_reconciled(object))
}
