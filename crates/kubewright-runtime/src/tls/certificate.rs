//! The fields of X.509 certificates (RFC 5280) that the runtime reads.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

use jiff::Timestamp;
use rcgen::{DistinguishedName, DnType, DnValue};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use yasna::{
    ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, Tag,
    tags::{TAG_IA5STRING, TAG_PRINTABLESTRING, TAG_UTCTIME, TAG_UTF8STRING},
};

/// The object identifiers of extensions.
const SUBJECT_ALTERNATIVE_NAME: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];

/// A parsed certificate.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// The `SubjectPublicKeyInfo` in DER.
    pub(super) public_key: Vec<u8>,
    /// The host names and addresses.
    pub(super) names: BTreeSet<String>,
    pub(super) is_authority: bool,
    subject: Vec<u8>,
}

impl Certificate {
    /// Parses a certificate without verifying its signature; `None` if it is malformed.
    pub(super) fn parse(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = yasna::parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                let certificate = to_be_signed(reader.next())?;
                // The algorithm and the value of the signature.
                reader.next().read_der()?;
                reader.next().read_der()?;
                Ok(certificate)
            })
        });
        certificate.ok()
    }

    /// Returns the subject; `None` if it has a string type other than UTF-8, printable and IA5.
    pub(super) fn subject(&self) -> Option<DistinguishedName> {
        let mut subject = DistinguishedName::new();
        let parsed = yasna::parse_der(&self.subject, |reader| {
            reader.read_sequence_of(|reader| {
                reader.read_set_of(|reader| {
                    let (kind, value) =
                        reader.read_sequence(|reader| Ok((reader.next().read_oid()?, dn_value(reader.next())?)))?;
                    subject.push(DnType::from_oid(kind.components()), value);
                    Ok(())
                })
            })
        });
        parsed.ok().map(|()| subject)
    }
}

fn to_be_signed(reader: BERReader<'_, '_>) -> ASN1Result<Certificate> {
    reader.read_sequence(|reader| {
        // The version.
        reader.read_optional(|reader| reader.read_tagged(Tag::context(0), |reader| reader.read_der()))?;
        // The serial number, the signature's algorithm and the issuer.
        for _ in 0..3 {
            reader.next().read_der()?;
        }
        let (not_before, not_after) =
            reader.next().read_sequence(|reader| Ok((time(reader.next())?, time(reader.next())?)))?;
        let subject = reader.next().read_der()?;
        let public_key = reader.next().read_der()?;
        // Unique identifiers of version 2.
        for number in [1, 2] {
            reader.read_optional(|reader| {
                reader.read_tagged_implicit(Tag::context(number), |reader| reader.read_bitvec_bytes())
            })?;
        }
        let (names, is_authority) = extensions(reader)?;
        Ok(Certificate { not_before, not_after, public_key, names, is_authority, subject })
    })
}

/// Reads the alternative names, and whether the certificate is an authority's. Malformed extensions count as absent.
fn extensions(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<(BTreeSet<String>, bool)> {
    let (mut names, mut is_authority) = (BTreeSet::new(), false);
    let extension = |reader: BERReader<'_, '_>| {
        let (id, value) = reader.read_sequence(|reader| {
            let id = reader.next().read_oid()?;
            // Whether the extension is critical.
            reader.read_optional(|reader| reader.read_bool())?;
            Ok((id, reader.next().read_bytes()?))
        })?;
        match id.components().as_slice() {
            SUBJECT_ALTERNATIVE_NAME => names = alternative_names(&value).unwrap_or_default(),
            BASIC_CONSTRAINTS => is_authority = basic_constraints(&value).unwrap_or_default(),
            _ => {}
        }
        Ok(())
    };
    reader.read_optional(|reader| reader.read_tagged(Tag::context(3), |reader| reader.read_sequence_of(extension)))?;
    Ok((names, is_authority))
}

fn alternative_names(der: &[u8]) -> ASN1Result<BTreeSet<String>> {
    let (dns, address) = (Tag::context(2), Tag::context(7));
    let mut names = BTreeSet::new();
    yasna::parse_der(der, |reader| {
        reader.read_sequence_of(|reader| {
            let tag = reader.lookahead_tag()?;
            if tag == dns {
                names.insert(reader.read_tagged_implicit(dns, |reader| reader.read_ia5_string())?);
            } else if tag == address {
                let bytes = reader.read_tagged_implicit(address, |reader| reader.read_bytes())?;
                if let Ok(bytes) = <[u8; 4]>::try_from(&*bytes) {
                    names.insert(Ipv4Addr::from(bytes).to_string());
                } else if let Ok(bytes) = <[u8; 16]>::try_from(&*bytes) {
                    names.insert(Ipv6Addr::from(bytes).to_string());
                }
            } else {
                reader.read_der()?;
            }
            Ok(())
        })
    })?;
    Ok(names)
}

fn basic_constraints(der: &[u8]) -> ASN1Result<bool> {
    yasna::parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            let is_authority = reader.read_optional(|reader| reader.read_bool())?;
            // The maximum number of intermediate certificates.
            reader.read_optional(|reader| reader.read_u64())?;
            Ok(is_authority.unwrap_or_default())
        })
    })
}

