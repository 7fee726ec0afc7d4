//! The sections of a text in PEM.

use rustls::pki_types::pem::{self, SectionKind};

/// Returns the sections with their contents, up to the first one that is malformed. Those of unknown kinds are left
/// out.
pub(super) fn sections(mut text: &[u8]) -> Vec<(SectionKind, Vec<u8>)> {
    let mut sections = Vec::new();
    while let Ok(Some(section)) = pem::from_buf(&mut text) {
        sections.push(section);
    }
    sections
}

/// Returns the label of a section.
pub(super) fn label(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Certificate => "CERTIFICATE",
        SectionKind::PublicKey => "PUBLIC KEY",
        SectionKind::RsaPrivateKey => "RSA PRIVATE KEY",
        SectionKind::PrivateKey => "PRIVATE KEY",
        SectionKind::EcPrivateKey => "EC PRIVATE KEY",
        SectionKind::Crl => "X509 CRL",
        SectionKind::Csr => "CERTIFICATE REQUEST",
        _ => "another kind",
    }
}
