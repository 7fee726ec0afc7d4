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
    let operator = project::register(Manager::new(cluster.client())).describe();
    let wanted = (vec![AdmissionRule::of::<Pod>()], Role::Mutating);
    let mut webhooks = operator.webhooks.into_iter().map(|it| (it.rules, it.role));
    assert!(webhooks.any(|webhook| webhook == wanted));
    cluster.shutdown().await;
    Ok(())
}
