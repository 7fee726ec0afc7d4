// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Admission webhooks for `Admiral`.

use kubewright::{prelude::*, webhook};

use crate::api::v1::Admiral;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<Admiral> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(AdmiralDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets default values.
struct AdmiralDefaulter;

impl Defaulter<Admiral> for AdmiralDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Admiral,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set defaults in `object`. Doing so twice must have the same result.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
