//! The decision of a webhook, before it is put into a review.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

/// The decision about a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AdmissionResponse {
    /// The reason for which it is denied, if it is.
    pub(super) refusal: Option<Status>,
    /// Warnings for the user, whatever the decision.
    pub(super) warnings: Vec<String>,
    /// The JSON patch of the object; `None` without changes.
    pub(super) patch: Option<Value>,
}

impl AdmissionResponse {
    /// Allows the request.
    pub(super) fn allowed() -> Self {
        Self::default()
    }

    /// Denies the request.
    pub(super) fn denied(status: Status) -> Self {
        Self { refusal: Some(status), ..Self::default() }
    }
}
