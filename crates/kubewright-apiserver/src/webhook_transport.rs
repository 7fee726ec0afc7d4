//! Calls of webhooks within the process, in place of connections.

use std::fmt::{self, Debug};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use kubewright_apimachinery::clock::SharedClock;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;

use crate::{certificate_verifier::CertificateVerifier, webhook_client::Endpoint};

/// Delivers the reviews of admission and conversion to webhooks in the same process: for tests on virtual time, which
/// can't use sockets. Nothing is encrypted, and services need no endpoints.
pub trait WebhookTransport: Debug + Send + Sync + 'static {
    /// Sends a review. The address is that of the configuration; a service has the host `<name>.<namespace>.svc`. The
    /// query parameter `timeout` says how long the API server waits; then it drops the future. `trust` verifies the
    /// certificate of the server, if the transport has one for it; otherwise the configuration needs no `caBundle`.
    ///
    /// The error is the reason for which there is no response, in the words of Go's client, such as
    /// `dial tcp: connect: connection refused`.
    fn call(&self, review: Request<Bytes>, trust: ServerTrust) -> BoxFuture<'static, Result<Response<Bytes>, String>>;
}

/// The servers that the API server trusts as that of a client configuration: by its host and `caBundle`, at the time of
/// a clock.
///
/// The certificate authorities of the system aren't trusted, since what they are depends on the machine.
#[derive(Clone)]
pub struct ServerTrust {
    host: String,
    bundle: Option<Vec<u8>>,
    clock: SharedClock,
}

impl Debug for ServerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTrust").field("host", &self.host).finish_non_exhaustive()
    }
}

impl ServerTrust {
    /// Returns the trust in the host of a URL, by certificates in PEM.
    pub(crate) fn new(host: String, bundle: Option<Vec<u8>>, clock: &SharedClock) -> Self {
        Self { host, bundle, clock: clock.clone() }
    }

    /// Returns the trust of a valid `clientConfig`, of a webhook or a conversion.
    pub fn of(config: &Value, clock: &SharedClock) -> Self {
        Endpoint::new(config, None).trust(clock)
    }

    /// Verifies the certificates of a server, in DER and from its own on, at the present time.
    ///
    /// # Errors
    /// The reason why the server isn't trusted, in the words of Go's client.
    pub fn verify(&self, chain: &[Vec<u8>]) -> Result<(), String> {
        let refused = |why: String| format!("tls: failed to verify certificate: {why}");
        let bundle = self.bundle.as_deref().unwrap_or_default();
        let trusted = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
        let verifier = CertificateVerifier::new(trusted, ring::default_provider().signature_verification_algorithms);
        if verifier.is_empty() && self.bundle.is_some() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        let mut chain = chain.iter().map(|der| CertificateDer::from(der.as_slice()));
        let leaf = chain.next().ok_or_else(|| "tls: received empty certificates message".to_owned())?;
        let host = ServerName::try_from(self.host.as_str()).map_err(|error| refused(format!("x509: {error}")))?;
        let intermediates: Vec<_> = chain.collect();
        let verified = verifier.verify_server(&leaf, &intermediates, &host, self.clock.now().as_second());
        verified.map_err(|refusal| refused(refusal.to_string()))
    }
}
