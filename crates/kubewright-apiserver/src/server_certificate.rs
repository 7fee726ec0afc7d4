//! Verification of the certificates of webhook servers, by the rules of Go's `crypto/x509`, which kube-apiserver uses.
//!
//! Webhook servers run with certificates of many origins. Go accepts some that `rustls-webpki` refuses: a certificate
//! that is its own authority (as `openssl req -x509` makes them), and one that the CA bundle itself contains. The
//! signatures are verified by `x509-parser` and `ring`. Name constraints aren't evaluated: a chain with an authority
//! that has them is refused.
//!
//! Errors have Go's wording, since users search for it.

use std::{error::Error, fmt, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use rustls::{
    CertificateError, DigitallySignedStruct, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    oid_registry::{
        OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519,
    },
    prelude::{FromDer, X509Certificate},
};

/// The maximum number of signatures that the verification of one certificate checks, as in Go.
const MAX_SIGNATURES: usize = 100;

/// Verifies the certificates of servers against a list of trusted certificates.
#[derive(Debug)]
pub(crate) struct ServerCertificateVerifier {
    trusted: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertificateVerifier {
    /// Creates a verifier that trusts these certificates, except for those that aren't certificates.
    pub(crate) fn new(
        trusted: impl IntoIterator<Item = CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        let trusted = trusted.into_iter().filter(|der| parse(der).is_some()).collect();
        Self { trusted, algorithms }
    }

    /// Returns whether no certificate is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: i64,
    ) -> Result<(), Refusal> {
        let malformed = || Refusal("malformed certificate".to_owned());
        let certificate = parse(leaf).ok_or_else(malformed)?;
        check_certificate(&certificate, now)?;
        check_host(&certificate, host)?;
        if self.trusted.iter().any(|trusted| trusted.as_ref() == leaf.as_ref()) {
            return check_usage(&certificate);
        }
        let trusted: Vec<_> = self.trusted.iter().filter_map(|der| parse(der)).collect();
        let others: Vec<_> = intermediates.iter().filter_map(|der| parse(der)).collect();
        let mut search = Search { trusted: &trusted, others: &others, now, signatures: 0, hint: None, usage: None };
        if search.is_trusted(&mut vec![&certificate]) {
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
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x509: {}", self.0)
    }
}

impl Error for Refusal {}

/// The search for a chain from a certificate to a trusted one.
struct Search<'a> {
    trusted: &'a [X509Certificate<'a>],
    others: &'a [X509Certificate<'a>],
    now: i64,
    /// The number of signatures checked.
    signatures: usize,
    /// The reason why the first candidate wasn't the authority, and its name.
    hint: Option<(Refusal, String)>,
    /// The reason why a complete chain isn't for servers.
    usage: Option<Refusal>,
}

impl<'a> Search<'a> {
    /// Returns whether a chain, which begins with the certificate of the server, can be continued to a trusted one.
    fn is_trusted(&mut self, chain: &mut Vec<&'a X509Certificate<'a>>) -> bool {
        let Some(last) = chain.last().copied() else { return false };
        let (trusted, others) = (self.trusted, self.others);
        let is_issuer = |other: &&X509Certificate<'_>| other.subject().as_raw() == last.issuer().as_raw();
        for candidate in trusted.iter().filter(is_issuer) {
            if self.can_continue(chain, candidate) {
                chain.push(candidate);
                match chain.iter().try_for_each(|certificate| check_usage(certificate)) {
                    Ok(()) => return true,
                    Err(why) => self.usage = Some(why),
                }
                chain.pop();
            }
        }
        for candidate in others.iter().filter(is_issuer) {
            // A chain contains no certificate twice, so the search ends.
            let is_used = chain.iter().any(|used| used.tbs_certificate.as_ref() == candidate.tbs_certificate.as_ref());
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
    fn can_continue(&mut self, chain: &[&X509Certificate<'_>], candidate: &X509Certificate<'_>) -> bool {
        let Some(last) = chain.last() else { return false };
        self.signatures += 1;
        if self.signatures > MAX_SIGNATURES {
            return false;
        }
        let result = check_authority(candidate, chain.len() - 1)
            .and_then(|()| check_signature(last, candidate))
            .and_then(|()| check_certificate(candidate, self.now));
        if let Err(why) = &result
            && self.hint.is_none()
        {
            self.hint = Some((why.clone(), display_name(candidate)));
        }
        result.is_ok()
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, certificate)| certificate)
}

fn refuse(why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal(why.into()))
}

/// Checks the validity period and the critical extensions.
fn check_certificate(certificate: &X509Certificate<'_>, now: i64) -> Result<(), Refusal> {
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
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
    for extension in certificate.extensions().iter().filter(|extension| extension.critical) {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_)
            | ParsedExtension::AuthorityKeyIdentifier(_)
            | ParsedExtension::SubjectKeyIdentifier(_)
            | ParsedExtension::CertificatePolicies(_) => {}
            _ => return refuse("unhandled critical extension"),
        }
    }
    Ok(())
}

