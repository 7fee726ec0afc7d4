//! Certificates to be issued.

use jiff::{Timestamp, tz::TimeZone};
use yasna::{
    DERWriter, Tag,
    models::{GeneralizedTime, ObjectIdentifier, UTCTime},
};

use super::{AlternativeNames, BASIC_CONSTRAINTS, EXTENDED_KEY_USAGE, EXTENSIONS, KEY_USAGE, SUBJECT_ALTERNATIVE_NAME};

/// The content of a certificate that an authority issues, which isn't an authority itself.
#[derive(Clone, Debug)]
pub struct CertificateTemplate {
    /// The serial number, big-endian.
    pub serial: Vec<u8>,
    /// The beginning of the validity period.
    pub not_before: Timestamp,
    /// The last second of the validity period.
    pub not_after: Timestamp,
    /// The `Name` of the holder, in DER.
    pub subject: Vec<u8>,
    /// The `SubjectPublicKeyInfo`, in DER.
    pub public_key_info: Vec<u8>,
    /// The usages of the key, by the numbers of their bits in `KeyUsage`: 0 is `digitalSignature`, 8 `decipherOnly`.
    /// Without any, they aren't restricted.
    pub key_usages: Vec<u8>,
    /// The purposes of the key as object identifiers. Without any, they aren't restricted.
    pub extended_key_usages: Vec<Vec<u64>>,
    /// The names besides the subject.
    pub alternative_names: AlternativeNames,
}

impl CertificateTemplate {
    /// Returns the certificate in DER, issued by the authority whose `Name` is `issuer` in DER. `sign` signs a text
    /// with the authority's key by `algorithm`, the content of an `AlgorithmIdentifier`.
    ///
    /// # Errors
    /// Those of `sign`.
    pub fn signed<E>(
        &self,
        issuer: &[u8],
        algorithm: &[u8],
        sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let signed = yasna::construct_der(|writer| self.write(issuer, algorithm, writer));
        let signature = sign(&signed)?;
        Ok(yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&signed);
                writer.next().write_sequence(|writer| writer.next().write_der(algorithm));
                writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
            });
        }))
    }

    /// Writes the `TBSCertificate`.
    fn write(&self, issuer: &[u8], algorithm: &[u8], writer: DERWriter<'_>) {
        writer.write_sequence(|writer| {
            // Version 3 is encoded as 2.
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&self.serial, true);
            writer.next().write_sequence(|writer| writer.next().write_der(algorithm));
            writer.next().write_der(issuer);
            writer.next().write_sequence(|writer| {
                write_time(self.not_before, writer.next());
                write_time(self.not_after, writer.next());
            });
            writer.next().write_der(&self.subject);
            writer.next().write_der(&self.public_key_info);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence_of(|writer| {
                    for (id, is_critical, value) in self.extensions() {
                        write_extension(id, is_critical, &value, writer.next());
                    }
                });
            });
        });
    }

    /// Returns the extensions: the last part of the identifier, whether it is critical, and the value in DER.
    fn extensions(&self) -> Vec<(u64, bool, Vec<u8>)> {
        let mut extensions = Vec::new();
        if !self.key_usages.is_empty() {
            extensions.push((KEY_USAGE, true, yasna::construct_der(|writer| write_bits(&self.key_usages, writer))));
        }
        if !self.extended_key_usages.is_empty() {
            let purposes = yasna::construct_der(|writer| {
                writer.write_sequence_of(|writer| {
                    for purpose in &self.extended_key_usages {
                        writer.next().write_oid(&ObjectIdentifier::from_slice(purpose));
                    }
                });
            });
            extensions.push((EXTENDED_KEY_USAGE, false, purposes));
        }
        // Not an authority, which is the default of the field.
        extensions.push((BASIC_CONSTRAINTS, true, yasna::construct_der(|writer| writer.write_sequence(|_| {}))));
        if !self.alternative_names.is_empty() {
            /// A `Name` without attributes.
            const EMPTY: &[u8] = &[0x30, 0];
            extensions.push((SUBJECT_ALTERNATIVE_NAME, self.subject == EMPTY, self.alternative_names.to_der()));
        }
        extensions
    }
}

fn write_extension(id: u64, is_critical: bool, value: &[u8], writer: DERWriter<'_>) {
    let id = ObjectIdentifier::from_slice(&[&EXTENSIONS[..], &[id]].concat());
    writer.write_sequence(|writer| {
        writer.next().write_oid(&id);
        if is_critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(value);
    });
}

/// Writes a list of bits by their numbers, without trailing zeros.
fn write_bits(bits: &[u8], writer: DERWriter<'_>) {
    let length = bits.iter().max().map_or(0, |last| usize::from(*last) + 1);
    let mut bytes = vec![0u8; length.div_ceil(8)];
    for bit in bits {
        // Bits are counted from the first byte's highest.
        bytes[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
    }
    writer.write_bitvec_bytes(&bytes, length);
}

/// Writes a time, as a `UTCTime` in the years that it can express.
fn write_time(time: Timestamp, writer: DERWriter<'_>) {
    let time = time.to_zoned(TimeZone::UTC);
    let short = UTCTime::parse(time.strftime("%y%m%d%H%M%SZ").to_string().as_bytes());
    if let Some(short) = short.filter(|_| (1950..2050).contains(&time.year())) {
        return writer.write_utctime(&short);
    }
    if let Some(long) = GeneralizedTime::parse(time.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()) {
        writer.write_generalized_time(&long);
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData, SigningKey};

    use super::{super::Certificate, *};

    #[test]
    fn a_signed_certificate_has_the_fields_of_its_template() {
        let key = KeyPair::generate().unwrap();
        let authority = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        let authority = Certificate::parse(authority.der()).unwrap();
        let template = CertificateTemplate {
            serial: vec![1, 0x80],
            not_before: "2026-01-02T03:04:05Z".parse().unwrap(),
            not_after: "2050-01-02T03:04:05Z".parse().unwrap(),
            subject: authority.subject.clone(),
            public_key_info: key.subject_public_key_info(),
            key_usages: vec![0, 5, 8],
            extended_key_usages: vec![vec![1, 3, 6, 1, 5, 5, 7, 3, 2]],
            alternative_names: AlternativeNames {
                dns_names: vec!["a.example.com".into()],
                emails: vec!["a@example.com".into()],
                addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
                uris: vec!["https://example.com/".into()],
            },
        };
        let der = template.signed(&authority.subject, &authority.signature_algorithm, |text| key.sign(text)).unwrap();
        let issued = Certificate::parse(&der).unwrap();
        assert_eq!((issued.version, issued.serial), (2, vec![1, 0x80]));
        assert_eq!((issued.not_before, issued.not_after), (template.not_before, template.not_after));
        assert_eq!((&issued.subject, &issued.issuer), (&template.subject, &authority.subject));
        assert_eq!(issued.public_key_info, template.public_key_info);
        let extensions = issued.extensions;
        assert_eq!(extensions.can_sign_certificates, Some(true));
        assert_eq!(extensions.extended_key_usage, Some(template.extended_key_usages));
        assert_eq!(extensions.basic_constraints, Some(Default::default()));
        assert_eq!(extensions.alternative_names, template.alternative_names);
    }
}
