//! Admission webhooks for `Captain`.

use kubewright::{prelude::*, webhook};

use crate::api::crew::v1::Captain;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<Captain> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(CaptainDefaulter);
    let webhook = webhook.validating(CaptainValidator);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets default values.
struct CaptainDefaulter;

impl Defaulter<Captain> for CaptainDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Captain,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set defaults in `object`. Doing so twice must have the same result.
        let (_, _) = (object, request);
        Ok(())
    }
}

/// Rejects invalid objects.
struct CaptainValidator;

impl Validator<Captain> for CaptainValidator {
    async fn validate_create(
        &self,
        object: &Captain,
        request: &webhook::Request,
    ) -> Result<webhook::ValidationErrors, webhook::Denied> {
        // Add each problem of `object` to `errors`, for example by `errors.invalid()`. Updates are validated here too.
        let (_, _) = (object, request);
        let errors = webhook::ValidationErrors::default();
        Ok(errors)
    }
}
// +kubebuilder:scaffold:webhooks
