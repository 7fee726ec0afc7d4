//! The identity of this server towards other API servers.

use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate_authority::distinguished_name;

/// The common name of the client certificate.
pub(crate) const CLIENT_NAME: &str = "front-proxy-client";

/// The certificate authority of the front proxy, which isn't that of users, and its client certificate. Generated when
/// first used, and never stored: the server publishes it at each start.
#[derive(Default)]
pub(crate) struct FrontProxy(OnceLock<Result<Identity, Error>>);

struct Identity {
    authority: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl FrontProxy {
    /// Returns the certificate of the authority, in PEM.
    pub(crate) fn authority(&self) -> Result<String, Error> {
        Ok(self.identity()?.authority.clone())
    }

    /// Returns the client certificate and its key.
    pub(super) fn client(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let Identity { certificate, key, .. } = self.identity()?;
        Ok((vec![certificate.clone()], PrivateKeyDer::Pkcs8(key.clone().into())))
    }

    fn identity(&self) -> Result<&Identity, Error> {
        self.0.get_or_init(Identity::generate).as_ref().map_err(Clone::clone)
    }
}

impl Identity {
    fn generate() -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = distinguished_name(&[(DnType::CommonName, "kubewright-front-proxy-ca")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.not_before = date_time_ymd(1970, 1, 1);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = distinguished_name(&[(DnType::CommonName, CLIENT_NAME)]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(1970, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.der().clone();
        Ok(Self { authority: issuer.pem(), certificate, key: key.serialize_der() })
    }
}
