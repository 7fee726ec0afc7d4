//! The content of a Secret with self-managed certificates, computed from its present content and the time, without I/O.
//!
//! An authority is valid for two years, a serving certificate for ninety days; each is renewed when a third of its
//! lifetime is left. A new authority is put before the old one, and signs no renewal for an hour, during which all
//! clients learn to trust it. The old one stays trusted until it expires, long after every certificate that it signed
//! has been replaced.
//!
//! Malformed, expired and foreign certificates are replaced at once. Known and valid authorities stay trusted, so that
//! clients still trust replicas that serve older certificates: those that this process has read, and those of ours that
//! clients trust now, also if the Secret was lost or replaced.

mod keys;

use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::certificate::Certificate;
use kubewright_connect::crypto_provider;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::{
    RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use time::OffsetDateTime;

pub use self::keys::KeySource;
pub(crate) use self::keys::Keys;
use super::{CertifiedKey, certificate};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(730 * 24);
const SERVING_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The tolerated clock skew: certificates are valid from this long before they are issued.
const BACKDATED: SignedDuration = HOUR;
/// The time for which a new authority is trusted before it signs.
const SETTLING: SignedDuration = HOUR;
/// What the names of authorities begin with.
const AUTHORITY_NAME: &str = "kubewright webhook authority";
/// The maximum number of trusted authorities. Usually there are two.
const MAX_AUTHORITIES: usize = 8;
/// The maximum number of names in a certificate. The names accumulate when replicas with different names alternate.
const MAX_NAMES: usize = 32;

/// The content of the Secret, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyMaterial {
    /// The trusted authorities. The first one signs.
    pub(crate) authorities: String,
    /// The key of the first authority.
    pub(crate) authority_key: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Omits the keys.
impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMaterial").finish_non_exhaustive()
    }
}

/// An authority's certificate.
#[derive(Clone, PartialEq)]
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Returns the new content of the Secret; `None` if the present content is up to date.
///
/// `known` is the last known content; `configured` are the authorities that clients trust now, in PEM; `names` are the
/// host names and addresses to serve; new keys are those of `keys`.
///
/// # Errors
/// If the system can't generate a key.
pub(crate) fn renewed(
    keys: &Keys,
    found: Option<&KeyMaterial>,
    known: Option<&KeyMaterial>,
    configured: &str,
    names: &[String],
    now: Timestamp,
) -> Result<Option<KeyMaterial>, rcgen::Error> {
    let mut trusted = trusted(found, known, configured, now);
    let held = found.or(known);
    let is_forgotten = trusted.len().min(MAX_AUTHORITIES) > self::trusted(held, None, "", now).len();
    let signing = held.and_then(|held| SigningAuthority::read(held, now));
    let served = held.and_then(|held| ServingCertificate::read(held, &trusted, now));
    let is_complete =
        served.as_ref().is_some_and(|served| names.iter().all(|name| served.names.contains(&plain(name))));
    let (signing, is_new) = match signing {
        Some(signing) if !is_due(signing.authority.not_before, AUTHORITY_LIFE, now) => (signing, false),
        _ => (SigningAuthority::make(keys, now)?, true),
    };
    let has_settled = now.duration_since(signing.authority.not_before) >= BACKDATED + SETTLING;
    let reissue = match &served {
        Some(served) if is_complete => is_due(served.not_before, SERVING_LIFE, now) && has_settled,
        _ => true,
    };
    if !is_new && !reissue && !is_forgotten {
        return Ok(found.is_none().then(|| held.cloned()).flatten());
    }
    trusted.retain(|authority| *authority != signing.authority);
    trusted.insert(0, signing.authority.clone());
    trusted.truncate(MAX_AUTHORITIES);
    let (certificate, key) = match held.filter(|_| !reissue) {
        Some(held) => (held.certificate.clone(), held.key.clone()),
        None => signing.issue(keys, &all_names(names, served.map(|served| served.names).unwrap_or_default()), now)?,
    };
    let authorities = trusted.iter().map(|authority| authority.pem.as_str()).collect();
    Ok(Some(KeyMaterial { authorities, authority_key: signing.key.serialize_pem(), certificate, key }))
}

/// Returns the valid authorities, with those in the Secret first.
fn trusted(
    found: Option<&KeyMaterial>,
    known: Option<&KeyMaterial>,
    configured: &str,
    now: Timestamp,
) -> Vec<Authority> {
    let mut trusted = Vec::new();
    let held = [found, known].into_iter().flatten().flat_map(|material| authorities(&material.authorities));
    for authority in held.chain(authorities(configured).into_iter().filter(is_ours)) {
        let is_new = trusted.iter().all(|other: &Authority| other.der != authority.der);
        if is_new && authority.not_after > now {
            trusted.push(authority);
        }
    }
    trusted
}

