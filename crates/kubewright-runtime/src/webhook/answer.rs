//! What a webhook answers, before it is put into a review.

use kubewright_apimachinery::status::Status;
use serde_json::Value;

/// Whether the request may go on, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// Why it may not.
    pub(super) refusal: Option<Status>,
    /// What the user is told in any case.
    pub(super) warnings: Vec<String>,
    /// The JSON patch of the object; none where nothing is to be changed.
    pub(super) patch: Option<Value>,
}

impl Answer {
    /// It may go on.
    pub(super) fn allowed() -> Self {
        Self::default()
    }

    /// It may not.
    pub(super) fn refused(status: Status) -> Self {
        Self { refusal: Some(status), ..Self::default() }
    }
}
