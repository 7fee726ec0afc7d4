// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Tests of the validating webhook of `Captain`, called by the API server.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::CustomResourceExt;

use crate::start;
use ::project::api::v1::Captain;

const SAMPLE: &str = include_str!("../../config/samples/crew_v1_captain.yaml");

#[tokio::test]
async fn the_sample_is_accepted() -> anyhow::Result<()> {
    let cluster = start(vec![Captain::crd()]).await?;
    // The configuration is installed once the webhook is running.
    let is_installed = |all: &[&ValidatingWebhookConfiguration]| !all.is_empty();
    cluster.expect(is_installed).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.shutdown().await;
    Ok(())
}