/// Returns whether an authority was made here. Clients may have trusted others, such as those of another issuer before.
fn is_ours(authority: &Authority) -> bool {
    let subject = Certificate::parse(&authority.der).and_then(|certificate| certificate::subject(&certificate));
    let name = subject.as_ref().and_then(|subject| subject.get(&DnType::CommonName));
    matches!(name, Some(DnValue::Utf8String(name)) if name.starts_with(AUTHORITY_NAME))
}

/// Parses the authorities in a bundle, and skips malformed ones.
fn authorities(bundle: &str) -> Vec<Authority> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END).take(2 * MAX_AUTHORITIES);
    parts
        .filter_map(|part| {
            let pem = format!("{}\n", part.trim());
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
            let parsed = Certificate::parse(&der)?;
            let Certificate { not_before, not_after, .. } = parsed;
            certificate::is_authority(&parsed).then_some(Authority { pem, der, not_before, not_after })
        })
        .collect()
}

/// Returns whether a certificate that is valid from `not_before` is due for renewal.
fn is_due(not_before: Timestamp, life: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(not_before) > BACKDATED + life * 2 / 3
}

/// An authority and its key.
struct SigningAuthority {
    authority: Authority,
    subject: DistinguishedName,
    key: KeyPair,
}

impl SigningAuthority {
    /// Parses the signing authority; `None` if it is incomplete or invalid.
    fn read(held: &KeyMaterial, now: Timestamp) -> Option<Self> {
        let authority = authorities(&held.authorities).into_iter().next()?;
        let key = KeyPair::from_pem(&held.authority_key).ok()?;
        let certificate = Certificate::parse(&authority.der)?;
        let is_its = certificate.public_key_info == key.subject_public_key_info();
        let is_valid = (authority.not_before..authority.not_after).contains(&now);
        let subject = certificate::subject(&certificate).filter(|_| is_its && is_valid)?;
        Some(Self { authority, subject, key })
    }

    fn make(keys: &Keys, now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        // Each has a distinct name, so that clients can distinguish them.
        params.distinguished_name = common_name(&format!("{AUTHORITY_NAME} {}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let (not_before, not_after) = (now - BACKDATED, now + AUTHORITY_LIFE);
        (params.not_before, params.not_after) = (date(not_before), date(not_after));
        let key = keys.next()?;
        let certificate = params.self_signed(&key)?;
        let (pem, der) = (certificate.pem().replace("\r\n", "\n"), certificate.der().clone());
        Ok(Self {
            authority: Authority { pem, der, not_before: second(not_before), not_after: second(not_after) },
            subject: params.distinguished_name,
            key,
        })
    }

    /// Issues a serving certificate and its key.
    fn issue(&self, keys: &Keys, names: &[String], now: Timestamp) -> Result<(String, String), rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("kubewright server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let end = (now + SERVING_LIFE).min(self.authority.not_after);
        (params.not_before, params.not_after) = (date(now - BACKDATED), date(end));
        let key = keys.next()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name = self.subject.clone();
        let issuer = Issuer::new(authority, &self.key);
        Ok((params.signed_by(&key, &issuer)?.pem().replace("\r\n", "\n"), key.serialize_pem()))
    }
}

/// A serving certificate that is valid and signed by a trusted authority.
struct ServingCertificate {
    names: BTreeSet<String>,
    not_before: Timestamp,
}

impl ServingCertificate {
    fn read(held: &KeyMaterial, trusted: &[Authority], now: Timestamp) -> Option<Self> {
        let key = CertifiedKey::read(held.certificate.as_bytes(), held.key.as_bytes()).ok()?;
        let der = key.certificate()?;
        let certificate = Certificate::parse(der)?;
        let (names, not_before) = (certificate::names(&certificate), certificate.not_before);
        (is_signed(der, trusted, now) && key.is_valid_at(now)).then_some(Self { names, not_before })
    }
}

/// Returns whether one of these authorities signed a serving certificate, which must be valid now.
fn is_signed(certificate: &CertificateDer<'_>, authorities: &[Authority], now: Timestamp) -> bool {
    let Ok(certificate) = ParsedCertificate::try_from(certificate) else { return false };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().map(|authority| authority.der.clone()));
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default()));
    let algorithms = crypto_provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], now, algorithms).is_ok()
}

/// Normalizes a name for comparison.
fn plain(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_owned(), |address| address.to_string())
}

/// Merges the wanted names with those in the present certificate, so that replicas of two versions don't remove each
/// other's names.
fn all_names(wanted: &[String], others: BTreeSet<String>) -> Vec<String> {
    let mut names: Vec<String> = wanted.iter().map(|name| plain(name)).collect();
    let room = MAX_NAMES.saturating_sub(names.len());
    let others: Vec<_> = others.into_iter().filter(|name| !names.contains(name)).take(room).collect();
    names.extend(others);
    names
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Truncates a time to whole seconds, as in X.509.
fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn date(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
