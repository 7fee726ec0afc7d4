//! Requests for certificates ([RFC 2986](https://www.rfc-editor.org/rfc/rfc2986)).

use std::collections::BTreeSet;

use yasna::{ASN1Result, Tag};

use super::{
    AlternativeNames, EXTENSIONS, NameAttribute, SUBJECT_ALTERNATIVE_NAME, algorithm, extension, invalid,
    name_attributes,
};

/// The identifier of the attribute with the extensions that the certificate should have.
const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113549, 1, 9, 14];

/// A parsed request for a certificate. The name, algorithms and the key are kept in DER.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// What the requester signed: the `CertificationRequestInfo`.
    pub signed: Vec<u8>,
    /// The algorithm of the signature: the content of an `AlgorithmIdentifier`.
    pub signature_algorithm: Vec<u8>,
    /// The signature, by the key for which the certificate is requested.
    pub signature: Vec<u8>,
    /// The `Name` of the requester.
    pub subject: Vec<u8>,
    /// The `SubjectPublicKeyInfo`.
    pub public_key_info: Vec<u8>,
    /// The algorithm of the public key: the content of an `AlgorithmIdentifier`.
    pub key_algorithm: Vec<u8>,
    /// The public key, without its algorithm.
    pub public_key: Vec<u8>,
    /// The requested names besides the subject.
    pub alternative_names: AlternativeNames,
}

impl CertificateRequest {
    /// Parses a request in DER; `None` if it is malformed.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (signed, signature_algorithm, (signature, _)) = yasna::parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                let signed = reader.next().read_der()?;
                Ok((signed, algorithm(reader.next())?, reader.next().read_bitvec_bytes()?))
            })
        })
        .ok()?;
        let (subject, public_key_info, attributes) = yasna::parse_der(&signed, |reader| {
            reader.read_sequence(|reader| {
                reader.next().read_u64()?;
                let (subject, key) = (reader.next().read_der()?, reader.next().read_der()?);
                Ok((subject, key, reader.read_optional(|reader| reader.read_der())?))
            })
        })
        .ok()?;
        let (key_algorithm, public_key) = yasna::parse_der(&public_key_info, |reader| {
            reader.read_sequence(|reader| Ok((algorithm(reader.next())?, reader.next().read_bitvec_bytes()?.0)))
        })
        .ok()?;
        let alternative_names = attributes.map_or_else(|| Ok(AlternativeNames::default()), |der| requested_names(&der));
        Some(Self {
            signed,
            signature_algorithm,
            signature,
            subject,
            public_key_info,
            key_algorithm,
            public_key,
            alternative_names: alternative_names.ok()?,
        })
    }

    /// Returns the attributes of the subject; `None` if it has a string type other than UTF-8, printable and IA5.
    pub fn subject_attributes(&self) -> Option<Vec<NameAttribute>> {
        name_attributes(&self.subject)
    }
}

/// Returns the alternative names in the attributes of a request. As in Go, attributes of another form are ignored, and
/// extensions may not occur twice.
fn requested_names(attributes: &[u8]) -> ASN1Result<AlternativeNames> {
    let mut all = Vec::new();
    yasna::parse_der(attributes, |reader| {
        // The order isn't checked, unlike that of a set.
        reader.read_tagged_implicit(Tag::context(0), |reader| {
            reader.read_sequence_of(|reader| {
                all.push(reader.read_der()?);
                Ok(())
            })
        })
    })?;
    let values = all.iter().filter_map(|attribute| extension_request(attribute).ok().flatten());
    let (mut names, mut seen) = (AlternativeNames::default(), BTreeSet::new());
    for value in values {
        yasna::parse_der(&value, |reader| {
            reader.read_sequence_of(|reader| {
                let (id, _, value) = extension(reader)?;
                if id.strip_prefix(&EXTENSIONS) == Some(&[SUBJECT_ALTERNATIVE_NAME]) {
                    names = AlternativeNames::parse(&value)?;
                }
                if seen.insert(id) { Ok(()) } else { Err(invalid()) }
            })
        })?;
    }
    Ok(names)
}

/// Returns the value of an attribute if it is the one with the requested extensions.
fn extension_request(attribute: &[u8]) -> ASN1Result<Option<Vec<u8>>> {
    yasna::parse_der(attribute, |reader| {
        reader.read_sequence(|reader| {
            let id = reader.next().read_oid()?;
            let values = reader.next().collect_set_of(|reader| reader.read_der())?;
            Ok(values.into_iter().next().filter(|_| id.components() == EXTENSION_REQUEST))
        })
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_subject_and_the_key_are_read() {
        let mut params = CertificateParams::new(["example.com".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        let key = KeyPair::generate().unwrap();
        let der = params.serialize_request(&key).unwrap().der().to_vec();
        let request = CertificateRequest::parse(&der).unwrap();
        let attributes = request.subject_attributes().unwrap();
        assert!(attributes.iter().any(|(id, value)| *id == [2, 5, 4, 10] && value.text() == "dev"));
        assert_eq!(request.public_key, rcgen::PublicKeyData::der_bytes(&key));
        assert_eq!(request.public_key_info, rcgen::PublicKeyData::subject_public_key_info(&key));
        assert_eq!(request.alternative_names.dns_names, ["example.com"]);
        for length in 0..der.len() {
            assert!(CertificateRequest::parse(&der[..length]).is_none());
        }
    }
}
