//! X.509 certificates ([RFC 5280](https://www.rfc-editor.org/rfc/rfc5280)) and requests for them: their fields, without
//! any verification.

mod names;
mod request;
mod template;

use std::collections::BTreeSet;

use jiff::Timestamp;
use yasna::{
    ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, Tag,
    tags::{TAG_IA5STRING, TAG_PRINTABLESTRING, TAG_UTCTIME, TAG_UTF8STRING},
};

pub use self::{names::AlternativeNames, request::CertificateRequest, template::CertificateTemplate};

/// The identifiers of extensions: `2.5.29` and this number.
const EXTENSIONS: [u64; 3] = [2, 5, 29];
const SUBJECT_KEY_IDENTIFIER: u64 = 14;
const KEY_USAGE: u64 = 15;
const SUBJECT_ALTERNATIVE_NAME: u64 = 17;
const BASIC_CONSTRAINTS: u64 = 19;
const NAME_CONSTRAINTS: u64 = 30;
const CERTIFICATE_POLICIES: u64 = 32;
const AUTHORITY_KEY_IDENTIFIER: u64 = 35;
const EXTENDED_KEY_USAGE: u64 = 37;

/// A parsed certificate. Names, algorithms and keys are kept in DER.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// What the authority signed: the `TBSCertificate`.
    pub signed: Vec<u8>,
    /// The algorithm of the signature: the content of an `AlgorithmIdentifier`.
    pub signature_algorithm: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
    /// The version, as it is encoded: 0 is version 1, 2 is version 3, the first with extensions.
    pub version: u64,
    /// The serial number, big-endian.
    pub serial: Vec<u8>,
    /// The `Name` of the authority.
    pub issuer: Vec<u8>,
    /// The beginning of the validity period.
    pub not_before: Timestamp,
    /// The last second of the validity period.
    pub not_after: Timestamp,
    /// The `Name` of the holder.
    pub subject: Vec<u8>,
    /// The `SubjectPublicKeyInfo`.
    pub public_key_info: Vec<u8>,
    /// The algorithm of the public key: the content of an `AlgorithmIdentifier`.
    pub key_algorithm: Vec<u8>,
    /// The public key, without its algorithm.
    pub public_key: Vec<u8>,
    /// The extensions.
    pub extensions: Extensions,
}

/// The extensions of a certificate.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    /// The basic constraints.
    pub basic_constraints: Option<BasicConstraints>,
    /// Whether the key may sign certificates; `None` if the certificate doesn't restrict the usages.
    pub can_sign_certificates: Option<bool>,
    /// The purposes of the key as object identifiers; `None` if the certificate doesn't restrict them.
    pub extended_key_usage: Option<Vec<Vec<u64>>>,
    /// The names for which the certificate is valid besides the subject.
    pub alternative_names: AlternativeNames,
    /// Whether names of certificates below this authority are constrained.
    pub has_name_constraints: bool,
    /// Whether there is a critical extension other than those above, key identifiers and policies.
    pub has_unknown_critical: bool,
}

/// The constraints of authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasicConstraints {
    /// Whether the holder is an authority.
    pub is_authority: bool,
    /// The maximum number of authorities below this one in a chain.
    pub path_length: Option<u64>,
}

/// An attribute of a name: its type and its value.
pub type NameAttribute = (Vec<u64>, NameValue);

/// The value of an attribute of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameValue {
    /// A `UTF8String`.
    Utf8(String),
    /// A `PrintableString`.
    Printable(String),
    /// An `IA5String`.
    Ia5(String),
}

impl NameValue {
    /// Returns the text.
    pub fn text(&self) -> &str {
        match self {
            Self::Utf8(text) | Self::Printable(text) | Self::Ia5(text) => text,
        }
    }
}

