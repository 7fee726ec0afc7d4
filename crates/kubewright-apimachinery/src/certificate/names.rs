//! The alternative names of certificates ([RFC 5280, section
//! 4.2.1.6](https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.6)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use yasna::{ASN1Result, Tag};

use super::invalid;

/// The tags of the kinds of names.
const EMAIL: u64 = 1;
const DNS_NAME: u64 = 2;
const URI: u64 = 6;
const ADDRESS: u64 = 7;

/// The names of a holder besides the subject. Names of other kinds are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Host names, with or without a wildcard.
    pub dns_names: Vec<String>,
    /// Email addresses.
    pub emails: Vec<String>,
    /// Network addresses.
    pub addresses: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
}

impl AlternativeNames {
    /// Returns whether there is no name.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the value of the extension, `GeneralNames` in DER.
    pub(super) fn parse(der: &[u8]) -> ASN1Result<Self> {
        let mut names = Self::default();
        yasna::parse_der(der, |reader| {
            reader.read_sequence_of(|reader| {
                let tag = reader.lookahead_tag()?;
                let texts = match () {
                    () if tag == Tag::context(DNS_NAME) => &mut names.dns_names,
                    () if tag == Tag::context(EMAIL) => &mut names.emails,
                    () if tag == Tag::context(URI) => &mut names.uris,
                    () if tag == Tag::context(ADDRESS) => {
                        let bytes = reader.read_tagged_implicit(tag, |reader| reader.read_bytes())?;
                        let short = <[u8; 4]>::try_from(&*bytes).map(|bytes| Ipv4Addr::from(bytes).into());
                        let long = || <[u8; 16]>::try_from(&*bytes).map(|bytes| Ipv6Addr::from(bytes).into());
                        names.addresses.push(short.or_else(|_| long()).map_err(|_| invalid())?);
                        return Ok(());
                    }
                    () => return reader.read_der().map(drop),
                };
                texts.push(reader.read_tagged_implicit(tag, |reader| reader.read_ia5_string())?);
                Ok(())
            })
        })?;
        Ok(names)
    }

    /// Returns the value of the extension, `GeneralNames` in DER.
    pub(super) fn to_der(&self) -> Vec<u8> {
        let texts = [(DNS_NAME, &self.dns_names), (EMAIL, &self.emails), (URI, &self.uris)];
        yasna::construct_der(|writer| {
            writer.write_sequence_of(|writer| {
                for (tag, text) in texts.iter().flat_map(|(tag, texts)| texts.iter().map(|text| (*tag, text))) {
                    writer
                        .next()
                        .write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(text.as_bytes()));
                }
                for address in &self.addresses {
                    let bytes = match address {
                        IpAddr::V4(address) => address.octets().to_vec(),
                        IpAddr::V6(address) => address.octets().to_vec(),
                    };
                    writer.next().write_tagged_implicit(Tag::context(ADDRESS), |writer| writer.write_bytes(&bytes));
                }
            });
        })
    }
}
