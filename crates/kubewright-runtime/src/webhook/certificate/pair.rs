//! A certificate with its key, as TLS takes them.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use thiserror::Error;

/// Why certificate and key can't be used. The texts hold nothing of either.
#[derive(Debug, Error)]
pub(crate) enum PairError {
    #[error("the certificate is no PEM")]
    Certificate(#[source] pem::Error),
    #[error("there is no certificate")]
    NoCertificate,
    #[error("the certificate can't be read")]
    Unreadable,
    #[error("the key is no private key in PEM")]
    Key,
    #[error("certificate and key don't belong together: {0}")]
    Mismatch(#[from] rustls::Error),
}

/// A certificate chain, its key, and its end.
#[derive(Clone)]
pub(crate) struct Pair {
    key: Arc<CertifiedKey>,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

impl Pair {
    /// Reads both from PEM.
    pub(crate) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(PairError::Certificate)?;
        let own = chain.first().ok_or(PairError::NoCertificate)?;
        let (not_before, not_after) = validity(own).ok_or(PairError::Unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PairError::Key)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Ok(Self { key: Arc::new(key), not_before, not_after })
    }

    pub(crate) fn is_valid_at(&self, time: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&time)
    }

    pub(crate) fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The certificate itself, without those after it.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }
}

/// From when and until when a certificate is valid.
fn validity(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    let validity = certificate.validity();
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

/// The certificate that a server serves now. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    what: &'static str,
    pair: Arc<ArcSwapOption<Pair>>,
}

impl Slot {
    /// An empty one; `what` is served.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, pair: Arc::default() }
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    /// Serves this one from the next handshake on.
    pub(crate) fn set(&self, pair: Pair) {
        tracing::info!(expires = %pair.not_after, "{}: serving with a new certificate", self.what);
        self.pair.store(Some(Arc::new(pair)));
    }

    pub(crate) fn get(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// TLS with whatever is in the slot at each handshake. HTTP/1.1 is all that is spoken: API server and scrapers are content
    /// with it, and HTTP/2 has had more ways to be overwhelmed.
    pub(crate) fn tls(&self) -> Arc<ServerConfig> {
        self.tls_for(None)
    }

    /// [`Slot::tls`], for those alone whom this one knows.
    pub(crate) fn tls_for(&self, clients: Option<Arc<dyn ClientCertVerifier>>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("ring knows TLS 1.2 and 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients),
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl ResolvesServerCert for Slot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair.load().as_ref()?.key.clone())
    }
}