fn time(reader: BERReader<'_, '_>) -> ASN1Result<Timestamp> {
    let time: OffsetDateTime = if reader.lookahead_tag()? == TAG_UTCTIME {
        *reader.read_utctime()?.datetime()
    } else {
        *reader.read_generalized_time()?.datetime()
    };
    Timestamp::from_second(time.unix_timestamp()).map_err(|_| ASN1Error::new(ASN1ErrorKind::Invalid))
}

fn dn_value(reader: BERReader<'_, '_>) -> ASN1Result<DnValue> {
    let invalid = || ASN1Error::new(ASN1ErrorKind::Invalid);
    let tag = reader.lookahead_tag()?;
    if tag == TAG_UTF8STRING {
        reader.read_utf8string().map(DnValue::Utf8String)
    } else if tag == TAG_PRINTABLESTRING {
        let text = reader.read_printable_string()?;
        text.try_into().map(DnValue::PrintableString).map_err(|_| invalid())
    } else if tag == TAG_IA5STRING {
        let text = reader.read_ia5_string()?;
        text.try_into().map(DnValue::Ia5String).map_err(|_| invalid())
    } else {
        Err(invalid())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PublicKeyData};

    use super::*;

    fn parse(params: &CertificateParams, key: &KeyPair) -> Certificate {
        Certificate::parse(params.self_signed(key).unwrap().der()).expect("a certificate")
    }

    #[test]
    fn fields_are_read() {
        let names = ["hook.default.svc", "127.0.0.1", "::1"].map(String::from);
        let mut params = CertificateParams::new(names.clone()).unwrap();
        // Years as of 2050 have another form.
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2026, 1, 30), rcgen::date_time_ymd(2050, 1, 1));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        params.distinguished_name.push(DnType::CommonName, "ünder");
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 1]), "other");
        let key = KeyPair::generate().unwrap();
        let certificate = parse(&params, &key);
        assert_eq!(certificate.names, BTreeSet::from(names));
        assert_eq!(certificate.not_before.to_string(), "2026-01-30T00:00:00Z");
        assert_eq!(certificate.not_after.to_string(), "2050-01-01T00:00:00Z");
        assert_eq!(certificate.public_key, key.subject_public_key_info());
        assert_eq!(certificate.subject(), Some(params.distinguished_name.clone()));
        assert!(!certificate.is_authority);
        for constraints in [BasicConstraints::Unconstrained, BasicConstraints::Constrained(3)] {
            params.is_ca = IsCa::Ca(constraints);
            assert!(parse(&params, &key).is_authority);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        assert!(!parse(&params, &key).is_authority);
    }

    #[test]
    fn malformed_certificates_are_refused() {
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for length in 0..der.len() {
            assert!(Certificate::parse(&der[..length].into()).is_none(), "{length} of {} bytes", der.len());
        }
        // Any byte may be changed without a panic.
        for index in 0..der.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = der.clone();
                changed[index] ^= change;
                if let Some(certificate) = Certificate::parse(&changed.into()) {
                    let _ = certificate.subject();
                }
            }
        }
    }
}
