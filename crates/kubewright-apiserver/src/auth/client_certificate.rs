//! Client certificates, and the users that they identify
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>).

use jiff::Timestamp;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::user::{AUTHENTICATED, CREDENTIAL_ID, UserInfo};
use crate::{
    certificate_verifier::{COMMON_NAME, CertificateVerifier, ORGANIZATION, Refusal},
    digest,
};

/// Authenticates clients by certificates of trusted authorities.
#[derive(Debug)]
pub(crate) struct ClientCertificates(CertificateVerifier);

impl ClientCertificates {
    /// Trusts the authorities in a text in PEM. What isn't a certificate is left out.
    pub(crate) fn new(authorities: &str) -> Self {
        let trusted = CertificateDer::pem_slice_iter(authorities.as_bytes()).filter_map(Result::ok);
        Self(CertificateVerifier::new(trusted, ring::default_provider().signature_verification_algorithms))
    }

    /// Returns whether no authority is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the user of a certificate, which comes with the certificates of intermediate authorities: its common
    /// name, in the groups of its organizations. The handshake must have verified that the peer holds the key.
    ///
    /// # Errors
    /// If no chain leads to a trusted authority, or the certificate has no common name.
    pub(crate) fn user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<UserInfo, Refusal> {
        let (leaf, intermediates) = chain.split_first().ok_or_else(|| Refusal::new("no certificate"))?;
        let certificate = self.0.verify_client(leaf, intermediates, now.as_second())?;
        let attributes = certificate.subject_attributes().unwrap_or_default();
        let values = |kind: &'static [u64]| {
            attributes.iter().filter(move |(found, _)| found == kind).map(|(_, value)| value.text().to_owned())
        };
        // Go keeps the last common name.
        let name = values(COMMON_NAME).next_back().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Refusal::new("the certificate has no common name"))?;
        let mut user = UserInfo::new(name, values(ORGANIZATION).chain([AUTHENTICATED.to_owned()]));
        user.extra.insert(CREDENTIAL_ID.into(), vec![credential_id(leaf)]);
        Ok(user)
    }
}

/// Returns the identity of a certificate in the attributes of its user.
fn credential_id(certificate: &CertificateDer<'_>) -> String {
    format!("X509SHA256={}", digest::hash(certificate).to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, DnValue,
        ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
    };

    use super::*;

    fn params(name: &str, organization: Option<&str>) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(organization) = organization {
            params
                .distinguished_name
                .push(DnType::OrganizationName, DnValue::PrintableString(organization.try_into().unwrap()));
        }
        (params.not_before, params.not_after) = (date_time_ymd(2023, 1, 1), date_time_ymd(2025, 1, 1));
        params
    }

    fn client(name: &str, organization: Option<&str>) -> CertificateParams {
        let mut params = params(name, organization);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    #[test]
    fn a_certificate_of_a_trusted_authority_identifies_its_user() {
        let mut authority = params("envtest-environment", Some("envtest"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let signed = |params: CertificateParams| {
            params.signed_by(&KeyPair::generate().unwrap(), &authority).unwrap().der().clone()
        };
        let certificates = ClientCertificates::new(&authority.pem());
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2024-01-01T00:00:00Z");

        let leaf = signed(client("alice", Some("system:masters")));
        let user = certificates.user(from_ref(&leaf), now).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("alice", &["system:masters".into(), AUTHENTICATED.into()][..])
        );
        assert_eq!(user.extra[CREDENTIAL_ID], [credential_id(&leaf)]);
        assert_eq!(certificates.user(&[signed(client("bob", None))], now).unwrap().groups, [AUTHENTICATED]);

        let refused = |chain: &[CertificateDer<'_>], now, expect: &str| {
            let why = certificates.user(chain, now).unwrap_err().to_string();
            assert!(why.contains(expect), "{why}");
        };
        refused(&[], now, "no certificate");
        refused(from_ref(&leaf), at("2026-01-01T00:00:00Z"), "expired");
        refused(&[signed(client("", None))], now, "no common name");
        let mut server = params("alice", None);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        refused(&[signed(server)], now, "incompatible key usage");
        let other = client("alice", None).self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        refused(&[other], now, "unknown authority");
    }
}
