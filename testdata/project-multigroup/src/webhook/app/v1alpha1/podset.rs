//! Admission webhooks for `PodSet`.

use kubewright::{prelude::*, webhook};

use podset_operator::api::app::v1alpha1::PodSet;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<PodSet> {
    let webhook = Webhook::new();
    let webhook = webhook.validating(PodSetValidator);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Rejects invalid objects.
struct PodSetValidator;

impl Validator<PodSet> for PodSetValidator {
    async fn validate_create(
        &self,
        object: &PodSet,
        request: &webhook::Request,
    ) -> Result<webhook::ValidationErrors, webhook::Denied> {
        // Add each problem of `object` to `errors`, for example by `errors.invalid()`. Updates are validated here too.
        let (_, _) = (object, request);
        let errors = webhook::ValidationErrors::default();
        Ok(errors)
    }
}
// +kubebuilder:scaffold:webhooks
