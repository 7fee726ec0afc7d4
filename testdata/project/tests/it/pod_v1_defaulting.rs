// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Tests of the defaulting webhook of `Pod`.

use kubewright::{
    prelude::*,
    webhook::{AdmissionRule, Role},
};

use crate::start;
use k8s_openapi::api::core::v1::Pod;

#[tokio::test]
async fn the_webhook_is_registered() -> anyhow::Result<()> {
    let cluster = start(Vec::new()).await?;
    let manager = Manager::new(cluster.client());
    let operator = ::project::register(manager).describe();
    let wanted = AdmissionRule::of::<Pod>();
    // Options of the webhook change the operations and the scope.
    let is_wanted = |rule: &AdmissionRule| {
        (&rule.groups, &rule.resources) == (&wanted.groups, &wanted.resources)
    };
    let mut webhooks = operator
        .webhooks
        .iter()
        .filter(|it| it.role == Role::Mutating);
    assert!(webhooks.any(|webhook| webhook.rules.iter().any(is_wanted)));
    cluster.shutdown().await;
    Ok(())
}
