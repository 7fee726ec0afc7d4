//! Admission webhooks for `Destroyer`.

use kubewright::{prelude::*, webhook};

use crate::api::ship::v1::Destroyer;

/// Returns the webhooks.
pub(crate) fn webhook() -> Webhook<Destroyer> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(DestroyerDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets default values.
struct DestroyerDefaulter;

impl Defaulter<Destroyer> for DestroyerDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Destroyer,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set defaults in `object`. Doing so twice must have the same result.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
