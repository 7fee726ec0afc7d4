//! The content of certificate signing requests: PEM in base64.

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::certificate::{Certificate, CertificateRequest};
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RsaParameters, UnparsedPublicKey,
};
use rustls::{
    crypto::ring::default_provider,
    pki_types::{AlgorithmIdentifier, alg_id, pem::SectionKind},
};
use serde_json::Value;

use crate::registry::builtin::pem_sections::{self, label};

/// The identifier of the attribute that holds the groups of a user.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];
/// The identifier of the attribute that holds the name of a user.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];
/// The algorithm `sha1WithRSAEncryption`.
const RSA_PKCS1_SHA1: AlgorithmIdentifier =
    AlgorithmIdentifier::from_slice(&[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00]);

/// Checks that a text is a request that its key has signed.
///
/// # Errors
/// Returns what is wrong with it.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    let request = parse(text)?;
    let algorithms = default_provider().signature_verification_algorithms;
    let mut fitting = algorithms.all.iter().filter(|algorithm| {
        *algorithm.signature_alg_id() == *request.signature_algorithm
            && *algorithm.public_key_alg_id() == *request.key_algorithm
    });
    let CertificateRequest { public_key, signed, signature, signature_algorithm, .. } = &request;
    if fitting.any(|algorithm| algorithm.verify_signature(public_key, signed, signature).is_ok()) {
        return Ok(());
    }
    let is = |algorithm: AlgorithmIdentifier| *algorithm == **signature_algorithm;
    if let Some(algorithm) = weak_rsa(&request)
        && UnparsedPublicKey::new(algorithm, public_key).verify(signed, signature).is_ok()
    {
        return Ok(());
    }
    Err(if is(alg_id::ECDSA_SHA256) || is(alg_id::ECDSA_SHA384) || is(alg_id::ECDSA_SHA512) {
        "x509: ECDSA verification failure"
    } else if is(alg_id::ED25519) {
        "x509: Ed25519 verification failure"
    } else {
        "crypto/rsa: verification error"
    })
}

/// Returns how to verify a signature by RSA that is too weak for TLS, with SHA-1 or a key of less than 2,048 bits. As
/// in Go, requests may have such signatures.
fn weak_rsa(request: &CertificateRequest) -> Option<&'static RsaParameters> {
    let is = |algorithm: AlgorithmIdentifier| *algorithm == *request.signature_algorithm;
    if *request.key_algorithm != *alg_id::RSA_ENCRYPTION {
        None
    } else if is(RSA_PKCS1_SHA1) {
        Some(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY)
    } else if is(alg_id::RSA_PKCS1_SHA256) {
        Some(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY)
    } else if is(alg_id::RSA_PKCS1_SHA512) {
        Some(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY)
    } else {
        None
    }
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

    // Made by `openssl req -new -newkey rsa:1024 -sha1` and others.
    const SHA1_AND_1024_BITS: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBXDCBxgIBADAdMQwwCgYDVQQKDANkZXYxDTALBgNVBAMMBDEwMjQwgZ8wDQYJ
KoZIhvcNAQEBBQADgY0AMIGJAoGBALjTtvHOTMf6LIrYDfqRNPzc/U+5lWE+iZp9
MEdN1F288n0TctOzm/uQHWiEP3yu8r+wjGnyxdZyPqTve7bTggaFFrkUJOJUwJqH
zrzibF/hOYBODZVIL/zOG6tryJMs5EFOTN4xtbv/bmUIFmGh+/023AmW/54JoBi+
5t2g50H7AgMBAAGgADANBgkqhkiG9w0BAQUFAAOBgQAxcZKtnBukOh4BQcDRVbMz
ZpCClz444BBbkjFWQx1SuIwo17bMgAWBPWnJicB1QjxcfHvnRnN2bBJuWq/9Jdw1
mQh7ci+CCmJ4v+Tqh2qa5dXM9Uup+ixK7GnT9nk2GZr2ZSLam1iyXLt4uRDpgLcV
HUi9ukyGVkDmWmc/0nt9ow==
-----END CERTIFICATE REQUEST-----
";
    const SHA256_AND_1024_BITS: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBXDCBxgIBADAdMQwwCgYDVQQKDANkZXYxDTALBgNVBAMMBDEwMjQwgZ8wDQYJ
