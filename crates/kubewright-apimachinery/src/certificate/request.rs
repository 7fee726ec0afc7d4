//! Requests for certificates ([RFC 2986](https://www.rfc-editor.org/rfc/rfc2986)).

use super::{NameAttribute, algorithm, name_attributes};

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
    /// The algorithm of the public key: the content of an `AlgorithmIdentifier`.
    pub key_algorithm: Vec<u8>,
    /// The public key, without its algorithm.
    pub public_key: Vec<u8>,
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
        let (subject, (key_algorithm, public_key)) = yasna::parse_der(&signed, |reader| {
            reader.read_sequence(|reader| {
                reader.next().read_u64()?;
                let subject = reader.next().read_der()?;
                let key = reader
                    .next()
                    .read_sequence(|reader| Ok((algorithm(reader.next())?, reader.next().read_bitvec_bytes()?.0)))?;
                // The attributes, such as the extensions that the certificate should have.
                reader.read_optional(|reader| reader.read_der())?;
                Ok((subject, key))
            })
        })
        .ok()?;
        Some(Self { signed, signature_algorithm, signature, subject, key_algorithm, public_key })
    }

    /// Returns the attributes of the subject; `None` if it has a string type other than UTF-8, printable and IA5.
    pub fn subject_attributes(&self) -> Option<Vec<NameAttribute>> {
        name_attributes(&self.subject)
    }
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
        for length in 0..der.len() {
            assert!(CertificateRequest::parse(&der[..length]).is_none());
        }
    }
}
