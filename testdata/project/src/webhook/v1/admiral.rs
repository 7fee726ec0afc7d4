// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! What is done with a `Admiral` before it is stored.

use kubewright::{prelude::*, webhook};

use crate::api::v1::Admiral;

/// The webhooks, for the manager.
pub(crate) fn webhook() -> Webhook<Admiral> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(AdmiralDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets what may be left out.
struct AdmiralDefaulter;

impl Defaulter<Admiral> for AdmiralDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Admiral,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set it in `object`. To set it twice must change nothing.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
