// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Tests of the controller of `Deployment`.

use kubewright::{object::KindName, prelude::*};

use crate::start;
use k8s_openapi::api::apps::v1::Deployment;

#[tokio::test]
async fn the_controller_is_registered() -> anyhow::Result<()> {
    let cluster = start(Vec::new()).await?;
    let manager = Manager::new(cluster.client());
    let operator = ::project::register(manager).describe();
    let kind = KindName::of::<Deployment>();
    let mut uses = operator.controllers.iter().flat_map(|it| &it.uses);
    assert!(uses.any(|used| used.kind == kind));
    cluster.shutdown().await;
    Ok(())
}
