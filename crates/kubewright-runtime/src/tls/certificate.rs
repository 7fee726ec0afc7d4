//! What a certificate says, in the terms of the library that issues certificates.

use std::collections::BTreeSet;

use kubewright_apimachinery::certificate::{Certificate, NameValue};
use rcgen::{DistinguishedName, DnType, DnValue};

/// Returns the subject; `None` if it has a string type other than UTF-8, printable and IA5.
pub(super) fn subject(certificate: &Certificate) -> Option<DistinguishedName> {
    let mut subject = DistinguishedName::new();
    for (kind, value) in certificate.subject_attributes()? {
        let value = match value {
            NameValue::Utf8(text) => DnValue::Utf8String(text),
            NameValue::Printable(text) => DnValue::PrintableString(text.try_into().ok()?),
            NameValue::Ia5(text) => DnValue::Ia5String(text.try_into().ok()?),
        };
        subject.push(DnType::from_oid(&kind), value);
    }
    Some(subject)
}

/// Returns the host names and addresses.
pub(super) fn names(certificate: &Certificate) -> BTreeSet<String> {
    let names = &certificate.extensions.alternative_names;
    let addresses = names.addresses.iter().map(ToString::to_string);
    names.dns_names.iter().cloned().chain(addresses).collect()
}

/// Returns whether the holder is an authority.
pub(super) fn is_authority(certificate: &Certificate) -> bool {
    certificate.extensions.basic_constraints.is_some_and(|constraints| constraints.is_authority)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn subjects_are_those_of_the_library() {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "hook.default.svc".into()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        params.distinguished_name.push(DnType::CommonName, "ünder");
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 1]), "other");
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = Certificate::parse(made.der()).unwrap();
        assert_eq!(subject(&certificate), Some(params.distinguished_name));
        assert_eq!(names(&certificate), BTreeSet::from(["127.0.0.1", "hook.default.svc"].map(String::from)));
    }
}
