// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Admission webhooks for `Pod`.

use kubewright::{prelude::*, webhook};

use k8s_openapi::api::core::v1::Pod;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<Pod> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(PodDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets default values.
struct PodDefaulter;

impl Defaulter<Pod> for PodDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Pod,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set defaults in `object`. Doing so twice must have the same result.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
