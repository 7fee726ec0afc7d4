//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! Server-side apply and the effect of patches on field ownership are in [`apply`](crate::apply).

pub mod json;
pub mod merge;
pub mod strategic;

use crate::status::{Details, Status};

/// The error that a patch can't be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The patch is malformed. The response is 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed but does not apply to the document. The response is 422.
    #[error("{0}")]
    Rejected(String),
    /// A `test` fails. The response is 422.
    #[error("{0}")]
    TestFailed(String),
    /// The patch can't be applied for a reason that Kubernetes passes on as an unknown error. The response is 500.
    #[error("{0}")]
    Unknown(String),
    /// The patch exceeds a limit. The response is 413.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// Returns the response in kube-apiserver's wording. It omits the reason of a rejection, which `Display` includes.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Malformed(why) => Status::bad_request(why),
            Self::Unknown(why) => Status::unknown(why),
            Self::Rejected(_) | Self::TestFailed(_) => Status {
                details: Some(Details::default().into()),
                ..Status::new(422, "Invalid", "the server rejected our request due to an error in our request")
            },
            Self::TooLarge(why) => {
                Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
            }
        }
    }
}
