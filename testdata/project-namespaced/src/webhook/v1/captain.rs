//! What is done with a `Captain` before it is stored.

use kubewright::{prelude::*, webhook};

use crate::api::v1::Captain;

/// The webhooks, for the manager.
pub(crate) fn webhook() -> Webhook<Captain> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(CaptainDefaulter);
    let webhook = webhook.validating(CaptainValidator);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets what may be left out.
struct CaptainDefaulter;

impl Defaulter<Captain> for CaptainDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Captain,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set it in `object`. To set it twice must change nothing.
        let (_, _) = (object, request);
        Ok(())
    }
}

/// Refuses what is wrong.
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
