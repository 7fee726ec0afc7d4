//! The credentials of a listener: a private certificate authority, the certificates of the server and of the client,
//! and a token.

use std::{net::IpAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::random::Random;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    DigitallySignedStruct, DistinguishedName as RawName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// An error of generating credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A key or certificate can't be generated.
    #[error("failed to generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library rejected the credentials.
    #[error("failed to configure TLS")]
    Configure(#[from] rustls::Error),
}

/// The credentials of both sides of a connection. Keys are ECDSA P-256, generated in well under a millisecond.
pub(crate) struct Credentials {
    ca: String,
    client_key: String,
    client_pem: String,
    client: CertificateDer<'static>,
    token: String,
    pub(crate) server: Arc<ServerConfig>,
}

impl Credentials {
    /// Generates credentials for a server at these addresses.
    pub(crate) fn generate(addresses: &[IpAddr]) -> Result<Self, TlsError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = name("kubewright-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let mut hosts: Vec<String> = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(String::from)
            .into_iter()
            .chain(["127.0.0.1".into(), "::1".into()])
            .chain(addresses.iter().map(ToString::to_string))
            .collect();
        hosts.dedup();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca)?;
        let server = configure(certificate.der().clone(), &key)?;

        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = name("system:admin", Some("system:masters"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let client_key = KeyPair::generate()?;
        let client = params.signed_by(&client_key, &ca)?;
        Ok(Self {
            ca: ca.pem(),
            client_key: client_key.serialize_pem(),
            client_pem: client.pem(),
            client: client.der().clone(),
            // Secrets come from the operating system, even in a seeded simulation.
            token: Random::from_entropy().uuid() + &Random::from_entropy().uuid(),
            server: Arc::new(server),
        })
    }

    /// Returns a bearer token for the user of the client certificate.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the certificate of the authority, in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.ca
    }

    /// Returns whether a peer sent the client certificate. The handshake has verified that it holds the key.
    pub(crate) fn is_client(&self, shown: Option<&CertificateDer<'_>>) -> bool {
        shown == Some(&self.client)
    }

    /// Returns a kubeconfig for the client, as YAML.
    pub(crate) fn kubeconfig(&self, server: &str) -> String {
        let data = |pem: &str| STANDARD.encode(pem);
        let (ca, certificate, key) = (data(&self.ca), data(&self.client_pem), data(&self.client_key));
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: kubewright\n\
             \x20 cluster:\n\
             \x20   server: {server}\n\
             \x20   certificate-authority-data: {ca}\n\
             users:\n\
             - name: kubewright-admin\n\
             \x20 user:\n\
             \x20   client-certificate-data: {certificate}\n\
             \x20   client-key-data: {key}\n\
             contexts:\n\
             - name: kubewright\n\
             \x20 context:\n\
             \x20   cluster: kubewright\n\
             \x20   user: kubewright-admin\n\
             \x20   namespace: default\n\
             current-context: kubewright\n"
        )
    }
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common);
    name
}

fn configure(certificate: CertificateDer<'static>, key: &KeyPair) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let verifier = Arc::new(AnyClientCertificate { algorithms: provider.signature_verification_algorithms });
    let mut config = ServerConfig::builder_with_provider(provider as Arc<CryptoProvider>)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts any client certificate whose key the client holds. Each request checks whether the certificate is valid, so
/// that an unknown one gets the response 401 instead of a failed handshake.
#[derive(Debug)]
struct AnyClientCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[RawName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