impl Certificate {
    /// Parses a certificate in DER; `None` if it or one of its known extensions is malformed.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let parsed = yasna::parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                let signed = reader.next().read_der()?;
                Ok((signed, algorithm(reader.next())?, reader.next().read_bitvec_bytes()?))
            })
        });
        let (signed, signature_algorithm, (signature, _)) = parsed.ok()?;
        let empty = Self {
            signed: Vec::new(),
            signature_algorithm,
            signature,
            version: 0,
            serial: Vec::new(),
            issuer: Vec::new(),
            not_before: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::UNIX_EPOCH,
            subject: Vec::new(),
            public_key_info: Vec::new(),
            key_algorithm: Vec::new(),
            public_key: Vec::new(),
            extensions: Extensions::default(),
        };
        let certificate = yasna::parse_der(&signed, |reader| reader.read_sequence(|reader| empty.with_fields(reader)));
        Some(Self { signed, ..certificate.ok()? })
    }

    /// Reads the fields of a `TBSCertificate`.
    fn with_fields(mut self, reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Self> {
        let version = reader.read_optional(|reader| reader.read_tagged(Tag::context(0), |reader| reader.read_u64()))?;
        self.version = version.unwrap_or_default();
        self.serial = reader.next().read_bigint_bytes()?.0;
        // The algorithm is repeated, so that the signature covers it.
        if algorithm(reader.next())? != self.signature_algorithm {
            return Err(invalid());
        }
        self.issuer = reader.next().read_der()?;
        (self.not_before, self.not_after) =
            reader.next().read_sequence(|reader| Ok((time(reader.next())?, time(reader.next())?)))?;
        self.subject = reader.next().read_der()?;
        self.public_key_info = reader.next().read_der()?;
        (self.key_algorithm, self.public_key) = yasna::parse_der(&self.public_key_info, |reader| {
            reader.read_sequence(|reader| Ok((algorithm(reader.next())?, reader.next().read_bitvec_bytes()?.0)))
        })?;
        // Unique identifiers of version 2.
        for number in [1, 2] {
            reader.read_optional(|reader| {
                reader.read_tagged_implicit(Tag::context(number), |reader| reader.read_bitvec_bytes())
            })?;
        }
        let mut seen = BTreeSet::new();
        reader.read_optional(|reader| {
            reader.read_tagged(Tag::context(3), |reader| {
                reader.read_sequence_of(|reader| self.extensions.read(reader, &mut seen))
            })
        })?;
        Ok(self)
    }

    /// Returns the attributes of the subject; `None` if it has a string type other than UTF-8, printable and IA5.
    pub fn subject_attributes(&self) -> Option<Vec<NameAttribute>> {
        name_attributes(&self.subject)
    }
}

/// Returns the attributes of a `Name` in DER.
fn name_attributes(name: &[u8]) -> Option<Vec<NameAttribute>> {
    let mut attributes = Vec::new();
    let parsed = yasna::parse_der(name, |reader| {
        reader.read_sequence_of(|reader| {
            reader.read_set_of(|reader| {
                attributes.push(reader.read_sequence(|reader| {
                    Ok((reader.next().read_oid()?.components().clone(), name_value(reader.next())?))
                })?);
                Ok(())
            })
        })
    });
    parsed.ok().map(|()| attributes)
}

impl Extensions {
    /// Reads one extension. None may occur twice.
    fn read(&mut self, reader: BERReader<'_, '_>, seen: &mut BTreeSet<Vec<u64>>) -> ASN1Result<()> {
        let (id, is_critical, value) = extension(reader)?;
        match id.strip_prefix(&EXTENSIONS) {
            Some([KEY_USAGE]) => self.can_sign_certificates = Some(can_sign_certificates(&value)?),
            Some([SUBJECT_ALTERNATIVE_NAME]) => self.alternative_names = AlternativeNames::parse(&value)?,
            Some([BASIC_CONSTRAINTS]) => self.basic_constraints = Some(basic_constraints(&value)?),
            Some([EXTENDED_KEY_USAGE]) => self.extended_key_usage = Some(purposes(&value)?),
            Some([NAME_CONSTRAINTS]) => {
                self.has_name_constraints = true;
                self.has_unknown_critical |= is_critical;
            }
            Some([SUBJECT_KEY_IDENTIFIER | AUTHORITY_KEY_IDENTIFIER | CERTIFICATE_POLICIES]) => {}
            _ => self.has_unknown_critical |= is_critical,
        }
        if seen.insert(id) { Ok(()) } else { Err(invalid()) }
    }
}

