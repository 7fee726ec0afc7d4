//! A certificate with its key, and the TLS resolver that serves it.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kubewright_apimachinery::certificate::Certificate;
use kubewright_connect::crypto_provider;
use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign,
};
use thiserror::Error;

use super::TlsOptions;

/// The error of an unusable certificate or key. The messages contain no part of either.
#[derive(Debug, Error)]
pub(crate) enum KeyError {
    #[error("the certificate is not in PEM")]
    Certificate(#[source] pem::Error),
    #[error("the file contains no certificate")]
    NoCertificate,
    #[error("the certificate can't be parsed")]
    Unreadable,
    #[error("the key is not a private key in PEM")]
    Key,
    #[error("certificate and key don't belong together: {0}")]
    Mismatch(#[from] rustls::Error),
}

/// A certificate chain with its key.
#[derive(Clone)]
pub(crate) struct CertifiedKey {
    key: Arc<sign::CertifiedKey>,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertifiedKey").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

impl CertifiedKey {
    /// Parses both from PEM.
    pub(crate) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, KeyError> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(KeyError::Certificate)?;
        let own = chain.first().ok_or(KeyError::NoCertificate)?;
        let Certificate { not_before, not_after, .. } = Certificate::parse(own).ok_or(KeyError::Unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| KeyError::Key)?;
        let key = sign::CertifiedKey::from_der(chain, key, &crypto_provider())?;
        Ok(Self { key: Arc::new(key), not_before, not_after })
    }

    pub(crate) fn is_valid_at(&self, time: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&time)
    }

    pub(crate) fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Returns the chain, which begins with the leaf certificate.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// Returns the leaf certificate.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
    }
}

/// A resolver of a server's current certificate. Clones share the certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertResolver {
    what: &'static str,
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl CertResolver {
    /// Creates a resolver without a certificate; `what` is the server's name in the log.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, current: Arc::default() }
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    /// Sets the certificate, which is served from the next handshake on.
    pub(crate) fn set(&self, key: CertifiedKey) {
        tracing::info!(expires = %key.not_after, "{}: serving with a new certificate", self.what);
        *self.current.write() = Some(Arc::new(key));
    }

    pub(crate) fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }

    /// Returns a TLS configuration that resolves the certificate at each handshake. It offers only HTTP/1.1, which
    /// suffices for API servers and scrapers; HTTP/2 has had more denial-of-service vulnerabilities.
    pub(crate) fn tls(&self, options: &TlsOptions) -> Arc<ServerConfig> {
        self.tls_for(options, None)
    }

    /// Like [`CertResolver::tls`], but with `clients` as the verifier of client certificates.
    pub(crate) fn tls_for(
        &self,
        options: &TlsOptions,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Arc<ServerConfig> {
        let builder = options.builder();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients),
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<sign::CertifiedKey>> {
        Some(self.current.read().as_ref()?.key.clone())
    }
}
