//! Calls of webhooks within the process, in place of connections.

use std::fmt::Debug;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// Delivers the reviews of admission and conversion to webhooks in the same process: for tests on virtual time, which can't use
/// sockets. Nothing is encrypted, so `caBundle` isn't needed, and services need no endpoints.
pub trait WebhookTransport: Debug + Send + Sync + 'static {
    /// Sends a review. The address is that of the configuration; a service has the host `<name>.<namespace>.svc`. The query parameter
    /// `timeout` says how long the API server waits; then it drops the future.
    ///
    /// The error is the reason for which there is no response, in the words of Go's client, such as
    /// `dial tcp: connect: connection refused`.
    fn call(&self, review: Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, String>>;
}
