//! The check of the certificate and the key in a Secret for TLS, with the texts of Go's `tls.X509KeyPair`.

use rustls::{
    Error,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
        pem::{self, SectionKind},
    },
    sign::CertifiedKey,
};

const CERTIFICATE: &str = "CERTIFICATE";

/// A section in PEM: its label and its content.
type Section = (&'static str, Vec<u8>);

/// Returns why a certificate and a key, both in PEM, can't be used together; `None` if they can, or if this server can't read them.
pub(super) fn problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    let certificates = match find(certificate, |label| label == CERTIFICATE) {
        Ok(found) => found,
        Err(others) => {
            return Some(match &others[..] {
                [] => "tls: failed to find any PEM data in certificate input".to_owned(),
                [one] if is_key(one) => {
                    "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM \
                     inputs may have been switched"
                        .to_owned()
                }
                others => format!(
                    "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                     following types: [{}]",
                    others.join(" ")
                ),
            });
        }
    };
    let key = match find(key, is_key) {
        Ok(found) => found,
        Err(others) => {
            return Some(match &others[..] {
                [] => "tls: failed to find any PEM data in key input".to_owned(),
                [CERTIFICATE] => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
                others => format!(
                    "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
                     blocks of the following types: [{}]",
                    others.join(" ")
                ),
            });
        }
    };
    let key = match key {
        ("RSA PRIVATE KEY", der) => PrivateKeyDer::from(PrivatePkcs1KeyDer::from(der)),
        ("EC PRIVATE KEY", der) => PrivateSec1KeyDer::from(der).into(),
        (_, der) => PrivatePkcs8KeyDer::from(der).into(),
    };
    let chain = vec![CertificateDer::from(certificates.1)];
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Err(Error::InconsistentKeys(_)) => Some("tls: private key does not match public key".to_owned()),
        _ => None,
    }
}

fn is_key(label: &str) -> bool {
    label.ends_with("PRIVATE KEY")
}

/// Returns the first section with a label that is wanted. The error has the labels of the others.
fn find(mut text: &[u8], is_wanted: impl Fn(&'static str) -> bool) -> Result<Section, Vec<&'static str>> {
    let mut others = Vec::new();
    while let Ok(Some((kind, content))) = pem::from_buf(&mut text) {
        let label = label(kind);
        if is_wanted(label) {
            return Ok((label, content));
        }
        others.push(label);
    }
    Err(others)
}

fn label(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Certificate => CERTIFICATE,
        SectionKind::PrivateKey => "PRIVATE KEY",
        SectionKind::RsaPrivateKey => "RSA PRIVATE KEY",
        SectionKind::EcPrivateKey => "EC PRIVATE KEY",
        SectionKind::PublicKey => "PUBLIC KEY",
        SectionKind::Crl => "X509 CRL",
        SectionKind::Csr => "CERTIFICATE REQUEST",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::problem;

    #[test]
    fn a_certificate_and_its_key_have_no_problem() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let certificate = CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
        let (key, other) = (key.serialize_pem(), other.serialize_pem());
        let found = |certificate: &str, key: &str| problem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(found(&certificate, &key), None);
        for (certificate, key, expect) in [
            (&*certificate, &*other, "private key does not match public key"),
            ("", &key, "failed to find any PEM data in certificate input"),
            (&certificate, "a", "failed to find any PEM data in key input"),
            (&certificate, &certificate, "found a certificate rather than a key in the PEM for the private key"),
            (
                &key,
                &certificate,
                "failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
                 have been switched",
            ),
        ] {
            assert_eq!(found(certificate, key), Some(format!("tls: {expect}")));
        }
    }
}
