//! The usages of keys in requests, and in certificates ([RFC 5280, sections 4.2.1.3 and
//! 4.2.1.12](https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.3)).

/// The usages of a key, as a certificate has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Usages {
    /// The numbers of the bits in `KeyUsage`, in order.
    pub(super) key: Vec<u8>,
    /// The object identifiers in `ExtKeyUsageSyntax`, in the order of Kubernetes' certificates.
    pub(super) extended: Vec<Vec<u64>>,
}

/// The names of the usages with their bits in `KeyUsage`.
const KEY_USAGES: [(&str, u8); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// The names of the extended usages with their object identifiers.
const EXTENDED_KEY_USAGES: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113730, 4, 1]),
];

impl Usages {
    /// Returns the usages of these names; `None` if one is unknown.
    pub(super) fn named(names: &[&str]) -> Option<Self> {
        let is_key = |name: &&str| KEY_USAGES.iter().any(|(known, _)| known == name);
        let is_extended = |name: &&str| EXTENDED_KEY_USAGES.iter().any(|(known, _)| known == name);
        if !names.iter().all(|name| is_key(name) || is_extended(name)) {
            return None;
        }
        let mut usages = Self::default();
        for (_, bit) in KEY_USAGES.iter().filter(|(name, _)| names.contains(name)) {
            usages.key.push(*bit);
        }
        for (_, id) in EXTENDED_KEY_USAGES.iter().filter(|(name, _)| names.contains(name)) {
            usages.extended.push(id.to_vec());
        }
        usages.key.dedup();
        usages.extended.dedup();
        Some(usages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_are_bits_and_identifiers_without_duplicates() {
        let usages =
            Usages::named(&["client auth", "s/mime", "signing", "email protection", "any", "digital signature"]);
        let usages = usages.expect("they are known");
        assert_eq!(usages.key, [0]);
        let ids: [&[u64]; 3] = [&[2, 5, 29, 37, 0], &[1, 3, 6, 1, 5, 5, 7, 3, 2], &[1, 3, 6, 1, 5, 5, 7, 3, 4]];
        assert_eq!(usages.extended, ids);
        assert_eq!(Usages::named(&["client auth", "other"]), None);
    }
}
