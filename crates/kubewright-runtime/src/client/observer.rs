//! Observers of requests, for tracking writes, recording runs, and metrics.

use tracing::Span;

use super::{Call, ClientError, ParsedResponse};

/// An observer of all requests of a client.
pub(crate) trait RequestObserver: Send + Sync {
    /// Called before a request is sent. If the caller is dropped before the response, nothing else is called.
    fn begin<'a>(&'a self, call: &Call, request: &http::Request<Vec<u8>>) -> Box<dyn ObservedRequest + 'a>;
}

/// A request that was sent.
pub(crate) trait ObservedRequest: Send {
    /// Returns the span in which the request is sent, if any.
    fn span(&self) -> Option<Span> {
        None
    }

    /// Called with the response, or with the error.
    fn answered(self: Box<Self>, call: &Call, answer: &Result<ParsedResponse, ClientError>);
}
