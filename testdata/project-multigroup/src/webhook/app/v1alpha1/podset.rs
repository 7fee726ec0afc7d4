//! What is done with a `PodSet` before it is stored.

use kubewright::{prelude::*, webhook};

use podset_operator::api::app::v1alpha1::PodSet;

/// The webhooks, for the manager.
pub(crate) fn webhook() -> Webhook<PodSet> {
    let webhook = Webhook::new();
    let webhook = webhook.validating(PodSetValidator);
    // +kubebuilder:scaffold:webhook
    webhook
}

/// Refuses what is wrong.
struct PodSetValidator;

impl Validator<PodSet> for PodSetValidator {
    async fn validate_create(
        &self,
        object: &PodSet,
        request: &webhook::Request,
    ) -> Result<webhook::Findings, webhook::Denied> {
        // Tell all that is wrong with `object` by `findings.invalid()`. Updates come here, too.
        let (_, _) = (object, request);
        let findings = webhook::Findings::default();
        Ok(findings)
    }
}
// +kubebuilder:scaffold:webhooks
