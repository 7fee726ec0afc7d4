// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The defaulting webhook of `Pod`.

use kubewright::{object::KindName, prelude::*, webhook::Role};

use crate::start;
use k8s_openapi::api::core::v1::Pod;

#[tokio::test]
async fn its_webhook_is_there() -> anyhow::Result<()> {
    let cluster = start(Vec::new()).await?;
    let operator = project::register(Manager::new(cluster.client())).describe();
    let wanted = (KindName::of::<Pod>(), Role::Mutating);
    let mut webhooks = operator.webhooks.into_iter().map(|it| (it.kind, it.role));
    assert!(webhooks.any(|webhook| webhook == wanted));
    cluster.shutdown().await;
    Ok(())
}
