//! Patches: a change to a document, as a document.
//!
//! What a patch does to field ownership is not decided here but in `apply`.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::status::{Details, Status};

/// Why a patch can't be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The patch itself makes no sense: answered with 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed but does not fit the document, such as a failed `test`: answered with 422.
    #[error("{0}")]
    Rejected(String),
    /// The patch is beyond a limit: answered with 413.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// The answer as the API server words it. Kubernetes says nothing of why a patch was rejected; `Display` does.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Malformed(why) => Status::bad_request(why),
            Self::Rejected(_) => Status {
                details: Some(Details::default().into()),
                ..Status::new(422, "Invalid", "the server rejected our request due to an error in our request")
            },
            Self::TooLarge(why) => {
                Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
            }
        }
    }
}
