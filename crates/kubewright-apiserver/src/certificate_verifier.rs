//! Verification of the certificates of webhook servers and of clients, by the rules of Go's `crypto/x509`, which
//! kube-apiserver uses.
//!
//! Webhook servers run with certificates of many origins. Go accepts some that `rustls-webpki` refuses: a certificate
//! that is its own authority (as `openssl req -x509` makes them), and one that the CA bundle itself contains. Name
//! constraints aren't evaluated: a chain with an authority that has them is refused.
//!
//! Errors have Go's wording, since users search for it.

use std::{error::Error, fmt, net::IpAddr};

use jiff::Timestamp;
use kubewright_apimachinery::certificate::{AlternativeNames, Certificate};
use rustls::{
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{AlgorithmIdentifier, CertificateDer, ServerName, alg_id, pem::PemObject},
};

/// Identifiers of RSA with SHA-1 in DER.
const SHA1_RSA: [&[u8]; 2] = [&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], &[6, 5, 0x2b, 0x0e, 3, 2, 0x1d]];
/// The purposes of keys in [`Certificate`]: any, servers, and clients.
const ANY_PURPOSE: &[u64] = &[2, 5, 29, 37, 0];
const SERVER_AUTHENTICATION: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTHENTICATION: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];
/// The types of attributes in names.
pub(crate) const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
pub(crate) const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// The maximum number of signatures that the verification of one certificate checks, as in Go.
const MAX_SIGNATURES: usize = 100;

/// Returns whether a bundle in PEM contains a certificate, whatever else it contains.
pub(crate) fn has_certificate(bundle: &[u8]) -> bool {
    let certificates = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
    certificates.into_iter().any(|der| Certificate::parse(&der).is_some())
}

/// Verifies certificates against a list of trusted certificates.
#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    trusted: Vec<Trusted>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A trusted certificate, as it is and parsed.
#[derive(Debug)]
struct Trusted {
    der: CertificateDer<'static>,
    certificate: Certificate,
}

impl CertificateVerifier {
    /// Creates a verifier that trusts these certificates, except for those that aren't certificates.
    pub(crate) fn new(
        trusted: impl IntoIterator<Item = CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        let parse = |der: CertificateDer<'static>| Some(Trusted { certificate: Certificate::parse(&der)?, der });
        Self { trusted: trusted.into_iter().filter_map(parse).collect(), algorithms }
    }

    /// Returns whether no certificate is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    /// Verifies the certificate of a server for a host at a time in seconds since 1970.
    pub(crate) fn verify_server(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: i64,
    ) -> Result<(), Refusal> {
        let certificate = parse(leaf)?;
        check_certificate(&certificate, now)?;
        check_host(&certificate, host)?;
        self.verify(leaf, &certificate, intermediates, SERVER_AUTHENTICATION, now)
    }

    /// Verifies the certificate of a client at a time in seconds since 1970, and returns it.
    pub(crate) fn verify_client(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: i64,
    ) -> Result<Certificate, Refusal> {
        let certificate = parse(leaf)?;
        check_certificate(&certificate, now)?;
        self.verify(leaf, &certificate, intermediates, CLIENT_AUTHENTICATION, now)?;
        Ok(certificate)
    }

    /// Verifies that a chain for a purpose leads from a certificate to a trusted one.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        certificate: &Certificate,
        intermediates: &[CertificateDer<'_>],
        purpose: &'static [u64],
        now: i64,
    ) -> Result<(), Refusal> {
        if self.trusted.iter().any(|trusted| trusted.der == *leaf) {
            return check_usage(certificate, purpose);
        }
        let others: Vec<_> = intermediates.iter().filter_map(|der| Certificate::parse(der)).collect();
        let (signatures, hint, usage) = (0, None, None);
        let mut search = Search { verifier: self, others: &others, purpose, now, signatures, hint, usage };
        if search.is_trusted(&mut vec![certificate]) {
            return Ok(());
        }
        if let Some(why) = search.usage {
            return Err(why);
        }
        let hint = search.hint.map(|(why, name)| {
            format!(" (possibly because of \"{why}\" while trying to verify candidate authority certificate {name:?})")
        });
        Err(Refusal(format!("certificate signed by unknown authority{}", hint.unwrap_or_default())))
    }
}

