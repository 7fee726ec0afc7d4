//! Admission webhooks for `Captain`.

use kubewright::{prelude::*, webhook};

use crate::api::v1::Captain;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<Captain> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(CaptainDefaulter);
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
// +kubebuilder:scaffold:webhooks
