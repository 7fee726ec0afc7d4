//! The check of the certificate and the key in a Secret for TLS, with the texts of Go's `tls.X509KeyPair`.

use kubewright_apimachinery::certificate::Certificate;
use rustls::{
    Error, SignatureAlgorithm,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, alg_id,
        pem::SectionKind,
    },
    sign::CertifiedKey,
};

use super::pem_sections::{label, sections};

/// Returns why a certificate and a key, both in PEM, can't be used together; `None` if they can, or if this server
/// can't read the key.
pub(super) fn problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    let read = read_certificate(certificate).and_then(|certificate| Ok((certificate, read_key(key)?)));
    match read {
        Ok((certificate, key)) => mismatch(certificate, key),
        Err(why) => Some(why),
    }
    .map(|why| format!("tls: {why}"))
}

/// Returns the first certificate.
fn read_certificate(text: &[u8]) -> Result<Vec<u8>, String> {
    match find(text, |kind| kind == SectionKind::Certificate) {
        Ok((_, der)) => Ok(der),
        Err(others) => Err(match &others[..] {
            [] => "failed to find any PEM data in certificate input".to_owned(),
            [one] if is_key(*one) => {
                "failed to find certificate PEM data in certificate input, but did find a private \
                                     key; PEM inputs may have been switched"
                    .to_owned()
            }
            others => format!(
                "failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following \
                 types: {}",
                labels(others)
            ),
        }),
    }
}

/// Returns the first private key.
fn read_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    match find(text, is_key) {
        Ok((SectionKind::RsaPrivateKey, der)) => Ok(PrivatePkcs1KeyDer::from(der).into()),
        Ok((SectionKind::EcPrivateKey, der)) => Ok(PrivateSec1KeyDer::from(der).into()),
        Ok((_, der)) => Ok(PrivatePkcs8KeyDer::from(der).into()),
        Err(others) => Err(match &others[..] {
            [] => "failed to find any PEM data in key input".to_owned(),
            [SectionKind::Certificate] => {
                "found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            others => format!(
                "failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the \
                 following types: {}",
                labels(others)
            ),
        }),
    }
}

/// Returns how a certificate and a key don't belong together.
fn mismatch(certificate: Vec<u8>, key: PrivateKeyDer<'static>) -> Option<String> {
    let provider = ring::default_provider();
    let algorithm = provider.key_provider.load_private_key(key.clone_key()).ok()?.algorithm();
    let expected = match Certificate::parse(&certificate)?.key_algorithm {
        found if *found == *alg_id::RSA_ENCRYPTION => SignatureAlgorithm::RSA,
        found if *found == *alg_id::ED25519 => SignatureAlgorithm::ED25519,
        _ => SignatureAlgorithm::ECDSA,
    };
    if algorithm != expected {
        return Some("private key type does not match public key type".to_owned());
    }
    match CertifiedKey::from_der(vec![CertificateDer::from(certificate)], key, &provider) {
        Err(Error::InconsistentKeys(_)) => Some("private key does not match public key".to_owned()),
        _ => None,
    }
}

fn is_key(kind: SectionKind) -> bool {
    label(kind).ends_with("PRIVATE KEY")
}

/// Returns the first section of a kind that is wanted. The error has the kinds of the others.
fn find(text: &[u8], is_wanted: impl Fn(SectionKind) -> bool) -> Result<(SectionKind, Vec<u8>), Vec<SectionKind>> {
    let mut sections = sections(text);
    match sections.iter().position(|(kind, _)| is_wanted(*kind)) {
        Some(place) => Ok(sections.swap_remove(place)),
        None => Err(sections.into_iter().map(|(kind, _)| kind).collect()),
    }
}

/// Returns the labels of sections as Go shows a list.
fn labels(kinds: &[SectionKind]) -> String {
    let labels: Vec<_> = kinds.iter().map(|kind| label(*kind)).collect();
    format!("[{}]", labels.join(" "))
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
        let elliptic = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        for (certificate, key, expect) in [
            (&*certificate, &*elliptic, "private key type does not match public key type"),
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
