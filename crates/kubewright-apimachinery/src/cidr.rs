//! Address ranges in the notation of CIDR (RFC 4632).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Parses an IPv4 address whose numbers have leading zeros, which are ignored: `010.0.0.1` is `10.0.0.1`.
pub fn without_leading_zeros(text: &str) -> Option<IpAddr> {
    let numbers: Vec<_> = text.split('.').collect();
    if numbers.len() != 4 || numbers.iter().any(|number| number.is_empty()) {
        return None;
    }
    let trimmed = |number: &&str| match number.trim_start_matches('0') {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    };
    numbers.iter().map(trimmed).collect::<Vec<_>>().join(".").parse().ok()
}

/// An address range, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address before the slash.
    pub address: IpAddr,
    /// The number of leading bits that addresses of the range have in common.
    pub length: u8,
}

impl Cidr {
    /// Parses a range. Numbers of IPv4 addresses may have leading zeros, which Kubernetes ignores in what has been
    /// stored.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address = address.parse().ok().or_else(|| without_leading_zeros(address))?;
        let length: u8 = length.bytes().all(|byte| byte.is_ascii_digit()).then(|| length.parse().ok()).flatten()?;
        (length <= Self::bits(address).1).then_some(Self { address, length })
    }

    fn bits(address: IpAddr) -> (u128, u8) {
        match address {
            IpAddr::V4(address) => (address.to_bits().into(), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        }
    }

    /// Returns the number of bits of the range's addresses: 32 or 128.
    pub fn width(self) -> u8 {
        Self::bits(self.address).1
    }

    /// Returns the bits that differ within the range.
    fn free(self) -> u128 {
        let free = self.width() - self.length;
        if free == 128 { u128::MAX } else { (1 << free) - 1 }
    }

    /// Returns the range with an address whose free bits are zero.
    pub fn aligned(self) -> Self {
        let bits = Self::bits(self.address).0 & !self.free();
        let address = match self.address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or_default()).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        };
        Self { address, length: self.length }
    }

    /// Returns whether the free bits of the address are zero.
    pub fn is_aligned(self) -> bool {
        Self::bits(self.address).0 & self.free() == 0
    }

    /// Returns whether an address is in the range.
    pub fn contains(self, address: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (Self::bits(self.address), Self::bits(address));
        width == other_width && own & !self.free() == other & !self.free()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_the_addresses_with_its_prefix() {
        let contains = |range: &str, address: &str| {
            Cidr::parse(range).is_some_and(|range| address.parse().is_ok_and(|address| range.contains(address)))
        };
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("2001:db8::/64", "2001:db8::a") && !contains("2001:db8::/64", "2001:db8:0:1::"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
    }

    #[test]
    fn only_ranges_are_parsed() {
        assert_eq!(Cidr::parse("010.0.0.1/08").map(|range| range.aligned().to_string()).as_deref(), Some("10.0.0.0/8"));
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0/8", "::/129"] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }
}
