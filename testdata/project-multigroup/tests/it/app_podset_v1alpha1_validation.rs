//! Tests of the validating webhook of `PodSet`.

use kubewright::{
    prelude::*,
    webhook::{AdmissionRule, Role},
};

use crate::start;
use podset_operator::api::app::v1alpha1::PodSet;

#[tokio::test]
async fn the_webhook_is_registered() -> anyhow::Result<()> {
    let cluster = start(Vec::new()).await?;
    let operator = project_multigroup::register(Manager::new(cluster.client())).describe();
    let wanted = (vec![AdmissionRule::of::<PodSet>()], Role::Validating);
    let mut webhooks = operator.webhooks.into_iter().map(|it| (it.rules, it.role));
    assert!(webhooks.any(|webhook| webhook == wanted));
    cluster.shutdown().await;
    Ok(())
}