fn invalid() -> ASN1Error {
    ASN1Error::new(ASN1ErrorKind::Invalid)
}

/// Reads an extension: its identifier, whether it is critical, and its value in DER.
fn extension(reader: BERReader<'_, '_>) -> ASN1Result<(Vec<u64>, bool, Vec<u8>)> {
    reader.read_sequence(|reader| {
        let id = reader.next().read_oid()?.components().clone();
        let is_critical = reader.read_optional(|reader| reader.read_bool())?.unwrap_or_default();
        Ok((id, is_critical, reader.next().read_bytes()?))
    })
}

/// Reads the content of an `AlgorithmIdentifier`: an identifier and its optional parameters.
fn algorithm(reader: BERReader<'_, '_>) -> ASN1Result<Vec<u8>> {
    reader.read_sequence(|reader| {
        let mut content = reader.next().read_der()?;
        content.extend(reader.read_optional(|reader| reader.read_der())?.unwrap_or_default());
        Ok(content)
    })
}

fn basic_constraints(der: &[u8]) -> ASN1Result<BasicConstraints> {
    yasna::parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            let is_authority = reader.read_optional(|reader| reader.read_bool())?.unwrap_or_default();
            Ok(BasicConstraints { is_authority, path_length: reader.read_optional(|reader| reader.read_u64())? })
        })
    })
}

fn can_sign_certificates(der: &[u8]) -> ASN1Result<bool> {
    // Bit 5, counted from the first byte's highest.
    let (bits, _) = yasna::parse_der(der, |reader| reader.read_bitvec_bytes())?;
    Ok(bits.first().is_some_and(|byte| byte & 0b100 != 0))
}

fn purposes(der: &[u8]) -> ASN1Result<Vec<Vec<u64>>> {
    yasna::parse_der(der, |reader| reader.collect_sequence_of(|reader| Ok(reader.read_oid()?.components().clone())))
}

fn time(reader: BERReader<'_, '_>) -> ASN1Result<Timestamp> {
    let second = if reader.lookahead_tag()? == TAG_UTCTIME {
        reader.read_utctime()?.datetime().unix_timestamp()
    } else {
        reader.read_generalized_time()?.datetime().unix_timestamp()
    };
    Timestamp::from_second(second).map_err(|_| invalid())
}

