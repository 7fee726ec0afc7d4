//! The credentials of a listener: the certificates of the server and of its client, and a token.

use std::{fmt, net::IpAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, Serialize};

use crate::{
    auth::token,
    certificate_authority::{CertificateAuthority, distinguished_name, pem_text},
    peer::PeerVerifier,
};

/// The name of HTTP/2 in TLS handshakes (RFC 9113, section 3.2).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

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
    /// A file isn't in PEM, or has no certificate or private key.
    #[error("failed to read a certificate or a private key in PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The key of service account tokens can't be used.
    #[error("the key of service account tokens must be a private key for ECDSA on P-256 or for RSA, in PEM")]
    ServiceAccountKey,
    /// There is no certificate of an authority of clients.
    #[error("the authorities of clients contain no certificate in PEM")]
    ClientAuthorities,
}

/// The certificate of a server and its key. Without `Debug` of the key.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerCertificate {
    chain: String,
    key: String,
}

impl ServerCertificate {
    /// Takes a chain of certificates, that of the server first, and the private key of the first one, both in PEM.
    pub fn new(chain: impl Into<String>, key: impl Into<String>) -> Self {
        Self { chain: chain.into(), key: key.into() }
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<_, _>>()?;
        if chain.is_empty() { Err(rustls::pki_types::pem::Error::NoItemsFound.into()) } else { Ok(chain) }
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The credentials of the client of a server: the administrator.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientCredentials {
    certificate: String,
    key: String,
    token: String,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials").finish_non_exhaustive()
    }
}

impl ClientCredentials {
    /// Generates a key, a certificate signed by an authority, and a token.
    pub(crate) fn generate(ca: &CertificateAuthority) -> Result<Self, TlsError> {
        let (certificate, key) = client_certificate(ca, "system:masters", "system:admin")?;
        Ok(Self {
            certificate: certificate.pem(),
            key: sec1(&key)?,
            token: token::secret().ok_or(rcgen::Error::RingUnspecified)?,
        })
    }
}

/// Generates a key and a certificate of a client, signed by an authority.
pub(crate) fn client_certificate(
    ca: &CertificateAuthority,
    group: &str,
    user: &str,
) -> Result<(Certificate, KeyPair), TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = distinguished_name(&[(DnType::OrganizationName, group), (DnType::CommonName, user)]);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, ca.issuer()?)?, key))
}

/// Generates a private key for service account tokens, in PEM.
pub(crate) fn service_account_key() -> Result<String, TlsError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// The credentials of both sides of a connection. Keys are ECDSA P-256, generated in well under a millisecond.
pub(crate) struct Credentials {
    authority: String,
    client: ClientCredentials,
    pub(crate) server: Arc<ServerConfig>,
}

impl Credentials {
    /// Creates the credentials of a server at these addresses, signed by an authority. The server shows `certificate`
    /// instead of a generated one, and asks clients for certificates of the authorities `clients`, in PEM. The client's
    /// are generated unless they are given.
    pub(crate) fn new(
        ca: &CertificateAuthority,
        addresses: &[IpAddr],
        certificate: Option<&ServerCertificate>,
        clients: &str,
        client: Option<ClientCredentials>,
    ) -> Result<Self, TlsError> {
        let clients: Vec<_> = CertificateDer::pem_slice_iter(clients.as_bytes()).filter_map(Result::ok).collect();
        let (authority, server) = match certificate {
            Some(given) => {
                let chain = given.chain()?;
                let last = chain.last().map(|der| pem_text("CERTIFICATE", der.to_vec())).unwrap_or_default();
                (last, configure(chain, PrivateKeyDer::from_pem_slice(given.key.as_bytes())?, &clients)?)
            }
            None => (ca.certificate()?, generate_server(addresses, ca.issuer()?, &clients)?),
        };
        let client = client.map_or_else(|| ClientCredentials::generate(ca), Ok)?;
        Ok(Self { authority, client, server: Arc::new(server) })
    }