/// Checks that a certificate is of an authority with at most this number of authorities below it.
fn check_authority(certificate: &X509Certificate<'_>, below: usize) -> Result<(), Refusal> {
    let cannot_sign = "invalid signature: parent certificate cannot sign this kind of certificate";
    let constraints = certificate.basic_constraints().map_err(|_| Refusal("invalid basic constraints".to_owned()))?;
    match constraints.map(|constraints| constraints.value) {
        // Certificates of the first versions have no extensions.
        None if certificate.version().0 < 2 => {}
        Some(constraints) if constraints.ca => {
            if constraints.path_len_constraint.is_some_and(|most| usize::try_from(most).is_ok_and(|most| below > most))
            {
                return refuse("too many intermediates for path length constraint");
            }
        }
        _ => return refuse(cannot_sign),
    }
    let usage = certificate.key_usage().map_err(|_| Refusal("invalid key usage".to_owned()))?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return refuse(cannot_sign);
    }
    if !matches!(certificate.name_constraints(), Ok(None)) {
        return refuse("name constraints of authorities are not supported");
    }
    Ok(())
}

/// Checks that an authority signed a certificate.
fn check_signature(certificate: &X509Certificate<'_>, authority: &X509Certificate<'_>) -> Result<(), Refusal> {
    let algorithm = &certificate.signature_algorithm.algorithm;
    if [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(algorithm) {
        return refuse("cannot verify signature: insecure algorithm SHA1-RSA");
    }
    certificate.verify_signature(Some(authority.public_key())).map_err(|_| {
        let why = if [OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384].contains(algorithm) {
            "ECDSA verification failure"
        } else if *algorithm == OID_SIG_ED25519 {
            "Ed25519 verification failure"
        } else {
            "RSA verification failure"
        };
        Refusal(why.to_owned())
    })
}

/// Checks that a certificate may be used for servers. An authority without usages may sign for all of them.
fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), Refusal> {
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.any || usage.value.server_auth => Ok(()),
        _ => refuse("certificate specifies an incompatible key usage"),
    }
}

/// Checks that a certificate is valid for a host.
fn check_host(certificate: &X509Certificate<'_>, host: &ServerName<'_>) -> Result<(), Refusal> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let shown = host.to_str();
    let valid = if let ServerName::IpAddress(address) = host {
        let address = IpAddr::from(*address);
        let addresses: Vec<_> = names.iter().filter_map(address_of).collect();
        if addresses.contains(&address) {
            return Ok(());
        }
        if addresses.is_empty() {
            return refuse(format!("cannot validate certificate for {shown} because it doesn't contain any IP SANs"));
        }
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    } else {
        let names: Vec<_> = names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            })
            .collect();
        if names.iter().any(|name| matches_host(name, &shown)) {
            return Ok(());
        }
        names
    };
    if valid.is_empty() {
        return refuse(format!("certificate is not valid for any names, but wanted to match {shown}"));
    }
    refuse(format!("certificate is valid for {}, not {shown}", valid.join(", ")))
}

fn address_of(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    <[u8; 4]>::try_from(*bytes).map(IpAddr::from).ok().or_else(|| <[u8; 16]>::try_from(*bytes).map(IpAddr::from).ok())
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
fn display_name(certificate: &X509Certificate<'_>) -> String {
    let subject = certificate.subject();
    let name = subject.iter_common_name().chain(subject.iter_organization()).find_map(|name| name.as_str().ok());
    name.map_or_else(|| format!("serial:{}", certificate.serial), str::to_owned)
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        match self.verify(end_entity, intermediates, server_name, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(refusal) => Err(CertificateError::Other(OtherError(Arc::new(refusal))).into()),
        }
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

#[cfg(test)]
mod tests;
