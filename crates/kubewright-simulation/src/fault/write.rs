//! Faults at a write of the operator.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A fault at one write of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WriteFault {
    /// The connection breaks before the request reaches the API server.
    Lost,
    /// The write takes effect, and the connection breaks before the response.
    AnswerLost,
    /// The process dies before the request reaches the API server, and is started again.
    DiedBefore,
    /// The write takes effect, and the process dies before the response. It is started again.
    DiedAfter,
    /// Another client changes an annotation of the object first. A write with a resource version fails with a conflict
    /// then.
    ConflictByAnother,
    /// The API server answers 409 `Conflict`.
    Conflict,
    /// The API server answers 429 with `Retry-After: 2`.
    TooManyRequests,
    /// The API server answers 500.
    InternalError,
    /// The API server answers 503.
    Unavailable,
    /// The API server answers 504 after half a minute. The write has no effect.
    Timeout,
    /// An admission webhook denies the write.
    AdmissionRefuses,
}

/// The cause by which a client tells that a namespace is being deleted.
const NAMESPACE_TERMINATING: Cause = Cause {
    reason: "NamespaceTerminating",
    field: "metadata.namespace",
    message: "namespace default is being terminated",
};

/// What the API server answers in a namespace that is being deleted.
pub(crate) const TERMINATING: Refusal = Refusal {
    code: 403,
    reason: "Forbidden",
    message: "unable to create new content in namespace default because it is being terminated",
    cause: Some(NAMESPACE_TERMINATING),
    retry_after: None,
    delay: Duration::ZERO,
};
/// What the API server answers if it can't reach a webhook that it has to call.
pub(crate) const WEBHOOK_UNAVAILABLE: Refusal = Refusal {
    code: 500,
    reason: "InternalError",
    message: "Internal error occurred: failed calling webhook \"admission.simulation.kubewright.dev\": failed to call webhook: \
              Post \"https://admission.default.svc:443/\": dial tcp: connect: connection refused",
    cause: None,
    retry_after: None,
    delay: Duration::ZERO,
};

/// A cause in the details of an error response.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cause {
    reason: &'static str,
    field: &'static str,
    message: &'static str,
}

/// An error response in place of that of the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
    pub(crate) cause: Option<Cause>,
    pub(crate) retry_after: Option<u32>,
    /// How long the response takes.
    pub(crate) delay: Duration,
}

impl WriteFault {
    /// All faults at writes.
    pub const ALL: [Self; 11] = [
        Self::DiedAfter,
        Self::DiedBefore,
        Self::AnswerLost,
        Self::Lost,
        Self::ConflictByAnother,
        Self::Conflict,
        Self::TooManyRequests,
        Self::InternalError,
        Self::Unavailable,
        Self::Timeout,
        Self::AdmissionRefuses,
    ];

    /// Returns the response, if the fault is one that the API server reports.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        let (code, reason, message) = match self {
            Self::Conflict => (
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            Self::TooManyRequests => (429, "TooManyRequests", "too many requests, please try again later"),
            Self::InternalError => (500, "InternalError", "an internal error occurred"),
            Self::Unavailable => (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            Self::Timeout => (504, "Timeout", "the server was unable to return a response in time"),
            Self::AdmissionRefuses => {
                (403, "Forbidden", "admission webhook \"simulation.kubewright.dev\" denied the request: not now")
            }
            Self::Lost | Self::AnswerLost | Self::DiedBefore | Self::DiedAfter | Self::ConflictByAnother => {
                return None;
            }
        };
        let retry_after = (self == Self::TooManyRequests).then_some(2);
        let delay = Duration::from_secs(if self == Self::Timeout { 30 } else { 0 });
        Some(Refusal { code, reason, message, cause: None, retry_after, delay })
    }
}

impl fmt::Display for WriteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "the request is lost",
            Self::AnswerLost => "the write takes effect, and its answer is lost",
            Self::DiedBefore => "the operator dies before the write",
            Self::DiedAfter => "the operator dies after the write",
            Self::ConflictByAnother => "another client changes the object first",
            Self::Conflict => "the API server answers 409 Conflict",
            Self::TooManyRequests => "the API server answers 429 Too Many Requests",
            Self::InternalError => "the API server answers 500 Internal Error",
            Self::Unavailable => "the API server answers 503 Service Unavailable",
            Self::Timeout => "the API server answers 504 Timeout",
            Self::AdmissionRefuses => "an admission webhook denies the write",
        })
    }
}
