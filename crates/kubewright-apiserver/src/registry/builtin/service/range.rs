//! The range of the addresses of services.

use std::{fmt, net::Ipv4Addr, ops::RangeInclusive, str::FromStr};

use kubewright_apimachinery::cidr::Cidr;

/// The range that addresses of services are allocated from, such as `10.0.0.0/24`. The default is `127.96.0.0/12`, a
/// part of the loopback network, so that a node on Linux can listen on its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    length: u32,
}

/// A text that isn't a range of addresses of services.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a range of service addresses has the form ADDRESS/LENGTH, with an IPv4 address and a length from 8 to 30, not {0:?}"
)]
pub struct ServiceRangeError(String);

impl Default for ServiceRange {
    fn default() -> Self {
        Self { network: 0x7f60_0000, length: 12 }
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Cidr::from(*self).fmt(f)
    }
}

impl From<ServiceRange> for Cidr {
    fn from(range: ServiceRange) -> Self {
        let length = u8::try_from(range.length).unwrap_or_default();
        Self { address: Ipv4Addr::from_bits(range.network).into(), length }
    }
}

impl FromStr for ServiceRange {
    type Err = ServiceRangeError;

    fn from_str(text: &str) -> Result<Self, ServiceRangeError> {
        let parsed = text.split_once('/').and_then(|(address, length)| {
            let address: Ipv4Addr = address.parse().ok()?;
            let length: u32 = length.parse().ok().filter(|length| (8..=30).contains(length))?;
            Some(Self { network: address.to_bits() & (u32::MAX << (32 - length)), length })
        });
        parsed.ok_or_else(|| ServiceRangeError(text.to_owned()))
    }
}

impl ServiceRange {
    /// Returns the range without its first and last address.
    pub(super) fn addresses(self) -> RangeInclusive<u32> {
        self.network + 1..=self.network + (u32::MAX >> self.length) - 1
    }

    /// Returns the number of lowest addresses that are allocated only if all others are in use, so that services can
    /// request them explicitly (KEP-3070).
    pub(super) fn asked_for(self) -> u32 {
        let size = u32::MAX >> self.length;
        (size / 16).clamp(16, 256).min(size / 2)
    }

    /// Returns the address of the service `kubernetes`, the first one, as in Kubernetes. All clusters on a machine
    /// share its loopback network, so that the address is any one there.
    pub fn of_kubernetes(self) -> Option<Ipv4Addr> {
        let first = Ipv4Addr::from_bits(self.network + 1);
        (!first.is_loopback()).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_an_address_and_a_length() {
        let check = |text: &str, expect: &str, first: Option<[u8; 4]>, number: usize, asked_for: u32| {
            let range: ServiceRange = text.parse().unwrap();
            assert_eq!((range.to_string().as_str(), range.addresses().count()), (expect, number), "{text}");
            assert_eq!((range.of_kubernetes(), range.asked_for()), (first.map(Ipv4Addr::from), asked_for), "{text}");
        };
        check("10.0.0.7/24", "10.0.0.0/24", Some([10, 0, 0, 1]), 254, 16);
        check("10.96.0.0/12", "10.96.0.0/12", Some([10, 96, 0, 1]), (1 << 20) - 2, 256);
        check("127.96.0.0/12", "127.96.0.0/12", None, (1 << 20) - 2, 256);
        check("10.0.0.0/30", "10.0.0.0/30", Some([10, 0, 0, 1]), 2, 1);
        assert_eq!("127.96.0.0/12".parse(), Ok(ServiceRange::default()));
        for text in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/7", "fd00::/108", "10.0.0/24"] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }
}
