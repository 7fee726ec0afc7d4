// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The validation webhook of `FirstMate`, asked by the API server.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::CustomResourceExt;

use crate::start;
use project::api::v1::FirstMate;

const SAMPLE: &str = include_str!("../../config/samples/crew_v1_firstmate.yaml");

#[tokio::test]
async fn the_sample_is_taken() -> anyhow::Result<()> {
    let cluster = start(vec![FirstMate::crd()]).await?;
    // The configuration is there once the webhook answers.
    let is_there = |all: &[&ValidatingWebhookConfiguration]| !all.is_empty();
    cluster.expect(is_there).await?;
    cluster.apply_yaml(SAMPLE).await?;
    cluster.shutdown().await;
    Ok(())
}