KoZIhvcNAQEBBQADgY0AMIGJAoGBAJh6gf6cOiHzKqGg1I6y4Dju3UJoRNNNLuLH
VGuY6mZICIrkUZf5lvAPzoLn715k+fkzVa0N1ZnnIiiPKqIba3O6xxtdpfE3kdCy
jIgiSDlNTI0bMjFk5vunkEq8OFdcv95+wyu3MBl9yr8kZ0p9yTpPqzeDR/qtGCDo
Bcgrf3kBAgMBAAGgADANBgkqhkiG9w0BAQsFAAOBgQBK9b58598SLLpTsFdD5pK8
R/9g/xk0Xmd6KrSkxlAxCSl8Baj8C3aL5GhFXpg3CeU/Z4mG6GA5hxVux89Wu879
r4DNuMCZ6we7JaY/UWMLcn+lRDONxBycdcMr+uajU9sWHuK36RGdcS6TeWdo3Ep8
vwJo4WjR0reftpvjo9N+cw==
-----END CERTIFICATE REQUEST-----
";
    const SHA1_AND_2048_BITS: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIICYjCCAUoCAQAwHTEMMAoGA1UECgwDZGV2MQ0wCwYDVQQDDAQyMDQ4MIIBIjAN
BgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAt4dtPwwRRoymaEP0lKZ7tHifOuUl
ALegzu5ZLJIzqA+/TOskjtGMO67IJFC7NC3XBiBycuU0ux9f1pXRnBPamJ+PNTrI
N1dcJ2HqmI3L7jc01BSXZ4K7DpKLjZR5Z9I7PaLMrlZ1Ao1P7qE635N5Cla1e9Dq
sxgx3Cho/nnWXAYuQ/o1NF6HNzTs7fa8qJbjobrWiVIXHZ2N+1E5/TmBa+hvZ5WG
Ts6V1yxwh2H0aeCQeNUOYvZHXXUY7/hFQOVqIV8IJzFUG80kHVPNgZrfQz099Y/I
DSJ8jUPVMQ7V9Ce0x2+5obwOfU2zqJPSR0LTrKO896QOLCZt1LutRMZFfQIDAQAB
oAAwDQYJKoZIhvcNAQEFBQADggEBADiCe6EDYoRBZ2lkQ64io5WiOEZ40kvh/im4
SLATFxaEVR4dkR7lY6sQzagHyaUd/2AV3cuVDlFHt1uetVrehzX647A/PxUdCMh6
V3pYlVvMMPJtGMlm/vshpS0QwP2Gfv+VwpNEQEM5I3zG8ppxK0R5TDVRTkAF2i54
PKrDzcFtWmfbSVV/qfbKLEiu4NalArXAKxErQoriLD1RZT7BYxUlvCGTvM4sTf0d
IO0yNgMjYI2jW0AvyNFmqgULM3XEwUIoww1hG7RyJmtO5KHRphCfGIHuJ1o56S1P
okPOVYkNeSPCCzwthhlN6gP8hn2MjAaMYaytkS3zcMaLyB7rxbI=
-----END CERTIFICATE REQUEST-----
";

    #[test]
    fn weak_signatures_by_rsa_are_valid() {
        for pem in [SHA1_AND_1024_BITS, SHA256_AND_1024_BITS, SHA1_AND_2048_BITS] {
            assert_eq!(check(&encode(pem)), Ok(()), "{pem}");
            let (_, mut der) = pem_sections::sections(pem.as_bytes()).remove(0);
            let place = der.windows(3).position(|window| window == b"dev").unwrap();
            der[place] = b'D';
            let changed = format!(
                "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
                STANDARD.encode(der)
            );
            assert_eq!(check(&encode(&changed)), Err("crypto/rsa: verification error"));
        }
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