/// The reason why a certificate is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(String);

impl Refusal {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x509: {}", self.0)
    }
}

impl Error for Refusal {}

/// The search for a chain from a certificate to a trusted one.
struct Search<'a> {
    verifier: &'a CertificateVerifier,
    others: &'a [Certificate],
    /// The purpose that every certificate of the chain must allow.
    purpose: &'static [u64],
    now: i64,
    /// The number of signatures checked.
    signatures: usize,
    /// The reason why the first candidate wasn't the authority, and its name.
    hint: Option<(Refusal, String)>,
    /// The reason why a complete chain isn't for the purpose.
    usage: Option<Refusal>,
}

impl<'a> Search<'a> {
    /// Returns whether a chain, which begins with the certificate to verify, can be continued to a trusted one.
    fn is_trusted(&mut self, chain: &mut Vec<&'a Certificate>) -> bool {
        let Some(last) = chain.last().copied() else { return false };
        let (verifier, others) = (self.verifier, self.others);
        let is_issuer = |other: &&Certificate| other.subject == last.issuer;
        for candidate in verifier.trusted.iter().map(|trusted| &trusted.certificate).filter(is_issuer) {
            if self.can_continue(chain, candidate) {
                chain.push(candidate);
                match chain.iter().try_for_each(|certificate| check_usage(certificate, self.purpose)) {
                    Ok(()) => return true,
                    Err(why) => self.usage = Some(why),
                }
                chain.pop();
            }
        }
        for candidate in others.iter().filter(is_issuer) {
            // A chain contains no certificate twice, so the search ends.
            let is_used = chain.iter().any(|used| used.signed == candidate.signed);
            if !is_used && self.can_continue(chain, candidate) {
                chain.push(candidate);
                if self.is_trusted(chain) {
                    return true;
                }
                chain.pop();
            }
        }
        false
    }

    /// Returns whether a candidate is the authority of the last certificate of a chain.
    fn can_continue(&mut self, chain: &[&Certificate], candidate: &Certificate) -> bool {
        let Some(last) = chain.last() else { return false };
        self.signatures += 1;
        if self.signatures > MAX_SIGNATURES {
            return false;
        }
        let result = check_authority(candidate, chain.len() - 1)
            .and_then(|()| check_signature(last, candidate, &self.verifier.algorithms))
            .and_then(|()| check_certificate(candidate, self.now));
        if let Err(why) = &result
            && self.hint.is_none()
        {
            self.hint = Some((why.clone(), display_name(candidate)));
        }
        result.is_ok()
    }
}

fn parse(der: &CertificateDer<'_>) -> Result<Certificate, Refusal> {
    Certificate::parse(der).ok_or_else(|| Refusal("malformed certificate".to_owned()))
}

fn refuse(why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal(why.into()))
}

/// Checks the validity period and the critical extensions.
fn check_certificate(certificate: &Certificate, now: i64) -> Result<(), Refusal> {
    let (from, until) = (certificate.not_before.as_second(), certificate.not_after.as_second());
    let expired = |relation: &str, bound: i64| {
        let shown = |second| Timestamp::from_second(second).map(|time| time.to_string()).unwrap_or_default();
        let why = "certificate has expired or is not yet valid";
        refuse(format!("{why}: current time {} is {relation} {}", shown(now), shown(bound)))
    };
    if now < from {
        return expired("before", from);
    }
    if now > until {
        return expired("after", until);
    }
    if certificate.extensions.has_unknown_critical {
        return refuse("unhandled critical extension");
    }
    Ok(())
}

/// Checks that a certificate is of an authority with at most this number of authorities below it.
fn check_authority(certificate: &Certificate, below: usize) -> Result<(), Refusal> {
    let cannot_sign = "invalid signature: parent certificate cannot sign this kind of certificate";
    let extensions = &certificate.extensions;
    match extensions.basic_constraints {
        // Certificates of the first versions have no extensions.
        None if certificate.version < 2 => {}
        Some(constraints) if constraints.is_authority => {
            if constraints.path_length.is_some_and(|most| usize::try_from(most).is_ok_and(|most| below > most)) {
                return refuse("too many intermediates for path length constraint");
            }
        }
        _ => return refuse(cannot_sign),
    }
    if extensions.can_sign_certificates == Some(false) {
        return refuse(cannot_sign);
    }
    if extensions.has_name_constraints {
        return refuse("name constraints of authorities are not supported");
    }
    Ok(())
}

