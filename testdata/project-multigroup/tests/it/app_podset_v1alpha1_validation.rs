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
    let manager = Manager::new(cluster.client());
    let operator = ::project_multigroup::register(manager).describe();
    let wanted = AdmissionRule::of::<PodSet>();
    // Options of the webhook change the operations and the scope.
    let is_wanted = |rule: &AdmissionRule| {
        (&rule.groups, &rule.resources) == (&wanted.groups, &wanted.resources)
    };
    let mut webhooks = operator
        .webhooks
        .iter()
        .filter(|it| it.role == Role::Validating);
    assert!(webhooks.any(|webhook| webhook.rules.iter().any(is_wanted)));
    cluster.shutdown().await;
    Ok(())
}
