use std::slice::from_ref;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::{crypto::ring, pki_types::pem::PemObject};

use super::*;

/// 2024-01-01
const NOW: i64 = 1_704_067_200;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2023, 1, 1), date_time_ymd(2025, 1, 1));
    params
}

fn authority_with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issuer {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn authority(name: &str) -> Issuer {
    authority_with(name, |_| {})
}

fn server() -> CertificateParams {
    let mut params = params("server");
    params.subject_alt_names =
        vec![SanType::DnsName("hook.default.svc".try_into().unwrap()), SanType::IpAddress([127, 0, 0, 1].into())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn signed(params: CertificateParams, authority: &Issuer) -> CertificateDer<'static> {
    params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
}

fn der(issuer: &Issuer) -> CertificateDer<'static> {
    issuer.der().clone()
}

fn verify(trusted: &[CertificateDer<'static>], chain: &[CertificateDer<'static>], host: &str) -> Result<(), String> {
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let verifier = CertificateVerifier::new(trusted.to_vec(), algorithms);
    let host = ServerName::try_from(host.to_owned()).unwrap();
    verifier.verify_server(&chain[0], &chain[1..], &host, NOW).map_err(|why| why.to_string())
}

#[track_caller]
fn refused(trusted: &[CertificateDer<'static>], chain: &[CertificateDer<'static>], host: &str, expect: &str) {
    let why = verify(trusted, chain, host).unwrap_err();
    assert!(why.starts_with(expect), "{why}");
}

#[test]
fn a_certificate_of_a_trusted_authority_is_accepted() {
    let (authority, other) = (authority("envtest-environment"), authority("other"));
    let leaf = signed(server(), &authority);
    for host in ["hook.default.svc", "127.0.0.1"] {
        assert_eq!(verify(&[der(&authority)], from_ref(&leaf), host), Ok(()));
        assert_eq!(verify(&[der(&other), der(&authority)], from_ref(&leaf), host), Ok(()), "a bundle of several");
        assert_eq!(verify(&[der(&authority)], &[leaf.clone(), der(&authority)], host), Ok(()));
    }
    let sparse = authority_with("ca", |params| params.key_usages = Vec::new());
    assert_eq!(verify(&[der(&sparse)], &[signed(server(), &sparse)], "127.0.0.1"), Ok(()), "no key usages");
}

#[test]
fn a_certificate_that_is_its_own_authority_is_accepted() {
    let mut params = server();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.extended_key_usages = Vec::new();
    let own = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    assert_eq!(verify(&[der(&own)], &[der(&own)], "127.0.0.1"), Ok(()));
    // Its authority isn't trusted, but it is itself.
    let leaf = signed(server(), &authority("unknown"));
    assert_eq!(verify(from_ref(&leaf), from_ref(&leaf), "hook.default.svc"), Ok(()));
    // An authority may also be a server of another one.
    let parent = authority("parent");
    let mut params = server();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(verify(&[der(&parent)], &[signed(params, &parent)], "127.0.0.1"), Ok(()));
}

#[test]
fn intermediates_lead_to_a_trusted_authority() {
    let root = authority("root");
    let mut params = params("intermediate");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let middle = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &root).unwrap();
    let leaf = signed(server(), &middle);
    assert_eq!(verify(&[der(&root)], &[leaf.clone(), der(&middle)], "127.0.0.1"), Ok(()));
    refused(&[der(&root)], from_ref(&leaf), "127.0.0.1", "x509: certificate signed by unknown authority");
    let below = {
        let mut params = self::params("below");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &middle).unwrap()
    };
    let chain = [signed(server(), &below), der(&below), der(&middle)];
    refused(&[der(&root)], &chain, "127.0.0.1", "x509: certificate signed by unknown authority");
}

#[test]
fn other_certificates_are_refused_in_the_words_of_go() {
    let (right, wrong) = (authority("ca"), authority("ca"));
    let leaf = signed(server(), &right);
    let unknown = "x509: certificate signed by unknown authority";
    refused(&[der(&authority("other"))], from_ref(&leaf), "127.0.0.1", unknown);
    let hint = format!(
        "{unknown} (possibly because of \"x509: ECDSA verification failure\" while trying to verify candidate authority \
         certificate \"ca\")"
    );
    refused(&[der(&wrong)], from_ref(&leaf), "127.0.0.1", &hint);
    let trusted = [der(&right)];
    refused(&trusted, from_ref(&leaf), "127.0.0.2", "x509: certificate is valid for 127.0.0.1, not 127.0.0.2");
    refused(&trusted, &[leaf], "a.b", "x509: certificate is valid for hook.default.svc, not a.b");

    let change = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = server();
        change(&mut params);
        signed(params, &right)
    };
    let by_name = change(&|params| {
        params.subject_alt_names = vec![SanType::DnsName("127.0.0.1".try_into().unwrap())];
    });
    let no_address = "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs";
    refused(&trusted, &[by_name], "127.0.0.1", no_address);
    let nameless = change(&|params| params.subject_alt_names = Vec::new());
    let none = "x509: certificate is not valid for any names, but wanted to match a.b";
    refused(&trusted, &[nameless], "a.b", none);
    let expired = change(&|params| params.not_after = date_time_ymd(2023, 6, 1));
    let when =
        "x509: certificate has expired or is not yet valid: current time 2024-01-01T00:00:00Z is after 2023-06-01";
    refused(&trusted, &[expired], "127.0.0.1", when);
    let client = change(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    refused(&trusted, &[client], "127.0.0.1", "x509: certificate specifies an incompatible key usage");
    let no_signer = authority_with("ca", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    refused(&[der(&no_signer)], &[signed(server(), &no_signer)], "127.0.0.1", unknown);
    let garbage = CertificateDer::from(vec![1, 2, 3]);
    refused(&trusted, &[garbage], "127.0.0.1", "x509: malformed certificate");
}

#[test]
fn serial_numbers_are_shown_in_decimal() {
    for (bytes, expect) in [(&[][..], "0"), (&[0, 255], "255"), (&[1, 0], "256"), (&[0xff; 16], &u128::MAX.to_string())]
    {
        assert_eq!(decimal(bytes), expect);
    }
}

#[test]
fn names_of_certificates_may_begin_with_a_wildcard() {
    for (name, host, expect) in [
        ("a.b", "A.b", true),
        ("a.b", "a.b.", true),
        ("*.b", "a.b", true),
        ("*.b", "b", false),
        ("*.b", "x.a.b", false),
        ("a.*", "a.b", false),
    ] {
        assert_eq!(matches_host(name, host), expect, "{name} {host}");
    }
}

#[test]
fn certificates_of_other_programs_are_accepted() {
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    // Made by `openssl req -x509`, and by the `crypto/x509` of Go as the test environment of controller-runtime does.
    let openssl = read(include_str!("testdata/openssl-server.pem"));
    let authority = read(include_str!("testdata/go-authority.pem"));
    let server = read(include_str!("testdata/go-server.pem"));
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let host = ServerName::try_from("127.0.0.1").unwrap();
    // 2026-11-25
    let now = 1_795_564_800;
    for (trusted, chain) in [(openssl.clone(), vec![openssl]), (authority, vec![server])] {
        let verifier = CertificateVerifier::new([trusted], algorithms);
        assert_eq!(verifier.verify_server(&chain[0], &chain[1..], &host, now), Ok(()));
    }
}