/// Checks that an authority signed a certificate.
fn check_signature(
    certificate: &Certificate,
    authority: &Certificate,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Refusal> {
    let Certificate { signature_algorithm: signed_by, signed, signature, .. } = certificate;
    if SHA1_RSA.iter().any(|weak| signed_by.starts_with(weak)) {
        return refuse("cannot verify signature: insecure algorithm SHA1-RSA");
    }
    let mut fitting = algorithms.all.iter().filter(|algorithm| {
        *algorithm.signature_alg_id() == **signed_by && *algorithm.public_key_alg_id() == *authority.key_algorithm
    });
    if fitting.any(|algorithm| algorithm.verify_signature(&authority.public_key, signed, signature).is_ok()) {
        return Ok(());
    }
    let is = |algorithm: AlgorithmIdentifier| *algorithm == **signed_by;
    refuse(if is(alg_id::ECDSA_SHA256) || is(alg_id::ECDSA_SHA384) {
        "ECDSA verification failure"
    } else if is(alg_id::ED25519) {
        "Ed25519 verification failure"
    } else {
        "RSA verification failure"
    })
}

/// Checks that a certificate may be used for a purpose. An authority without usages may sign for all of them.
fn check_usage(certificate: &Certificate, purpose: &[u64]) -> Result<(), Refusal> {
    let is_fitting = |found: &Vec<u64>| [ANY_PURPOSE, purpose].contains(&found.as_slice());
    match &certificate.extensions.extended_key_usage {
        Some(purposes) if !purposes.iter().any(is_fitting) => refuse("certificate specifies an incompatible key usage"),
        _ => Ok(()),
    }
}

/// Checks that a certificate is valid for a host.
fn check_host(certificate: &Certificate, host: &ServerName<'_>) -> Result<(), Refusal> {
    let AlternativeNames { dns_names: names, addresses, .. } = &certificate.extensions.alternative_names;
    let shown = host.to_str();
    let valid = if let ServerName::IpAddress(address) = host {
        if addresses.contains(&IpAddr::from(*address)) {
            return Ok(());
        }
        if addresses.is_empty() {
            return refuse(format!("cannot validate certificate for {shown} because it doesn't contain any IP SANs"));
        }
        addresses.iter().map(ToString::to_string).collect()
    } else {
        if names.iter().any(|name| matches_host(name, &shown)) {
            return Ok(());
        }
        names.clone()
    };
    if valid.is_empty() {
        return refuse(format!("certificate is not valid for any names, but wanted to match {shown}"));
    }
    refuse(format!("certificate is valid for {}, not {shown}", valid.join(", ")))
}

/// Returns whether a name of a certificate, whose first label may be `*`, matches a host.
fn matches_host(name: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let (names, hosts): (Vec<_>, Vec<_>) = (name.split('.').collect(), host.split('.').collect());
    let matches = |(place, (name, host)): (usize, (&&str, &&str))| {
        !host.is_empty() && (place == 0 && *name == "*" || name.eq_ignore_ascii_case(host))
    };
    names.len() == hosts.len() && names.iter().zip(&hosts).enumerate().all(matches)
}

/// Returns the name of an authority in errors.
fn display_name(certificate: &Certificate) -> String {
    let attributes = certificate.subject_attributes().unwrap_or_default();
    let named = |kind: &[u64]| attributes.iter().find(|(found, _)| found == kind).map(|(_, value)| value.text());
    let name = named(COMMON_NAME).or_else(|| named(ORGANIZATION));
    name.map_or_else(|| format!("serial:{}", decimal(&certificate.serial)), str::to_owned)
}

/// Returns a number of any length in decimal.
fn decimal(bytes: &[u8]) -> String {
    // The digits, the lowest first.
    let mut digits = vec![0];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += *digit << 8;
            (*digit, carry) = (carry % 10, carry / 10);
        }
        while carry > 0 {
            digits.push(carry % 10);
            carry /= 10;
        }
    }
    digits.iter().rev().filter_map(|digit| char::from_digit(*digit, 10)).collect()
}

#[cfg(test)]
mod tests;
