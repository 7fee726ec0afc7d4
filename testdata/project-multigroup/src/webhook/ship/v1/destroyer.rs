//! What is done with a `Destroyer` before it is stored.

use kubewright::{prelude::*, webhook};

use crate::api::ship::v1::Destroyer;

/// The webhooks, for the manager.
pub(crate) fn webhook() -> Webhook<Destroyer> {
    let webhook = Webhook::new();
    let webhook = webhook.defaulting(DestroyerDefaulter);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Sets what may be left out.
struct DestroyerDefaulter;

impl Defaulter<Destroyer> for DestroyerDefaulter {
    async fn set_defaults(
        &self,
        object: &mut Destroyer,
        request: &webhook::Request,
    ) -> Result<(), webhook::Denied> {
        // Set it in `object`. To set it twice must change nothing.
        let (_, _) = (object, request);
        Ok(())
    }
}
// +kubebuilder:scaffold:webhooks
