//! The content of certificate signing requests: PEM in base64.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::certificate::{Certificate, CertificateRequest};
use rustls::{
    crypto::ring,
    pki_types::{AlgorithmIdentifier, alg_id, pem::SectionKind},
};
use serde_json::Value;

use crate::registry::builtin::pem_sections::{self, label};

/// The identifier of the attribute that holds the groups of a user.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];
/// The identifier of the attribute that holds the name of a user.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];

/// Checks that a text is a request that its key has signed.
///
/// # Errors
/// Returns what is wrong with it.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    let request = parse(text)?;
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let mut fitting = algorithms.all.iter().filter(|algorithm| {
        *algorithm.signature_alg_id() == *request.signature_algorithm
            && *algorithm.public_key_alg_id() == *request.key_algorithm
    });
    let CertificateRequest { public_key, signed, signature, signature_algorithm, .. } = &request;
    if fitting.any(|algorithm| algorithm.verify_signature(public_key, signed, signature).is_ok()) {
        return Ok(());
    }
    let is = |algorithm: AlgorithmIdentifier| *algorithm == **signature_algorithm;
    Err(if is(alg_id::ECDSA_SHA256) || is(alg_id::ECDSA_SHA384) || is(alg_id::ECDSA_SHA512) {
        "x509: ECDSA verification failure"
    } else if is(alg_id::ED25519) {
        "x509: Ed25519 verification failure"
    } else {
        "crypto/rsa: verification error"
    })
}

/// Returns whether the certificate would be that of a user with unrestricted access.
pub(super) fn is_of_masters(spec: &Value) -> bool {
    let request = parse(spec["request"].as_str().unwrap_or_default()).ok();
    let attributes = request.and_then(|request| request.subject_attributes()).unwrap_or_default();
    attributes.iter().any(|(id, value)| *id == ORGANIZATION && value.text() == "system:masters")
}

/// Returns the common name that the certificate would have, which may be empty.
///
/// # Errors
/// Returns what is wrong with the request.
pub(in crate::registry::builtin) fn common_name(spec: &Value) -> Result<String, &'static str> {
    let request = parse(spec["request"].as_str().unwrap_or_default())?;
    let attributes = request.subject_attributes().unwrap_or_default();
    // As in Go, the last one counts.
    let name = attributes.iter().rev().find(|(id, _)| *id == COMMON_NAME);
    Ok(name.map(|(_, value)| value.text().to_owned()).unwrap_or_default())
}

/// Checks that a text consists of certificates, or is empty.
///
/// # Errors
/// Returns what is wrong with it.
pub(super) fn check_certificates(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let sections = sections(text);
    if sections.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".into());
    }
    for (kind, der) in sections {
        if kind != SectionKind::Certificate {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", label(kind)));
        }
        if Certificate::parse(&der).is_none() {
            return Err("x509: malformed certificate".into());
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<CertificateRequest, &'static str> {
    match sections(text).into_iter().next() {
        Some((SectionKind::Csr, der)) => CertificateRequest::parse(&der).ok_or("asn1: structure error"),
        _ => Err("PEM block type must be CERTIFICATE REQUEST"),
    }
}

/// Returns the sections of PEM in base64.
fn sections(text: &str) -> Vec<(SectionKind, Vec<u8>)> {
    pem_sections::sections(&STANDARD.decode(text).unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::json;

    use super::*;

    fn encode(pem: &str) -> String {
        STANDARD.encode(pem)
    }

    fn pem_of(organization: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    /// Returns a valid request.
    pub(in crate::registry::builtin::certificate) fn valid() -> String {
        encode(&pem_of("dev"))
    }

    #[test]
    fn a_request_is_signed_by_its_key() {
        assert_eq!(check(&valid()), Ok(()));
        assert_eq!(check(&encode("hello")), Err("PEM block type must be CERTIFICATE REQUEST"));
        let empty = "-----BEGIN CERTIFICATE REQUEST-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n";
        assert_eq!(check(&encode(empty)), Err("asn1: structure error"));
        let (_, mut der) = pem_sections::sections(pem_of("dev").as_bytes()).remove(0);
        let place = der.windows(3).position(|window| window == b"dev").unwrap();
        der[place] = b'D';
        let block = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        assert_eq!(check(&encode(&block)), Err("x509: ECDSA verification failure"));
    }

    #[test]
    fn requests_for_unrestricted_access_are_recognized() {
        assert!(is_of_masters(&json!({"request": encode(&pem_of("system:masters"))})));
        assert!(!is_of_masters(&json!({"request": valid()})));
    }

    #[test]
    fn only_certificates_are_issued() {
        assert_eq!(check_certificates(""), Ok(()));
        let found = check_certificates(&valid());
        assert_eq!(found, Err("only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"".into()));
    }
}
