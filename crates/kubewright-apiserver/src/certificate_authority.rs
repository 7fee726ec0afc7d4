//! The certificate authority of a server.

use std::{fmt, sync::OnceLock};

use kubewright_apimachinery::certificate::{Certificate, CertificateTemplate};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SigningKey, date_time_ymd,
};

/// The certificate authority of a server, which signs the certificates of its listeners, and whose client certificates
/// every listener accepts. The common name of a certificate is the user, and its organizations are the groups.
///
/// Its key is generated when it is first used. It is written to the data directory of the server, if that has one, and
/// nowhere else.
#[derive(Default)]
pub struct CertificateAuthority(OnceLock<Result<Authority, rcgen::Error>>);

/// An authority with its key.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    certificate: Certificate,
    pem: String,
}

impl CertificateAuthority {
    /// Returns the authority with this key and its certificate, both in PEM.
    pub(crate) fn restore(certificate: String, key: &str) -> Result<Self, rcgen::Error> {
        // What the same key signs under the same name is verified by the certificate that clients already have.
        let authority = Authority { pem: certificate, ..Authority::of(KeyPair::from_pem(key)?)? };
        Ok(Self(OnceLock::from(Ok(authority))))
    }

    /// Returns the private key in PEM.
    pub(crate) fn key(&self) -> Result<String, rcgen::Error> {
        Ok(self.authority()?.issuer.key().serialize_pem())
    }

    /// Returns the certificate of the authority in PEM.
    ///
    /// # Errors
    /// If the key can't be generated.
    pub fn certificate(&self) -> Result<String, rcgen::Error> {
        Ok(self.authority()?.pem.clone())
    }

    /// Issues a certificate, and returns it in PEM. It signs whatever it is given.
    ///
    /// # Errors
    /// If the key can't be generated or used.
    pub fn sign(&self, template: &CertificateTemplate) -> Result<String, rcgen::Error> {
        let Authority { issuer, certificate, .. } = self.authority()?;
        let sign = |text: &[u8]| issuer.key().sign(text);
        let der = template.signed(&certificate.subject, &certificate.signature_algorithm, sign)?;
        Ok(pem_text("CERTIFICATE", der))
    }

    /// Returns what issues certificates.
    pub(crate) fn issuer(&self) -> Result<&CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
        Ok(&self.authority()?.issuer)
    }

    fn authority(&self) -> Result<&Authority, rcgen::Error> {
        self.0.get_or_init(Authority::generate).as_ref().map_err(Clone::clone)
    }
}

impl Authority {
    fn generate() -> Result<Self, rcgen::Error> {
        Self::of(KeyPair::generate()?)
    }

    fn of(key: KeyPair) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = distinguished_name(&[(DnType::CommonName, "kubewright-ca")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        // The earliest time of a clock in tests.
        params.not_before = date_time_ymd(1970, 1, 1);
        let issuer = CertifiedIssuer::self_signed(params, key)?;
        let certificate = Certificate::parse(issuer.der()).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Self { pem: issuer.pem(), issuer, certificate })
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}

/// Returns the name with these attributes, each of another type.
pub(crate) fn distinguished_name(attributes: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in attributes {
        name.push(kind.clone(), *value);
    }
    name
}

/// Returns PEM with this label.
pub(crate) fn pem_text(label: &str, der: Vec<u8>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), lines)
}
