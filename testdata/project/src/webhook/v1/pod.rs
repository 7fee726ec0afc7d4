// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! What is done with a `Pod` before it is stored.

use kubewright::{prelude::*, webhook};

use k8s_openapi::api::core::v1::Pod;

/// The webhooks, for the manager.
pub(crate) fn webhook() -> Webhook<Pod> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(PodDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets what may be left out.
struct PodDefaulter;

impl Defaulter<Pod> for PodDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Pod,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set it in `object`. To set it twice must change nothing.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
