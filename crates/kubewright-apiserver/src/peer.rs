//! Verification of the other side of TLS connections.

use std::{sync::Arc, time::Duration};

use kubewright_apimachinery::{certificate::Certificate, clock::SharedClock};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, pem::PemObject},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    time_provider::TimeProvider,
};

use crate::certificate_verifier::CertificateVerifier;

/// Verifies that a peer holds the key of its certificate. Any certificate of a client is accepted, and any certificate
/// of a server unless there is a verifier for it.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    servers: Option<CertificateVerifier>,
    /// The authorities that clients with several certificates choose by.
    client_authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerVerifier {
    /// Creates a verifier that accepts any certificate.
    pub(crate) fn any(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { servers: None, client_authorities: Vec::new(), algorithms }
    }

    /// Creates a verifier of servers.
    pub(crate) fn servers(servers: CertificateVerifier, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { servers: Some(servers), client_authorities: Vec::new(), algorithms }
    }

    /// Creates a verifier that accepts any certificate, and asks clients for one of these authorities.
    pub(crate) fn clients(authorities: &[CertificateDer<'_>], algorithms: WebPkiSupportedAlgorithms) -> Self {
        let subjects = authorities.iter().filter_map(|der| Some(Certificate::parse(der)?.subject));
        Self { client_authorities: subjects.map(DistinguishedName::from).collect(), ..Self::any(algorithms) }
    }

    /// Verifies the signature of a handshake of TLS 1.2.
    fn tls12(
        &self,
        message: &[u8],
        der: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = parse(der)?;
        let offered = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, algorithms) = offered.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let fitting = algorithms.iter().find(|algorithm| *algorithm.public_key_alg_id() == *certificate.key_algorithm);
        let valid = fitting.is_some_and(|algorithm| {
            algorithm.verify_signature(&certificate.public_key, message, signed.signature()).is_ok()
        });
        if valid { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
    }

    /// Verifies the signature of a handshake of TLS 1.3.
    fn tls13(
        &self,
        message: &[u8],
        der: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(parse(der)?.public_key_info);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// Parses a certificate as Go does: `rustls-webpki` refuses some that servers have, such as those of version 1.
fn parse(der: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::parse(der).ok_or_else(|| CertificateError::BadEncoding.into())
}

/// Returns a configuration for clients that accept any certificate of a server: the kubelet's probes, and
/// kube-apiserver's connections to pods.
///
/// # Errors
/// If the TLS library rejects its own defaults.
pub fn unverified_client_config() -> Result<Arc<ClientConfig>, Error> {
    let provider = ring::default_provider();
    let verifier = Arc::new(PeerVerifier::any(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns a configuration for clients that verify servers as kube-apiserver does, by the rules of Go. Servers are
/// trusted by the certificates of a bundle in PEM, or by those of the system. The clock determines whether they are
/// valid.
///
/// # Errors
/// If the bundle has no certificate, or if the TLS library rejects its own defaults.
pub fn verified_client_config(bundle: Option<&[u8]>, clock: &SharedClock) -> Result<ClientConfig, String> {
    let trusted = match bundle {
        Some(bundle) => CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect(),
        None => rustls_native_certs::load_native_certs().certs,
    };
    let provider = ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let servers = CertificateVerifier::new(trusted, algorithms);
    if servers.is_empty() && bundle.is_some() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let config = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(ServerTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PeerVerifier::servers(servers, algorithms)))
        .with_no_client_auth();
    Ok(config)
}

/// The server's clock, which determines the validity of certificates.
#[derive(Debug)]
pub(crate) struct ServerTime(SharedClock);

impl ServerTime {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self(clock)
    }
}

impl TimeProvider for ServerTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let verified =
            self.servers.as_ref().map(|rules| rules.verify_server(end_entity, intermediates, server_name, now));
        match verified {
            None | Some(Ok(())) => Ok(ServerCertVerified::assertion()),
            Some(Err(refusal)) => Err(CertificateError::Other(OtherError(Arc::new(refusal))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.client_authorities
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