fn name_value(reader: BERReader<'_, '_>) -> ASN1Result<NameValue> {
    let tag = reader.lookahead_tag()?;
    if tag == TAG_UTF8STRING {
        reader.read_utf8string().map(NameValue::Utf8)
    } else if tag == TAG_PRINTABLESTRING {
        reader.read_printable_string().map(NameValue::Printable)
    } else if tag == TAG_IA5STRING {
        reader.read_ia5_string().map(NameValue::Ia5)
    } else {
        Err(invalid())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints as IssuedConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue,
        ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
    };

    use super::*;

    fn parse(params: &CertificateParams, key: &KeyPair) -> Option<Certificate> {
        Certificate::parse(params.self_signed(key).unwrap().der())
    }

    #[test]
    fn fields_are_read() {
        let names = ["hook.default.svc", "127.0.0.1", "*.example.com", "::1"].map(String::from);
        let mut params = CertificateParams::new(names).unwrap();
        // Years as of 2050 have another form.
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2026, 1, 30), rcgen::date_time_ymd(2050, 1, 1));
        params.serial_number = Some(SerialNumber::from(300u64));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        params.distinguished_name.push(DnType::CommonName, "ünder");
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 1]), "other");
        let key = KeyPair::generate().unwrap();
        let certificate = parse(&params, &key).unwrap();
        let names = &certificate.extensions.alternative_names;
        assert_eq!(names.dns_names, ["hook.default.svc", "*.example.com"]);
        let addresses = names.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses, ["127.0.0.1", "::1"]);
        assert_eq!(certificate.not_before.to_string(), "2026-01-30T00:00:00Z");
        assert_eq!(certificate.not_after.to_string(), "2050-01-01T00:00:00Z");
        assert_eq!((certificate.version, &*certificate.serial), (2, &[1, 44][..]));
        assert_eq!(certificate.public_key_info, key.subject_public_key_info());
        assert_eq!(certificate.public_key, key.public_key_raw());
        assert_eq!(certificate.issuer, certificate.subject);
        let attributes = certificate.subject_attributes().unwrap();
        let texts: Vec<_> = attributes.iter().map(|(kind, value)| (kind.as_slice(), value.text())).collect();
        let kinds: [&[u64]; 3] = [&[2, 5, 4, 6], &[2, 5, 4, 3], &[1, 3, 6, 1, 4, 1, 1]];
        assert_eq!(texts, [(kinds[0], "DE"), (kinds[1], "ünder"), (kinds[2], "other")]);
    }

    #[test]
    fn extensions_are_read() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let none = parse(&params, &key).unwrap().extensions;
        assert_eq!((none.basic_constraints, none.can_sign_certificates, none.extended_key_usage), (None, None, None));
        assert!(!none.has_unknown_critical && !none.has_name_constraints);
        for (constraints, path_length) in
            [(IssuedConstraints::Unconstrained, None), (IssuedConstraints::Constrained(3), Some(3))]
        {
            params.is_ca = IsCa::Ca(constraints);
            let expected = BasicConstraints { is_authority: true, path_length };
            assert_eq!(parse(&params, &key).unwrap().extensions.basic_constraints, Some(expected));
        }
        params.is_ca = IsCa::ExplicitNoCa;
        assert_eq!(parse(&params, &key).unwrap().extensions.basic_constraints, Some(BasicConstraints::default()));
        for (usage, can_sign) in [(KeyUsagePurpose::KeyCertSign, true), (KeyUsagePurpose::DigitalSignature, false)] {
            params.key_usages = vec![usage];
            assert_eq!(parse(&params, &key).unwrap().extensions.can_sign_certificates, Some(can_sign));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let purposes = parse(&params, &key).unwrap().extensions.extended_key_usage.unwrap();
        assert_eq!(purposes, [[1, 3, 6, 1, 5, 5, 7, 3, 1]]);
    }

    #[test]
    fn unknown_extensions_may_not_be_critical_and_known_ones_not_malformed() {
        let key = KeyPair::generate().unwrap();
        let with = |ids: &[&[u64]], is_critical| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            for id in ids {
                let mut extension = CustomExtension::from_oid_content(id, vec![1, 2, 3]);
                extension.set_criticality(is_critical);
                params.custom_extensions.push(extension);
            }
            parse(&params, &key)
        };
        let (unknown, names): (&[u64], &[u64]) = (&[1, 3, 6, 1, 4, 1, 1], &[2, 5, 29, 17]);
        assert!(!with(&[unknown], false).unwrap().extensions.has_unknown_critical);
        assert!(with(&[unknown], true).unwrap().extensions.has_unknown_critical);
        assert!(with(&[&[2, 5, 29, 30]], true).unwrap().extensions.has_name_constraints);
        assert!(with(&[names], false).is_none(), "malformed");
        assert!(with(&[unknown, unknown], false).is_none(), "twice");
    }

    #[test]
    fn malformed_certificates_are_refused() {
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        for length in 0..der.len() {
            assert!(Certificate::parse(&der[..length]).is_none(), "{length} of {} bytes", der.len());
        }
        // Any byte may be changed without a panic.
        for index in 0..der.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = der.clone();
                changed[index] ^= change;
                if let Some(certificate) = Certificate::parse(&changed) {
                    let _ = certificate.subject_attributes();
                }
            }
        }
    }
}
