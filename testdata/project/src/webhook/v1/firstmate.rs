// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Admission webhooks for `FirstMate`.

use kubewright::{prelude::*, webhook};

use crate::api::v1::FirstMate;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<FirstMate> {
    let webhook = Webhook::new();
    let webhook = webhook.validating(FirstMateValidator);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Rejects invalid objects.
struct FirstMateValidator;

impl Validator<FirstMate> for FirstMateValidator {
    async fn validate_create(
        &self,
        object: &FirstMate,
        request: &webhook::Request,
    ) -> Result<webhook::ValidationErrors, webhook::Denied> {
        // Add each problem of `object` to `errors`, for example by `errors.invalid()`. Updates are validated here too.
        let (_, _) = (object, request);
        let errors = webhook::ValidationErrors::default();
        Ok(errors)
    }
}
// +kubebuilder:scaffold:webhooks