    /// Returns a bearer token for the user of the client certificate.
    pub(crate) fn token(&self) -> &str {
        &self.client.token
    }

    /// Returns the certificate that clients have to trust, in PEM: of the authority, or the last one of a given chain.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns a kubeconfig for the client, as YAML.
    pub(crate) fn kubeconfig(&self, server: &str) -> String {
        let data = |pem: &str| STANDARD.encode(pem);
        let (ca, certificate, key) = (data(&self.authority), data(&self.client.certificate), data(&self.client.key));
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

/// Returns an ECDSA P-256 key in PEM, in the form of SEC 1 (<https://www.rfc-editor.org/rfc/rfc5915>). Some clients
/// can't read an elliptic curve key as PKCS#8, the form of rcgen.
fn sec1(key: &KeyPair) -> Result<String, TlsError> {
    /// `PrivateKeyInfo` up to the private key: the algorithm, and the beginning of an `ECPrivateKey` without
    /// parameters.
    const PKCS8: &[u8] = &[
        0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
        0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20,
    ];
    /// `ECPrivateKey` up to the private key: its version.
    const HEAD: &[u8] = &[0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
    /// The parameters: the curve P-256.
    const CURVE: &[u8] = &[0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    /// The beginning of the public key.
    const PUBLIC: &[u8] = &[0xa1, 0x44, 0x03, 0x42, 0x00];

    let der = key.serialize_der();
    let private = der.strip_prefix(PKCS8).and_then(|rest| rest.split_at_checked(32));
    let (private, _) = private.ok_or(rcgen::Error::CouldNotParseKeyPair)?;
    let der = [HEAD, private, CURVE, PUBLIC, key.public_key_raw()].concat();
    Ok(pem_text("EC PRIVATE KEY", der))
}

/// Generates a certificate for a server at these addresses.
fn generate_server(
    addresses: &[IpAddr],
    ca: &CertifiedIssuer<'_, KeyPair>,
    clients: &[CertificateDer<'_>],
) -> Result<ServerConfig, TlsError> {
    let service =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let mut hosts: Vec<String> =
        ["localhost"].into_iter().chain(service).chain(["::1", "127.0.0.1"]).map(String::from).collect();
    for address in addresses.iter().map(ToString::to_string) {
        if !hosts.contains(&address) {
            hosts.push(address);
        }
    }
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = distinguished_name(&[(DnType::CommonName, "kube-apiserver")]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca)?;
    configure(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()), clients)
}

fn configure(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: &[CertificateDer<'_>],
) -> Result<ServerConfig, TlsError> {
    let provider = ring::default_provider();
    // Each request checks whether the client's certificate is valid, so that an unknown one gets the response 401
    // instead of a failed handshake.
    let verifier = Arc::new(PeerVerifier::clients(clients, provider.signature_verification_algorithms));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateSec1KeyDer;

    use super::*;

    #[test]
    fn the_client_key_is_the_same_key_in_the_form_of_sec_1() {
        let key = KeyPair::generate().unwrap();
        let text = sec1(&key).unwrap();
        assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{text}");
        let read = PrivateKeyDer::Sec1(PrivateSec1KeyDer::from_pem_slice(text.as_bytes()).unwrap());
        let loaded = ring::sign::any_supported_type(&read).unwrap();
        let public = loaded.public_key().unwrap();
        assert!(public.ends_with(key.public_key_raw()), "the public key belongs to the private key");
    }

    #[test]
    fn the_kubeconfig_has_a_key_that_every_client_reads() {
        let credentials = Credentials::new(&CertificateAuthority::default(), &[], None, "", None).unwrap();
        let kubeconfig = credentials.kubeconfig("https://127.0.0.1:1");
        let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).unwrap();
        let text = String::from_utf8(STANDARD.decode(line).unwrap()).unwrap();
        assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----") && text.ends_with("-----END EC PRIVATE KEY-----\n"));
    }
}
