//! Observers of requests: what tracks writes, records a run, or measures sees every request of a client.

use tracing::Span;

use super::{Answer, Call, ClientError};

/// Sees the requests of a client.
pub(crate) trait RequestObserver: Send + Sync {
    /// Called before a request is sent. Should its answer be lost, or the caller be cut off, nothing else is called.
    fn begin<'a>(&'a self, call: &Call, request: &http::Request<Vec<u8>>) -> Box<dyn ObservedRequest + 'a>;
}

/// A request that was sent.
pub(crate) trait ObservedRequest: Send {
    /// The span in which the request is sent, if there is one.
    fn span(&self) -> Option<Span> {
        None
    }

    /// Called with the answer.
    fn answered(self: Box<Self>, call: &Call, answer: &Result<Answer, ClientError>);
}
